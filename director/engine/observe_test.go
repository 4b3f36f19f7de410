package engine_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director/engine"
	"github.com/director-kaas/kaas/director/plan"
)

// told is an observer that remembers.
type told struct {
	mu    sync.Mutex
	what  []string
	tooks []time.Duration
	lost  int
}

func (o *told) StepStarted(kind string) { o.note("start " + kind) }

func (o *told) StepEnded(kind string, outcome plan.EventKind, took time.Duration) {
	o.mu.Lock()
	o.tooks = append(o.tooks, took)
	o.mu.Unlock()
	o.note(string(outcome) + " " + kind)
}

func (o *told) LeaseLost() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.lost++
}

func (o *told) note(s string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.what = append(o.what, s)
}

// Every attempt is told of when it begins and with its outcome when it ends, also those that fail and are made again.
func TestObserverIsToldOfEveryAttempt(t *testing.T) {
	both(t, func(t *testing.T, open func(t *testing.T) adapted) {
		s, o, tries := open(t), &told{}, 0
		e := startInstance(t, s, engine.Config{Observer: o, Lease: 2 * time.Second, Handlers: map[string]plan.Handler{
			"good": plan.HandlerFunc(func(context.Context, plan.Run) error { return nil }),
			"late": plan.HandlerFunc(func(context.Context, plan.Run) error {
				if tries++; tries == 1 { // one attempt at a time
					return plan.After(time.Millisecond, "not yet")
				}
				return nil
			}),
			"bad": plan.HandlerFunc(func(context.Context, plan.Run) error { return plan.Abort(errors.New("no")) }),
		}})
		c := plan.Content{Operation: plan.ClusterCreate, Cluster: "c", Steps: []plan.Step{
			{ID: "a", Kind: "good", Attempts: 1},
			{ID: "b", Kind: "late", Needs: []string{"a"}, Attempts: 1},
			{ID: "c", Kind: "bad", Needs: []string{"b"}, Attempts: 1},
		}}
		addPlan(t, s, plan.Plan{ID: "p", CreatedAt: time.Unix(1, 0), CreatedBy: "t", Hash: plan.HashOf(c), Content: c})
		if err := e.Begin(t.Context(), "p", "t", nil); err != nil {
			t.Fatal(err)
		}
		await(t, e, s, "p", ended)
		o.mu.Lock()
		defer o.mu.Unlock()
		want := []string{
			"start good", "succeeded good", "start late", "not_ready late", "start late", "succeeded late", "start bad",
			"aborted bad",
		}
		slices.Sort(want)
		// the end of one step and the beginning of the next are told by two workers
		got := slices.Sorted(slices.Values(o.what))
		if diff := cmp.Diff(want, got); diff != "" {
			t.Error(diff)
		}
		for _, took := range o.tooks {
			if took < 0 || took > time.Minute {
				t.Errorf("an attempt took %s", took)
			}
		}
		if o.lost != 0 {
			t.Errorf("%d leases lost", o.lost)
		}
	})
}
