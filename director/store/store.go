// Package store keeps what the director knows in a database. It is the only room that sees gorm; everything it takes
// and returns are the nouns of the other rooms.
package store

import (
	"context"
	"crypto/rand"
	"database/sql"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"sort"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/director-kaas/kaas/director"
)

// Store is an open database: SQLite for one director, or PostgreSQL that several may share. It is safe for concurrent
// use.
type Store struct {
	*database
	*documentStore
	*planStore
	*instanceStore
	*machineStore
	*sightStore
	*userStore
	*scheduleStore
	*trailStore
	*campaignStore
	*hookStore
	*notificationStore
}

func newStore(db *database) *Store {
	return &Store{
		db, &documentStore{db}, &planStore{db}, &instanceStore{database: db}, &machineStore{db}, &sightStore{db},
		&userStore{db}, &scheduleStore{db}, &trailStore{db}, &campaignStore{db}, &hookStore{db}, &notificationStore{db},
	}
}

// database is what every part of a store works on.
type database struct {
	write *gorm.DB      // on SQLite one connection: writers queue in the process and never see SQLITE_BUSY
	read  *gorm.DB      // sees committed data only; on PostgreSQL the same as write
	pool  *pgxpool.Pool // PostgreSQL's connections; nil on SQLite
	id    string
	log   *slog.Logger
	news  news
	plans *planCache
}

// documentStore keeps what administrators have written and what came of it: documents, what was installed, secrets and
// credentials.
type documentStore struct{ *database }

// planStore keeps plans with their events, what holds them up, and outer orchestrators' phases.
type planStore struct{ *database }

// instanceStore keeps what the directors of one database know of each other: who is alive, and who follows the
// authority.
type instanceStore struct {
	*database
	advertised atomic.Pointer[string] // where other directors reach this one
}

// machineStore keeps the ledger of VMs, their disks and the providers' images.
type machineStore struct{ *database }

// sightStore keeps what was seen of nodes, and who looks at which cluster.
type sightStore struct{ *database }

// userStore keeps users, their tokens, and answers that are given once.
type userStore struct{ *database }

// scheduleStore keeps the runs of schedules.
type scheduleStore struct{ *database }

// trailStore keeps what happened: the stream, the audit trail, and their archives.
type trailStore struct{ *database }

// init brings the schema up to date, and gives a new database the id of the installation.
func (s *database) init(ctx context.Context) error {
	if err := s.migrate(ctx); err != nil {
		return err
	}
	var err error
	s.id, err = s.EnsureMeta(ctx, "director_id", newID("d"))
	return err
}

func gormConfig() *gorm.Config {
	return &gorm.Config{
		TranslateError: true, SkipDefaultTransaction: true, Logger: logger.Discard,
		NowFunc: func() time.Time { return time.Now().UTC() },
	}
}

// Close closes the database. It is idempotent.
func (s *database) Close() error {
	dbs := []*gorm.DB{s.read, s.write}
	if s.read == s.write {
		dbs = dbs[1:]
	}
	var errs []error
	for _, db := range dbs {
		if db == nil {
			continue
		}
		pool, err := db.DB()
		if err == nil {
			err = pool.Close()
		}
		errs = append(errs, err)
	}
	if s.pool != nil {
		s.pool.Close()
	}
	return errors.Join(errs...)
}

// SQL returns the writing connection pool, for the job queue that shares the database. On SQLite it holds one
// connection: a caller with an open transaction must not ask the pool for another connection.
func (s *database) SQL() *sql.DB {
	pool, err := s.write.DB()
	if err != nil {
		panic("store: " + err.Error()) // gorm was opened on a *sql.DB, so it has one
	}
	return pool
}

// Pool returns PostgreSQL's connections, and nil on SQLite. Other directors may use the database at the same time.
func (s *database) Pool() *pgxpool.Pool { return s.pool }

// DirectorID returns the id of this installation. It is made once, never changes and stamps every VM.
func (s *database) DirectorID() string { return s.id }

// Meta returns what is written about the database under the name, and "" for nothing.
func (s *database) Meta(ctx context.Context, name string) (string, error) {
	var value string
	db := s.read
	if db == nil {
		db = s.write // while it is opened
	}
	err := db.WithContext(ctx).Raw("SELECT value FROM meta WHERE name = ?", name).Scan(&value).Error
	return value, dbError("store.meta", name, err)
}

// EnsureMeta writes the value under the name unless there is one, and returns the one that is written then: of two that
// race, both get the same.
func (s *database) EnsureMeta(ctx context.Context, name, value string) (string, error) {
	err := s.write.WithContext(ctx).Exec(
		"INSERT INTO meta (name, value) VALUES (?, ?) ON CONFLICT DO NOTHING", name, value,
	).Error
	if err != nil {
		return "", dbError("store.meta", name, err)
	}
	return s.Meta(ctx, name)
}

// dialect names the folder of migrations.
func (s *database) dialect() string {
	if s.pool != nil {
		return "postgres"
	}
	return "sqlite"
}

// migrate runs every numbered file that has not run, each in a transaction of its own. Directors that start together
// take turns.
func (s *database) migrate(ctx context.Context) error {
	db := s.write.WithContext(ctx)
	err := db.Transaction(func(tx *gorm.DB) error {
		if err := s.exclusive(tx, lockMigrations); err != nil {
			return err
		}
		return tx.Exec(
			"CREATE TABLE IF NOT EXISTS schema_migrations (version TEXT PRIMARY KEY, applied_at BIGINT NOT NULL)",
		).Error
	})
	if err != nil {
		return err
	}
	names, err := fs.Glob(migrations, "*/"+s.dialect()+"/*.sql")
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
	for _, v := range done {
		if !known[v] {
			return fmt.Errorf("it has schema %s, which this director does not know: it was used by a newer one", v)
		}
	}
	for _, n := range names {
		if err := s.migrateTo(ctx, n); err != nil {
			return fmt.Errorf("migration %s: %w", n, err)
		}
	}
	return nil
}

func (s *database) migrateTo(ctx context.Context, name string) error {
	text, err := migrations.ReadFile(name)
	if err != nil {
		return err
	}
	return s.write.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := s.exclusive(tx, lockMigrations); err != nil {
			return err
		}
		var n int64
		if err := tx.Raw("SELECT count(*) FROM schema_migrations WHERE version = ?", version(name)).Scan(
			&n,
		).Error; err != nil || n > 0 {
			return err
		}
		if err := tx.Exec(string(text)).Error; err != nil {
			return err
		}
		s.log.InfoContext(ctx, "database migrated", "version", version(name))
		return tx.Exec(
			"INSERT INTO schema_migrations (version, applied_at) VALUES (?, ?)", version(name), micros(time.Now()),
		).Error
	})
}

func version(name string) string {
	return strings.TrimSuffix(name[strings.LastIndexByte(name, '/')+1:], ".sql")
}

// Latest returns the number of the newest version of the schema that this director knows, such as 0054.
func Latest() (string, error) {
	names, err := fs.Glob(migrations, "*/sqlite/*.sql")
	if err != nil || len(names) == 0 {
		return "", director.Errorf(director.KindInternal, "store.latest", "the migrations are not there: %w", err)
	}
	number, _, _ := strings.Cut(version(slices.Max(names)), "_")
	return number, nil
}

// newID returns a random id that can be part of names and file names.
func newID(prefix string) string {
	b := make([]byte, 6)
	_, _ = rand.Read(b) // crypto/rand.Read never fails
	return prefix + hex.EncodeToString(b)
}

// newUserID is for all time: tokens for clusters name their user by it.
func newUserID() string {
	b := make([]byte, 10)
	_, _ = rand.Read(b) // crypto/rand.Read never fails
	return "p" + hex.EncodeToString(b)
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
