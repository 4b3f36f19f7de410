package store

import (
	"context"
	"errors"
	"log/slog"
	"net/url"

	"gorm.io/driver/sqlite"
	"gorm.io/gorm"

	"github.com/director-kaas/kaas/director"
)

// Open opens the SQLite database at path, makes it if it is not there and brings its schema up to date. It is for one
// director alone.
func Open(ctx context.Context, path string, log *slog.Logger) (*Store, error) {
	write, err := openSQLite(ctx, path, 1, "immediate")
	if err != nil {
		return nil, sqliteOpenError(path, err)
	}
	s := &database{write: write, log: log, plans: newPlanCache(cacheSize)}
	if err := s.init(ctx); err != nil {
		return nil, errors.Join(sqliteOpenError(path, err), s.Close())
	}
	if s.read, err = openSQLite(ctx, path, 4, "deferred"); err != nil {
		return nil, errors.Join(sqliteOpenError(path, err), s.Close())
	}
	return newStore(s), nil
}

func sqliteOpenError(path string, err error) error {
	return &director.Error{
		Kind: director.KindUnavailable, Op: "store.open", Msg: "the database " + path + " cannot be opened",
		Hint: "check that its directory exists, is writable and has space, and that no newer director has used it",
		Err:  err,
	}
}

func openSQLite(ctx context.Context, path string, conns int, txlock string) (*gorm.DB, error) {
	// synchronous=FULL: what was told to a person as done survives a power cut.
	q := url.Values{
		"_journal_mode": {"WAL"}, "_busy_timeout": {"10000"}, "_foreign_keys": {"on"}, "_txlock": {txlock},
		"_synchronous": {"FULL"},
	}
	db, err := gorm.Open(sqlite.Open("file:"+url.PathEscape(path)+"?"+q.Encode()), gormConfig())
	if err != nil {
		return nil, err
	}
	pool, err := db.DB()
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	return db, pool.PingContext(ctx)
}
