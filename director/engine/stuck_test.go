package engine

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"

	"github.com/director-kaas/kaas/director/plan"
)

// stuckQueue never stops by itself.
type stuckQueue struct{ queue }

func (stuckQueue) Stop(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestAStuckQueueIsLeft(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ref := plan.StepRef{Plan: "p1", Step: "s1"}
		e := &Engine{
			queue: stuckQueue{}, running: map[plan.StepRef]context.CancelCauseFunc{ref: nil},
			cfg: Config{Log: slog.New(slog.DiscardHandler)},
		}
		began := time.Now()
		time.AfterFunc(time.Minute, func() { // a step takes that long to end
			e.mu.Lock()
			defer e.mu.Unlock()
			delete(e.running, ref)
		})
		if err := e.stopQueue(ctx); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took < time.Minute+queueStops-time.Second || took > time.Minute+2*queueStops {
			t.Errorf("left after %s", took)
		}
	})
}

func TestAQueueStopsInTime(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		e := &Engine{queue: stuckQueue{}, cfg: Config{Log: slog.New(slog.DiscardHandler)}}
		if err := e.stopQueue(ctx); err == nil {
			t.Error("the deadline of the caller is not obeyed")
		}
	})
}
