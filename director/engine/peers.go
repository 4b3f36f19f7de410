package engine

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// listen hears from peers on the same database until ctx is done: that a plan has moved, or that leases are to be
// looked at now. What it misses while the connection is down is found at the next tick.
func (e *keeper) listen(ctx context.Context, pool *pgxpool.Pool) {
	for ctx.Err() == nil {
		if err := e.hear(ctx, pool); err != nil && ctx.Err() == nil {
			e.cfg.Log.WarnContext(ctx, "listening to other directors failed, will retry", "err", err)
		}
		pause := time.NewTimer(time.Second)
		select {
		case <-ctx.Done():
			pause.Stop()
		case <-pause.C:
		}
	}
}

func (e *keeper) hear(ctx context.Context, pool *pgxpool.Pool) error {
	pooled, err := pool.Acquire(ctx)
	if err != nil {
		return err
	}
	conn := pooled.Hijack() // it listens, so it must not go back to the pool
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	if _, err := conn.Exec(ctx, "LISTEN "+e.cfg.Channel); err != nil {
		return err
	}
	e.signal.send() // something may have moved before
	for {
		n, err := conn.WaitForNotification(ctx)
		if err != nil {
			return err
		}
		e.signal.send()
		if n.Payload != "" {
			e.lookNow()
		}
	}
}

// lookNow lets keep look at the leases without waiting for its next tick.
func (e *Engine) lookNow() {
	select {
	case e.look <- struct{}{}:
	default: // it will look anyway
	}
}
