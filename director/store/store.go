// Package store keeps what the director knows in a database. It is the only room that sees gorm; everything it takes and
// returns are the nouns of the other rooms.
package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"embed"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/url"
	"sort"
	"strings"
	"time"

	"gorm.io/driver/sqlite"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/director-kaas/kaas/director"
)

//go:embed migrations
var migrations embed.FS

// Store is an open database. It is safe for concurrent use.
type Store struct {
	write *gorm.DB // one connection: writers queue in the process and never see SQLITE_BUSY
	read  *gorm.DB // several connections that see committed data only
	id    string
	log   *slog.Logger
}

// Open opens the SQLite database at path, makes it if it is not there and brings its schema up to date. It also gives a new
// database the id of the installation, which stamps every VM.
func Open(ctx context.Context, path string, log *slog.Logger) (*Store, error) {
	write, err := openPool(path, 1, "immediate")
	if err != nil {
		return nil, openError(path, err)
	}
	s := &Store{write: write, log: log}
	if err := s.migrate(ctx); err != nil {
		return nil, errors.Join(openError(path, err), s.Close())
	}
	if s.read, err = openPool(path, 4, "deferred"); err != nil {
		return nil, errors.Join(openError(path, err), s.Close())
	}
	if s.id, err = s.directorID(ctx); err != nil {
		return nil, errors.Join(openError(path, err), s.Close())
	}
	return s, nil
}

func openError(path string, err error) error {
	return &director.Error{
		Kind: director.KindUnavailable, Op: "store.open", Msg: "the database " + path + " cannot be opened",
		Hint: "check that its directory exists, is writable and has space, and that no newer director has used it", Err: err,
	}
}

func openPool(path string, conns int, txlock string) (*gorm.DB, error) {
	// synchronous=FULL: what was told to a person as done survives a power cut.
	q := url.Values{
		"_journal_mode": {"WAL"}, "_busy_timeout": {"10000"}, "_foreign_keys": {"on"}, "_txlock": {txlock}, "_synchronous": {"FULL"},
	}
	db, err := gorm.Open(sqlite.Open("file:"+url.PathEscape(path)+"?"+q.Encode()), &gorm.Config{
		TranslateError: true, SkipDefaultTransaction: true, Logger: logger.Discard,
		NowFunc: func() time.Time { return time.Now().UTC() },
	})
	if err != nil {
		return nil, err
	}
	pool, err := db.DB()
	if err != nil {
		return nil, err
	}
	pool.SetMaxOpenConns(conns)
	pool.SetMaxIdleConns(conns)
	return db, pool.PingContext(context.Background())
}

// Close closes the database. It is idempotent.
func (s *Store) Close() error {
	var errs []error
	for _, db := range []*gorm.DB{s.read, s.write} {
		if db == nil {
			continue
		}
		pool, err := db.DB()
		if err == nil {
			err = pool.Close()
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// SQL returns the writing connection pool, for the job queue that shares the database. It holds one connection: whoever
// has a transaction open must not ask the pool for another.
func (s *Store) SQL() *sql.DB {
	pool, err := s.write.DB()
	if err != nil {
		panic("store: " + err.Error()) // gorm was opened on a *sql.DB, so it has one
	}
	return pool
}

// DirectorID returns the id of this installation. It is made once and never changes.
func (s *Store) DirectorID() string { return s.id }

// migrate runs every numbered file that has not run, each in a transaction of its own.
func (s *Store) migrate(ctx context.Context) error {
	db := s.write.WithContext(ctx)
	if err := db.Exec("CREATE TABLE IF NOT EXISTS schema_migrations (version TEXT PRIMARY KEY, applied_at INTEGER NOT NULL)").Error; err != nil {
		return err
	}
	names, err := fs.Glob(migrations, "migrations/sqlite/*.sql")
	if err != nil {
		return err
	}
	sort.Strings(names)
	var done []string
	if err := db.Raw("SELECT version FROM schema_migrations ORDER BY version").Scan(&done).Error; err != nil {
		return err
	}
	known := map[string]bool{}
	for _, n := range names {
		known[version(n)] = true
	}
	applied := map[string]bool{}
	for _, v := range done {
		if !known[v] {
			return fmt.Errorf("it has schema %s, which this director does not know: it was used by a newer one", v)
		}
		applied[v] = true
	}
	for _, n := range names {
		if applied[version(n)] {
			continue
		}
		text, err := migrations.ReadFile(n)
		if err != nil {
			return err
		}
		err = db.Transaction(func(tx *gorm.DB) error {
			if err := tx.Exec(string(text)).Error; err != nil {
				return err
			}
			return tx.Exec("INSERT INTO schema_migrations (version, applied_at) VALUES (?, ?)", version(n), micros(time.Now())).Error
		})
		if err != nil {
			return fmt.Errorf("migration %s: %w", n, err)
		}
		s.log.InfoContext(ctx, "database migrated", "version", version(n))
	}
	return nil
}

func version(name string) string {
	return strings.TrimSuffix(name[strings.LastIndexByte(name, '/')+1:], ".sql")
}

func (s *Store) directorID(ctx context.Context) (string, error) {
	var id string
	err := s.write.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Raw("SELECT value FROM meta WHERE name = 'director_id'").Scan(&id).Error; err != nil || id != "" {
			return err
		}
		id = newID("d")
		return tx.Exec("INSERT INTO meta (name, value) VALUES ('director_id', ?)", id).Error
	})
	return id, err
}

// newID returns a random id that can be part of names and file names.
func newID(prefix string) string {
	b := make([]byte, 6)
	_, _ = rand.Read(b) // crypto/rand.Read never fails
	return prefix + hex.EncodeToString(b)
}

func micros(t time.Time) int64 {
	if t.IsZero() {
		return 0
	}
	return t.UnixMicro()
}

func instant(us int64) time.Time {
	if us == 0 {
		return time.Time{}
	}
	return time.UnixMicro(us).UTC()
}

// dbError classifies what the database said about object.
func dbError(op, object string, err error) error {
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*director.Error](err); ok {
		return err
	}
	switch {
	case errors.Is(err, gorm.ErrRecordNotFound):
		return director.Errorf(director.KindNotFound, op, "there is no %s", object)
	case errors.Is(err, gorm.ErrDuplicatedKey):
		return &director.Error{Kind: director.KindConflict, Op: op, Msg: object + " exists already", Err: err}
	case errors.Is(err, context.Canceled), errors.Is(err, context.DeadlineExceeded):
		return err
	case strings.Contains(err.Error(), "disk is full"), strings.Contains(err.Error(), "disk I/O error"):
		// The driver has no typed error for these that gorm passes on.
		return &director.Error{
			Kind: director.KindExhausted, Op: op, Msg: "the database cannot write", Err: err,
			Hint: "free space on the director's data disk; nothing was lost, and the plan goes on by itself",
		}
	}
	return &director.Error{Kind: director.KindInternal, Op: op, Msg: "the database failed on " + object, Err: err}
}
