package engine_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/engine"
	"github.com/director-kaas/kaas/director/plan"
)

// outage is what happens to the transactions on one plan: from one of them on they fail for a while.
type outage struct {
	from  int  // number of the transaction that it begins with
	after bool // the transactions are committed, and only the answer is lost

	seen  int
	until time.Time
}

// flaky is a store that has an outage for each plan. The queue's own statements get through: an invitation is handed
// out and cannot be followed.
type flaky struct {
	adapted
	long time.Duration // of each outage

	mu      sync.Mutex
	outages map[string]*outage
}

var errOutage = errors.New("the database does not answer")

// hit counts a transaction on the plan, and says how it is to fail.
func (f *flaky) hit(id string) (before, after bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	o := f.outages[id]
	if o == nil {
		return false, false
	}
	if o.seen++; o.seen == o.from {
		o.until = time.Now().Add(f.long)
	}
	down := time.Now().Before(o.until)
	return down && !o.after, down && o.after
}

func (f *flaky) Update(ctx context.Context, fn func(engine.Tx) error) error {
	lost := false
	err := f.adapted.Update(ctx, func(tx engine.Tx) error { return fn(flakyTx{tx, f, &lost}) })
	if err == nil && lost {
		return errOutage
	}
	return err
}

type flakyTx struct {
	engine.Tx
	f    *flaky
	lost *bool
}

func (t flakyTx) Plan(id string) (plan.Plan, plan.State, error) {
	before, after := t.f.hit(id)
	*t.lost = *t.lost || after
	if before {
		return plan.Plan{}, plan.State{}, errOutage
	}
	return t.Tx.Plan(id)
}

// Whatever transaction an outage begins with, and whatever it hits - a claim, the wake after it, an outcome - the plan
// comes to its end without a restart.
func TestOutageAtAnyPointLosesNoStep(t *testing.T) {
	both(t, func(t *testing.T, open func(t *testing.T) adapted) {
		const points = 20
		s := &flaky{adapted: open(t), long: 1500 * time.Millisecond, outages: map[string]*outage{}}
		var mu sync.Mutex
		asked := map[string]bool{}
		e, err := engine.New(t.Context(), engine.Config{
			Director: s.DirectorID(), Instance: "one", Store: s, Lease: 800 * time.Millisecond, Log: quiet,
			Budget: func(string) int { return 10 },
			Handlers: work(func(_ context.Context, r plan.Run) error {
				mu.Lock()
				defer mu.Unlock()
				if first := !asked[r.Plan.ID]; first && r.Step.ID == "vm/a" {
					asked[r.Plan.ID] = true
					return plan.After(10*time.Millisecond, "not yet") // a step that waits for its time
				}
				return nil
			}),
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := e.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := e.Stop(context.Background()); err != nil {
				t.Error(err)
			}
		})
		var ids []string
		for from := range points {
			for name, after := range map[string]bool{"before": false, "after": true} {
				p := demo(fmt.Sprintf("%s-%02d", name, from+2)) // the first one begins the plan
				p.Steps[3].Budgets = []string{"some"}
				addPlan(t, s.adapted, p)
				s.mu.Lock()
				s.outages[p.ID] = &outage{from: from + 2, after: after}
				s.mu.Unlock()
				if err := e.Begin(t.Context(), p.ID, "admin", nil); err != nil {
					t.Fatal(err)
				}
				ids = append(ids, p.ID)
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		hits := 0
		for _, id := range ids {
			var got plan.State
			ended := eventually(ctx, func() bool {
				_, st, err := s.Plan(ctx, id)
				if err == nil {
					got = st
				}
				return got.Status == plan.StatusDone
			})
			if !ended {
				t.Errorf("an outage %s: the plan stays %s: %+v", id, got.Status, got.Steps)
			}
			s.mu.Lock()
			if !s.outages[id].until.IsZero() {
				hits++
			}
			s.mu.Unlock()
		}
		if hits < points {
			t.Errorf("only %d of %d plans had their outage", hits, len(ids))
		}
	})
}
