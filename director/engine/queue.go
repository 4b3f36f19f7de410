package engine

import (
	"context"
	"database/sql"
	"log/slog"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/riverqueue/river/riverdriver/riversqlite"
	"github.com/riverqueue/river/rivermigrate"

	"github.com/director-kaas/kaas/director"
)

// queue is River on one of the databases. What is inserted is there when the transaction commits.
type queue interface {
	insert(ctx context.Context, tx Tx, jobs []river.InsertManyParams) error
	JobList(ctx context.Context, params *river.JobListParams) (*river.JobListResult, error)
	Start(ctx context.Context) error
	Stop(ctx context.Context) error
}

// on is River's client for transactions of type T.
type on[T any] struct {
	*river.Client[T]
	lend func(tx Tx, fn func(T) error) error
}

func (q on[T]) insert(ctx context.Context, tx Tx, jobs []river.InsertManyParams) error {
	return q.lend(tx, func(t T) error {
		_, err := q.InsertManyFastTx(ctx, t, jobs)
		return err
	})
}

// openQueue brings the queue's tables up to date and returns a queue that does not run yet.
func openQueue(ctx context.Context, cfg Config, w *worker) (queue, error) {
	if pool := cfg.Store.Pool(); pool != nil {
		driver := riverpgxv5.New(pool)
		err := alone(ctx, pool, func() error { return migrateQueue(ctx, driver) })
		if err != nil {
			return nil, noTables(err)
		}
		// The database tells of new jobs. It may leave out one of many notices that come at once, so there is a poll,
		// too.
		client, err := newClient(cfg, w, driver, 100*time.Millisecond)
		return on[pgx.Tx]{client, func(tx Tx, fn func(pgx.Tx) error) error { return tx.Pgx(fn) }}, err
	}
	driver := riversqlite.New(cfg.Store.SQL())
	if err := migrateQueue(ctx, driver); err != nil {
		return nil, noTables(err)
	}
	// The engine's own news tell River of new jobs; the poll is for what was queued before the start.
	client, err := newClient(cfg, w, notified{driver, w.signal}, time.Second)
	return on[*sql.Tx]{client, func(tx Tx, fn func(*sql.Tx) error) error { return fn(tx.SQL()) }}, err
}

func noTables(err error) error {
	return &director.Error{
		Kind: director.KindUnavailable, Op: "engine.open", Msg: "the queue's tables cannot be made",
		Hint: "check the database's space and permissions, then start the director again", Err: err,
	}
}

func migrateQueue[T any](ctx context.Context, driver riverdriver.Driver[T]) error {
	migrator, err := rivermigrate.New(driver, &rivermigrate.Config{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return err
	}
	_, err = migrator.Migrate(ctx, rivermigrate.DirectionUp, nil)
	return err
}

// lockQueue is the key of the advisory lock under which one director at a time makes the queue's tables.
const lockQueue int64 = 0x6b616173_00010001

func alone(ctx context.Context, pool *pgxpool.Pool, fn func() error) error {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	defer conn.Release()
	if _, err := conn.Exec(ctx, "SELECT pg_advisory_lock($1)", lockQueue); err != nil {
		return err
	}
	err = fn()
	if _, uerr := conn.Exec(context.WithoutCancel(ctx), "SELECT pg_advisory_unlock($1)", lockQueue); err == nil {
		err = uerr
	}
	return err
}

func newClient[T any](
	cfg Config, w *worker, driver riverdriver.Driver[T], poll time.Duration,
) (*river.Client[T], error) {
	var reindex river.PeriodicSchedule // River's own: it keeps the indexes of PostgreSQL from growing
	if driver.DatabaseName() == riverdriver.DatabaseNameSQLite {
		reindex = river.NeverSchedule() // River looks for indexes that its tables do not have there, and warns daily
	}
	workers := river.NewWorkers()
	err := river.AddWorkerSafely(workers, w)
	var client *river.Client[T]
	if err == nil {
		client, err = river.NewClient(driver, &river.Config{
			Queues:            map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: cfg.Workers}},
			Workers:           workers,
			FetchCooldown:     20 * time.Millisecond,
			FetchPollInterval: poll,
			ReindexerSchedule: reindex,
			JobTimeout:        -1, // steps carry their own
			MaxAttempts:       1,  // the journal counts attempts
			Logger:            slog.New(levelHandler{cfg.Log.Handler(), slog.LevelWarn}),
			// A job's row is of no use once it ran: the journal has it all.
			CompletedJobRetentionPeriod: time.Minute, CancelledJobRetentionPeriod: time.Minute,
			DiscardedJobRetentionPeriod: time.Minute,
		})
	}
	if err != nil {
		return nil, &director.Error{
			Kind: director.KindInternal, Op: "engine.open", Msg: "the queue cannot be set up", Err: err,
		}
	}
	return client, nil
}
