package engine_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/engine"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/store/storetest"
)

func work(fn plan.HandlerFunc) map[string]plan.Handler { return map[string]plan.Handler{"work": fn} }

// Two engines with one worker each on one PostgreSQL: two steps that need each other to run at the same time can only
// end if both work. The journal says which ran what.
func TestTwoEnginesShareWork(t *testing.T) {
	t.Parallel()
	address := storetest.Postgres(t)
	meet := make(chan struct{})
	handler := work(func(ctx context.Context, _ plan.Run) error {
		select {
		case meet <- struct{}{}:
		case <-meet:
		case <-ctx.Done():
		}
		return ctx.Err()
	})
	s := openPostgres(t, address)
	e := startInstance(t, s, engine.Config{Instance: "one", Handlers: handler, Workers: 1})
	startInstance(t, openPostgres(t, address), engine.Config{Instance: "two", Handlers: handler, Workers: 1})
	p := demo("p1")
	p.Steps = []plan.Step{{ID: "a", Kind: "work", Attempts: 1}, {ID: "b", Kind: "work", Attempts: 1}}
	addPlan(t, s, p)
	if err := e.Begin(t.Context(), "p1", "admin", nil); err != nil {
		t.Fatal(err)
	}
	if got := await(t, e, s, "p1", ended); got.Status != plan.StatusDone {
		t.Fatalf("status = %s: %s", got.Status, got.Message)
	}
	events, err := s.Events(t.Context(), "p1", 0, 100)
	if err != nil {
		t.Fatal(err)
	}
	by := map[string]bool{}
	for _, ev := range events {
		if ev.Kind == plan.Started {
			by[ev.By] = true
		}
	}
	if !by["one"] || !by["two"] {
		t.Errorf("the steps were run by %v", by)
	}
}

// A person cancels on one engine what runs on another. The lease is long: it is the notice that ends the step, not the
// next renewal.
func TestCancelNowReachesAPeer(t *testing.T) {
	t.Parallel()
	address := storetest.Postgres(t)
	s := openPostgres(t, address)
	asked, err := engine.New(t.Context(), engine.Config{
		Director: s.DirectorID(), Instance: "asked", Store: s, Log: quiet,
	})
	if err != nil { // it is not started, so that it runs nothing itself
		t.Fatal(err)
	}
	entered := make(chan struct{})
	cause := make(chan error, 1)
	e := startInstance(t, openPostgres(
		t, address,
	), engine.Config{Instance: "runs", Lease: 4 * time.Minute, Handlers: work(
		func(ctx context.Context, _ plan.Run) error {
			close(entered)
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return ctx.Err()
		})})
	addPlan(t, s, demo("p1"))
	if err := asked.Begin(t.Context(), "p1", "admin", nil); err != nil {
		t.Fatal(err)
	}
	<-entered
	if err := asked.Cancel(t.Context(), "p1", "admin", true); err != nil {
		t.Fatal(err)
	}
	if got := await(t, e, s, "p1", ended); got.Status != plan.StatusCancelled ||
		got.Step("net").Status != plan.Waiting {
		t.Errorf("got %+v", got)
	}
	if err := <-cause; err == nil || err.Error() != "cancelled by a person" {
		t.Errorf("cause = %v", err)
	}
}

// What a dead engine left is taken over: a running step, a waiting one, and one that was taken from the queue and never
// begun.
func TestPeerTakesOver(t *testing.T) {
	t.Parallel()
	address := storetest.Postgres(t)
	s, w := openPostgres(t, address), newWorld()
	p := demo("p1")
	p.Steps = []plan.Step{
		{ID: "ran", Kind: "work", Attempts: 3},
		{ID: "waited", Kind: "work", Attempts: 3},
		{ID: "queued", Kind: "work", Attempts: 3},
	}
	addPlan(t, s, p)
	now := time.Now()
	e := startInstance(t, s, engine.Config{Instance: "alive", Handlers: w.handler(), Lease: time.Second})
	// All of this comes from an engine that dies as soon as it is written.
	err := s.Store.Update(t.Context(), func(tx *store.Tx) error {
		st := plan.NewState(&p)
		return errors.Join(
			tx.Append(&st, plan.Event{Plan: "p1", Kind: plan.PlanStarted, At: now}),
			tx.Append(&st, plan.Event{Plan: "p1", Step: "ran", Kind: plan.Started, Attempt: 1, At: now}),
			tx.Lease("p1", "ran", "dead/1", now.Add(time.Second)),
			tx.Append(&st, plan.Event{Plan: "p1", Step: "waited", Kind: plan.Started, Attempt: 1, At: now}),
			tx.Append(&st, plan.Event{
				Plan: "p1", Step: "waited", Kind: plan.NotReady, Attempt: 1, At: now, NotBefore: now.Add(time.Second),
			}),
		)
	})
	if err := errors.Join(err, s.Beat(t.Context(), "dead", "elsewhere", now, now)); err != nil {
		t.Fatal(err)
	}
	got := await(t, e, s, "p1", ended)
	if got.Status != plan.StatusDone || got.Step("ran").Attempt != 2 || got.Step("waited").Attempt != 2 ||
		got.Step("queued").Attempt != 1 {
		t.Errorf("got %+v", got)
	}
	checkJournal(t, s, p, got)
}

// An engine whose database went away ends its handlers before a peer could take their steps, and continues when it is
// back.
func TestLostDatabaseEndsHandlers(t *testing.T) {
	t.Parallel()
	server := storetest.New(t)
	s := openPostgres(t, server.Database(t))
	entered, cause := make(chan struct{}, 1), make(chan error, 1)
	e := startInstance(t, s, engine.Config{Instance: "one", Lease: 2 * time.Second, Handlers: work(func(
		ctx context.Context, r plan.Run,
	) error {
		if r.Attempt > 1 || r.Step.ID != "net" {
			return nil
		}
		entered <- struct{}{}
		<-ctx.Done()
		cause <- context.Cause(ctx)
		return ctx.Err()
	})})
	addPlan(t, s, demo("p1"))
	if err := e.Begin(t.Context(), "p1", "admin", nil); err != nil {
		t.Fatal(err)
	}
	<-entered
	if err := server.Crash(); err != nil {
		t.Fatal(err)
	}
	if err := <-cause; err == nil || err.Error() != "the lease was lost" {
		t.Errorf("cause = %v", err)
	}
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if !eventually(ctx, func() bool {
		_, st, err := s.Plan(ctx, "p1")
		return err == nil && st.Status == plan.StatusDone
	}) {
		_, st, err := s.Plan(t.Context(), "p1")
		t.Errorf("the plan does not continue: %+v %v", st, err)
	}
}

// eventually polls cond until it holds, and says whether it did before ctx was done.
func eventually(ctx context.Context, cond func() bool) bool {
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !cond() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			return false
		}
	}
	return true
}

// An invitation that comes twice, and at the same time, runs its step once, and the engine does not lose track of it.
func TestDoubledInvitation(t *testing.T) {
	both(t, func(t *testing.T, open func(t *testing.T) adapted) {
		s := open(t)
		runs, release := make(chan int, 10), make(chan struct{})
		cfg := engine.Config{Instance: "one", Lease: 2 * time.Second, Handlers: work(func(
			ctx context.Context, r plan.Run,
		) error {
			runs <- r.Attempt
			select {
			case <-release:
			case <-ctx.Done():
			}
			return ctx.Err()
		})}
		p := demo("p1")
		p.Steps = p.Steps[:1]
		addPlan(t, s, p)
		// An engine that is not started begins the plan; the one that starts queues the same step again.
		idle, err := engine.New(t.Context(), engine.Config{
			Director: s.DirectorID(), Instance: "idle", Store: s, Log: quiet,
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := idle.Begin(t.Context(), "p1", "admin", nil); err != nil {
			t.Fatal(err)
		}
		e := startInstance(t, s, cfg)
		<-runs
		ctx, cancel := context.WithTimeout(t.Context(), 1500*time.Millisecond) // several renewals
		defer cancel()
		if eventually(ctx, func() bool { return len(runs) > 0 }) {
			t.Errorf("attempt %d ran beside the first", <-runs)
		}
		close(release)
		if got := await(t, e, s, "p1", ended); got.Status != plan.StatusDone || got.Step("net").Attempt != 1 {
			t.Errorf("got %+v", got)
		}
	})
}
