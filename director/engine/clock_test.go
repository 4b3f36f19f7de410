package engine_test

import (
	"context"
	"errors"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/engine"
	"github.com/director-kaas/kaas/director/plan"
)

// The machine's clock jumps by hours while a plan runs, steps wait and leases are held. The plan comes to its end, no
// step runs beside itself and none that was done runs again.
func TestClockJumps(t *testing.T) {
	t.Parallel()
	for name, jump := range map[string]time.Duration{"forward": 3 * time.Hour, "backward": -3 * time.Hour} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, w := openStore(t, filepath.Join(t.TempDir(), "db")), newWorld()
			var offset, runs atomic.Int64
			handler := plan.HandlerFunc(func(ctx context.Context, r plan.Run) error {
				leave := w.enter(r.Step.ID)
				if r.Step.ID == "vm/a" && runs.Add(1) == 1 {
					offset.Store(int64(jump)) // while this step holds a lease
					timer := time.NewTimer(time.Second)
					defer timer.Stop()
					select {
					case <-timer.C:
					case <-ctx.Done():
					}
					leave()
					return errors.New("and then it failed")
				}
				leave()
				return nil
			})
			e, err := engine.New(t.Context(), engine.Config{
				Director: s.DirectorID(), Store: s, Handlers: map[string]plan.Handler{
					"work": handler,
				}, Lease: time.Second,
				Now: func() time.Time { return time.Now().Add(time.Duration(offset.Load())) },
				Log: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := e.Start(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { _ = e.Stop(context.Background()) })
			addPlan(t, s, demo("p1"))
			if err := e.Begin(t.Context(), "p1", "admin", nil); err != nil {
				t.Fatal(err)
			}
			got := await(t, e, s, "p1", ended)
			if got.Status != plan.StatusDone {
				t.Fatalf("the plan is %s: %s", got.Status, got.Message)
			}
			if w.twice {
				t.Error("a step ran beside itself")
			}
			for _, step := range []string{"net", "vm/b", "join"} {
				if w.made[step] != 1 {
					t.Errorf("%s ran %d times", step, w.made[step])
				}
			}
			checkJournal(t, s, demo("p1"), got)
		})
	}
}
