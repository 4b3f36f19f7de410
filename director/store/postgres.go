package store

import (
	"context"
	"crypto/tls"
	"database/sql"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"

	"github.com/director-kaas/kaas/director"
)

// Postgres says where a PostgreSQL database is.
type Postgres struct {
	URL      string          // postgres://... or key=value pairs, without a password
	Password director.Secret // empty for what the server lets in without one
}

// Channel is where directors on one PostgreSQL tell each other that a plan has moved; the payload PayloadLook asks them
// to look at their leases at once. Nothing depends on these messages but speed.
const (
	Channel     = "director_plans"
	PayloadLook = "look"
)

// The keys of PostgreSQL's advisory locks. The first half names us among the users of a database.
const (
	lockMigrations int64 = 0x6b616173_00000001 + iota
	lockDocuments
	lockBudgets
	lockStream
	lockCreations
	lockMACs
	lockUsers
	lockIssuer
	lockCampaigns
	lockHooks
	lockPhases
)

var hasPassword = regexp.MustCompile(`(?i)(^|[\s?&])(password|sslpassword)\s*=`)

// CheckURL returns what is wrong with where a PostgreSQL database is said to be, or nil. A password in it is wrong: it
// would end up in backups and tickets with the configuration.
func CheckURL(text string) error {
	u, uerr := url.Parse(text)
	if uerr == nil && u.User != nil {
		if _, set := u.User.Password(); set {
			return errors.New("holds a password")
		}
	}
	if hasPassword.MatchString(text) {
		return errors.New("holds a password")
	}
	if !strings.Contains(text, "=") && (uerr != nil || (u.Scheme != "postgres" && u.Scheme != "postgresql")) {
		return errors.New("is not the address of a PostgreSQL database")
	}
	cfg, err := pgxpool.ParseConfig(text)
	if err != nil {
		return fmt.Errorf("is not understood: %w", err) // pgx leaves passwords out
	}
	return checkTLS(cfg.ConnConfig)
}

// checkTLS returns an error if a server may be reached over a network without proof that it is the one that was named.
// Someone who intercepts the connection would have everything in the database.
func checkTLS(c *pgx.ConnConfig) error {
	check := func(host string, t *tls.Config) error {
		if onlyHere(host) || (t != nil && !t.InsecureSkipVerify) {
			return nil
		}
		return fmt.Errorf("leads over a network to %s without sslmode=verify-full", host)
	}
	errs := []error{check(c.Host, c.TLSConfig)}
	for _, f := range c.Fallbacks {
		errs = append(errs, check(f.Host, f.TLSConfig))
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// onlyHere reports whether a server's host is this machine: a socket's directory, or an address that no packet leaves.
func onlyHere(host string) bool {
	ip, err := netip.ParseAddr(host)
	return strings.HasPrefix(host, "/") || strings.HasPrefix(host, "@") || host == "localhost" ||
		(err == nil && ip.IsLoopback())
}

// OpenPostgres opens the PostgreSQL database and brings its schema up to date. Several directors may have it open.
func OpenPostgres(ctx context.Context, p Postgres, log *slog.Logger) (*Store, error) {
	if err := CheckURL(p.URL); err != nil {
		return nil, director.Errorf(director.KindInvalid, "store.open", "the database's address %w", err).
			WithHint("such as postgres://director@db.example.net/director?sslmode=verify-full")
	}
	cfg, err := pgxpool.ParseConfig(p.URL)
	if err != nil {
		return nil, director.Errorf(
			director.KindInvalid, "store.open", "the database's address is not understood: %w", err,
		)
	}
	tune(cfg, p)
	where := fmt.Sprintf("%s on %s", cfg.ConnConfig.Database, cfg.ConnConfig.Host)
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return nil, postgresOpenError(where, err)
	}
	db, err := gorm.Open(postgres.New(postgres.Config{Conn: stdlib.OpenDBFromPool(pool)}), gormConfig())
	if err != nil {
		pool.Close()
		return nil, postgresOpenError(where, err)
	}
	s := &database{write: db, read: db, pool: pool, log: log, plans: newPlanCache(cacheSize)}
	if err := s.retried(ctx, func() error { return s.init(ctx) }); err != nil {
		return nil, errors.Join(postgresOpenError(where, err), s.Close())
	}
	return newStore(s), nil
}

func tune(cfg *pgxpool.Config, p Postgres) {
	cfg.ConnConfig.Password = p.Password.Reveal()
	if !strings.Contains(p.URL, "pool_max_conns") {
		cfg.MaxConns = 20
	}
	if cfg.ConnConfig.ConnectTimeout == 0 {
		cfg.ConnConfig.ConnectTimeout = 5 * time.Second
	}
	for name, value := range map[string]string{
		"application_name": "director",
		"lock_timeout":     "10s",
		// A director that is stopped, or whose machine is gone, must not lock a plan's row for other directors.
		"idle_in_transaction_session_timeout": "5s",
		"tcp_keepalives_idle":                 "5", "tcp_keepalives_interval": "2", "tcp_keepalives_count": "3",
	} {
		if _, set := cfg.ConnConfig.RuntimeParams[name]; !set {
			cfg.ConnConfig.RuntimeParams[name] = value
		}
	}
}

func postgresOpenError(where string, err error) error {
	hint := "check that the server runs and can be reached from here, and that its pg_hba.conf lets this director in"
	if pe, ok := errors.AsType[*pgconn.PgError](err); ok {
		switch pe.Code {
		case "28P01", "28000":
			hint = "check the user in database, the password in databasePasswordFile, and the server's pg_hba.conf"
		case "3D000":
			hint = "make it: CREATE DATABASE ... OWNER ...; see docs/operate/high-availability.md"
		case "42501":
			hint = "make the director's user the owner of the database: ALTER DATABASE ... OWNER TO ..."
		}
	} else if strings.Contains(err.Error(), "used by a newer one") {
		hint = "start the director's newest version"
	}
	return &director.Error{
		Kind: director.KindUnavailable, Op: "store.open", Msg: "the PostgreSQL database " + where + " cannot be opened",
		Hint: hint, Err: err,
	}
}

// exclusive lets one transaction of all directors continue after this line; the lock ends with the transaction. SQLite
// has one writer anyway.
func (s *database) exclusive(tx *gorm.DB, key int64) error {
	if s.pool == nil {
		return nil
	}
	return tx.Exec("SELECT pg_advisory_xact_lock(?)", key).Error
}

// snapshot is how to open a reading transaction that sees one state of all tables.
func (s *database) snapshot() *sql.TxOptions {
	if s.pool == nil {
		return &sql.TxOptions{ReadOnly: true} // SQLite knows no other
	}
	return &sql.TxOptions{ReadOnly: true, Isolation: sql.LevelRepeatableRead}
}

// Clock returns the database's time, by which all directors on it can agree.
func (s *database) Clock(ctx context.Context) (time.Time, error) {
	if s.pool == nil {
		return time.Now(), nil
	}
	var us int64
	err := s.read.WithContext(ctx).Raw("SELECT (extract(epoch FROM clock_timestamp()) * 1000000)::bigint").Scan(
		&us,
	).Error
	return instant(us), dbError("store.clock", "the clock", err)
}

// Ping returns nil if the database answers.
func (s *database) Ping(ctx context.Context) error {
	_, err := s.Meta(ctx, "director_id")
	return err
}

const maxTries = 8

// retried calls fn again when the server ended it in favour of another transaction. fn must be safe to repeat from its
// beginning.
func (s *database) retried(ctx context.Context, fn func() error) error {
	for try := 1; ; try++ {
		err := fn()
		if s.pool == nil || try == maxTries || !collided(err) {
			return err
		}
		s.log.DebugContext(ctx, "transactions collided, will retry", "try", try, "err", err)
		wait := time.NewTimer(time.Duration(try)*5*time.Millisecond + rand.N(20*time.Millisecond))
		select {
		case <-wait.C:
		case <-ctx.Done():
			wait.Stop()
			return errors.Join(ctx.Err(), err)
		}
	}
}

// collided says whether err is PostgreSQL's serialization failure or deadlock.
func collided(err error) bool {
	pe, ok := errors.AsType[*pgconn.PgError](err)
	return ok && (pe.Code == "40001" || pe.Code == "40P01")
}

// updatePostgres runs fn in a transaction on a connection that the queue's driver can reach, too.
func (s *database) updatePostgres(ctx context.Context, fn func(*Tx) error) error {
	conn, err := s.SQL().Conn(ctx)
	if err != nil {
		return err
	}
	defer conn.Close()
	db := s.write.Session(&gorm.Session{NewDB: true, Context: ctx})
	db.Statement.ConnPool = conn
	return db.Transaction(func(db *gorm.DB) error {
		t := newTx(&txn{db: db, store: s, conn: conn})
		if err := fn(t); err != nil {
			return err
		}
		return t.tell()
	})
}

// tell lets the other directors know once the transaction is committed.
func (t *txn) tell() error {
	if !t.moved && !t.look {
		return nil
	}
	payload := ""
	if t.look {
		payload = PayloadLook
	}
	return t.db.Exec("SELECT pg_notify(?, ?)", Channel, payload).Error
}

// Pgx lends the transaction to fn in the terms of PostgreSQL's driver. It fails on SQLite. fn must neither keep nor end
// it.
func (t *txn) Pgx(fn func(pgx.Tx) error) error {
	if t.conn == nil {
		return director.Errorf(director.KindInternal, "store.pgx", "this is not PostgreSQL")
	}
	// Raw holds the connection's lock: a cancelled context cannot roll back in the middle of fn.
	return t.conn.Raw(func(c any) error { return fn(lent{c.(*stdlib.Conn).Conn()}) })
}

// lent is the connection of a transaction that database/sql began and will end.
type lent struct{ c *pgx.Conn }

var (
	_       pgx.Tx = lent{}
	errLent        = errors.New("store: this transaction is ended by the store")
)

func (lent) Begin(context.Context) (pgx.Tx, error) { return nil, errLent }
func (lent) Commit(context.Context) error          { return errLent }
func (lent) Rollback(context.Context) error        { return errLent }
func (lent) LargeObjects() pgx.LargeObjects        { return pgx.LargeObjects{} }
func (l lent) Conn() *pgx.Conn                     { return l.c }

func (l lent) CopyFrom(
	ctx context.Context, table pgx.Identifier, columns []string, rows pgx.CopyFromSource,
) (int64, error) {
	return l.c.CopyFrom(ctx, table, columns, rows)
}

func (l lent) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	return l.c.SendBatch(ctx, b)
}

func (l lent) Prepare(ctx context.Context, name, text string) (*pgconn.StatementDescription, error) {
	return l.c.Prepare(ctx, name, text)
}

func (l lent) Exec(ctx context.Context, text string, args ...any) (pgconn.CommandTag, error) {
	return l.c.Exec(ctx, text, args...)
}

func (l lent) Query(ctx context.Context, text string, args ...any) (pgx.Rows, error) {
	return l.c.Query(ctx, text, args...)
}

func (l lent) QueryRow(ctx context.Context, text string, args ...any) pgx.Row {
	return l.c.QueryRow(ctx, text, args...)
}
