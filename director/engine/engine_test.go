package engine_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/director-kaas/kaas/director/engine"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/store/storetest"
)

type tests struct{ *testing.M }

func (t tests) Run() int { return storetest.Main(t.M) }

func TestMain(m *testing.M) {
	if instance := os.Getenv("KAAS_TEST_INSTANCE"); instance != "" {
		os.Exit(beDirector(instance))
	}
	goleak.VerifyTestMain(tests{m})
}

// adapted is the real store as the engine wants it.
type adapted struct{ *store.Store }

func (a adapted) Update(ctx context.Context, fn func(engine.Tx) error) error {
	return a.Store.Update(ctx, func(tx *store.Tx) error { return fn(tx) })
}

func (a adapted) Active(ctx context.Context) ([]string, error) {
	return a.Plans(ctx, store.PlanFilter{Statuses: plan.Driven()})
}

// world is what handlers act on: how often each step did its work to the end.
type world struct {
	mu      sync.Mutex
	made    map[string]int
	running map[string]bool
	twice   bool // a step ran beside itself
}

func newWorld() *world { return &world{made: map[string]int{}, running: map[string]bool{}} }

func (w *world) enter(step string) func() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.twice = w.twice || w.running[step]
	w.running[step] = true
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.made[step]++
		w.running[step] = false
	}
}

// both runs the test on SQLite and on PostgreSQL. open makes a new empty database at each call.
func both(t *testing.T, test func(t *testing.T, open func(t *testing.T) adapted)) {
	t.Helper()
	t.Parallel()
	t.Run("sqlite", func(t *testing.T) {
		t.Parallel()
		test(t, func(t *testing.T) adapted { return openStore(t, filepath.Join(t.TempDir(), "db")) })
	})
	t.Run("postgres", func(t *testing.T) {
		t.Parallel()
		storetest.Shared(t) // or the test is skipped as a whole
		test(t, func(t *testing.T) adapted { return openPostgres(t, storetest.Postgres(t)) })
	})
}

func openStore(t *testing.T, path string) adapted {
	t.Helper()
	s, err := store.Open(t.Context(), path, slog.New(slog.DiscardHandler))
	return keepStore(t, s, err)
}

func openPostgres(t *testing.T, address string) adapted {
	t.Helper()
	s, err := store.OpenPostgres(t.Context(), store.Postgres{URL: address}, slog.New(slog.DiscardHandler))
	return keepStore(t, s, err)
}

func keepStore(t *testing.T, s *store.Store, err error) adapted {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return adapted{s}
}

func startEngine(t *testing.T, s adapted, handlers map[string]plan.Handler) *engine.Engine {
	t.Helper()
	return startInstance(t, s, engine.Config{Handlers: handlers, Lease: 2 * time.Second})
}

// startInstance starts an engine on the store, with the rest of the configuration as given.
func startInstance(t *testing.T, s adapted, cfg engine.Config) *engine.Engine {
	t.Helper()
	cfg.Director, cfg.Store, cfg.Channel = s.DirectorID(), s, store.Channel
	cfg.Log = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	e, err := engine.New(t.Context(), cfg)
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
	return e
}

func demo(id string) plan.Plan {
	c := plan.Content{Operation: plan.ClusterCreate, Cluster: "c-" + id, Steps: []plan.Step{
		{ID: "net", Kind: "work", Attempts: 3},
		{ID: "vm/a", Kind: "work", Needs: []string{"net"}, Attempts: 3},
		{ID: "vm/b", Kind: "work", Needs: []string{"net"}, Attempts: 3},
		{ID: "join", Kind: "work", Needs: []string{"vm/a", "vm/b"}, Attempts: 3},
	}}
	return plan.Plan{ID: id, CreatedAt: time.Unix(1, 0), CreatedBy: "t", Hash: plan.HashOf(c), Content: c}
}

func addPlan(t *testing.T, s adapted, p plan.Plan) {
	t.Helper()
	if err := s.Store.Update(t.Context(), func(tx *store.Tx) error { return tx.AddPlan(p) }); err != nil {
		t.Fatal(err)
	}
}

// await follows the plan until cond holds.
func await(t *testing.T, e *engine.Engine, s adapted, id string, cond func(plan.State) bool) plan.State {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	for {
		changed := e.Changed()
		_, st, err := s.Plan(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if cond(st) {
			return st
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("plan %s stays %+v", id, st)
		}
	}
}

func ended(s plan.State) bool { return s.Status.Ended() }

func (w *world) handler() map[string]plan.Handler {
	return map[string]plan.Handler{"work": plan.HandlerFunc(func(_ context.Context, r plan.Run) error {
		w.enter(r.Plan.ID + " " + r.Step.ID)()
		return nil
	})}
}

func TestPlanRunsToItsEnd(t *testing.T) {
	both(t, func(t *testing.T, open func(t *testing.T) adapted) {
		s, w := open(t), newWorld()
		e := startEngine(t, s, w.handler())
		addPlan(t, s, demo("p1"))
		if err := e.Begin(t.Context(), "p1", "admin", nil); err != nil {
			t.Fatal(err)
		}
		got := await(t, e, s, "p1", ended)
		if got.Status != plan.StatusDone {
			t.Fatalf("status = %s: %s", got.Status, got.Message)
		}
		want := map[string]int{"p1 net": 1, "p1 vm/a": 1, "p1 vm/b": 1, "p1 join": 1}
		if diff := cmp.Diff(want, w.made); diff != "" {
			t.Error(diff)
		}
		checkJournal(t, s, demo("p1"), got)
	})
}

// checkJournal proves that the stored state is the fold of the journal.
func checkJournal(t *testing.T, s adapted, p plan.Plan, got plan.State) {
	t.Helper()
	events, err := s.Events(t.Context(), p.ID, 0, 10000)
	if err != nil {
		t.Fatal(err)
	}
	folded, err := plan.Fold(&p, events)
	if err != nil {
		t.Fatal(err)
	}
	trunc := cmp.Transformer("micros", func(t time.Time) int64 {
		if t.IsZero() {
			return 0
		}
		return t.UnixMicro()
	})
	if diff := cmp.Diff(folded, got, trunc); diff != "" {
		t.Errorf("state is not the fold of the journal (-fold +state):\n%s", diff)
	}
}

// The journal is cut after every event, as a crash would, and a fresh engine continues: same end, no finished step
// repeated, no step beside itself.
func TestResumeAfterEveryEvent(t *testing.T) {
	both(t, func(t *testing.T, open func(t *testing.T) adapted) {
		full := open(t)
		e := startEngine(t, full, newWorld().handler())
		addPlan(t, full, demo("p1"))
		if err := e.Begin(t.Context(), "p1", "admin", nil); err != nil {
			t.Fatal(err)
		}
		await(t, e, full, "p1", ended)
		events, err := full.Events(t.Context(), "p1", 0, 1000)
		if err != nil {
			t.Fatal(err)
		}
		for k := 1; k < len(events); k++ {
			t.Run(fmt.Sprintf("cut_after_%02d", k), func(t *testing.T) {
				t.Parallel()
				s, w := open(t), newWorld()
				p := demo("p1")
				addPlan(t, s, p)
				doneBefore := map[string]bool{}
				err := s.Store.Update(t.Context(), func(tx *store.Tx) error {
					state := plan.NewState(&p)
					for _, ev := range events[:k] {
						if err := tx.Append(&state, ev); err != nil {
							return err
						}
						if ev.Kind == plan.Started {
							if err := tx.Lease(
								"p1", ev.Step, s.DirectorID()+"/dead", time.Now().Add(time.Hour),
							); err != nil {
								return err
							}
						}
						doneBefore[ev.Step] = doneBefore[ev.Step] || ev.Kind == plan.Succeeded
					}
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
				e := startEngine(t, s, w.handler())
				got := await(t, e, s, "p1", ended)
				if got.Status != plan.StatusDone {
					t.Fatalf("status = %s: %s", got.Status, got.Message)
				}
				for _, step := range p.Steps {
					want := 1
					if doneBefore[step.ID] {
						want = 0
					}
					if n := w.made["p1 "+step.ID]; n != want {
						t.Errorf("%s ran %d times after the cut, want %d", step.ID, n, want)
					}
				}
				if w.twice {
					t.Error("a step ran beside itself")
				}
				checkJournal(t, s, p, got)
			})
		}
	})
}

func TestOutcomes(t *testing.T) {
	both(t, func(t *testing.T, open func(t *testing.T) adapted) {
		boom := errors.New("boom")
		tests := map[string]struct {
			errs       []error // by attempt; nil after the last
			wantStatus plan.Status
			wantRuns   int
		}{
			"retry then done":     {[]error{boom}, plan.StatusDone, 2},
			"abort fails at once": {[]error{plan.Abort(boom)}, plan.StatusFailed, 1},
			"park waits":          {[]error{plan.Park(boom, "what now?")}, plan.StatusParked, 1},
			"after costs nothing": {
				[]error{plan.After(0, "wait"), plan.After(0, "wait"), plan.After(0, "wait"), plan.After(0, "wait")},
				plan.StatusDone, 5,
			},
			"out of reach, then back": {[]error{plan.ParkLast(boom, "is it off?")}, plan.StatusDone, 2},
			"out of reach for long": {
				[]error{plan.ParkLast(boom, "is it off?"), plan.ParkLast(boom, "is it off?")}, plan.StatusParked, 2,
			},
			"attempts are used up": {[]error{boom, boom}, plan.StatusFailed, 2},
		}
		for name, tt := range tests {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				s := open(t)
				var mu sync.Mutex
				runs := 0
				e := startEngine(t, s, map[string]plan.Handler{"work": plan.HandlerFunc(func(
					context.Context, plan.Run,
				) error {
					mu.Lock()
					defer mu.Unlock()
					runs++
					if runs <= len(tt.errs) {
						return tt.errs[runs-1]
					}
					return nil
				})})
				p := demo("p1")
				p.Steps = []plan.Step{{ID: "one", Kind: "work", Attempts: 2}}
				addPlan(t, s, p)
				if err := e.Begin(t.Context(), "p1", "admin", nil); err != nil {
					t.Fatal(err)
				}
				got := await(t, e, s, "p1", func(s plan.State) bool {
					return s.Status.Ended() || s.Status == plan.StatusParked
				})
				mu.Lock()
				defer mu.Unlock()
				if got.Status != tt.wantStatus || runs != tt.wantRuns {
					t.Errorf(
						"status %s after %d runs, want %s after %d; %s", got.Status, runs, tt.wantStatus, tt.wantRuns,
						got.Message,
					)
				}
				checkJournal(t, s, p, got)
			})
		}
	})
}

func TestRetryRunsOnlyWhatFailed(t *testing.T) {
	both(t, func(t *testing.T, open func(t *testing.T) adapted) {
		s, w := open(t), newWorld()
		fail := true
		var mu sync.Mutex
		e := startEngine(t, s, map[string]plan.Handler{"work": plan.HandlerFunc(func(
			_ context.Context, r plan.Run,
		) error {
			mu.Lock()
			defer mu.Unlock()
			if r.Step.ID == "vm/b" && fail {
				return plan.Abort(errors.New("no space"))
			}
			w.enter(r.Step.ID)()
			return nil
		})})
		addPlan(t, s, demo("p1"))
		if err := e.Begin(t.Context(), "p1", "admin", nil); err != nil {
			t.Fatal(err)
		}
		if got := await(t, e, s, "p1", ended); got.Status != plan.StatusFailed || got.Message != "vm/b: no space" {
			t.Fatalf("got %s %q", got.Status, got.Message)
		}
		mu.Lock()
		fail = false
		mu.Unlock()
		if err := e.Retry(t.Context(), "p1", "", "admin"); err != nil {
			t.Fatal(err)
		}
		got := await(t, e, s, "p1", ended)
		want := map[string]int{"net": 1, "vm/a": 1, "vm/b": 1, "join": 1}
		if diff := cmp.Diff(want, w.made); diff != "" || got.Status != plan.StatusDone {
			t.Errorf("%s\n%s", got.Status, diff)
		}
	})
}

func TestCancelNowInterruptsAndResumes(t *testing.T) {
	both(t, func(t *testing.T, open func(t *testing.T) adapted) {
		s := open(t)
		entered := make(chan struct{}, 10)
		release := make(chan struct{})
		e := startEngine(t, s, map[string]plan.Handler{"work": plan.HandlerFunc(func(
			ctx context.Context, _ plan.Run,
		) error {
			entered <- struct{}{}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-release:
				return nil
			}
		})})
		addPlan(t, s, demo("p1"))
		if err := e.Begin(t.Context(), "p1", "admin", nil); err != nil {
			t.Fatal(err)
		}
		<-entered
		if err := e.Cancel(t.Context(), "p1", "admin", true); err != nil {
			t.Fatal(err)
		}
		if got := await(
			t, e, s, "p1", ended,
		); got.Status != plan.StatusCancelled || got.Step("net").Status != plan.Waiting {
			t.Fatalf("got %+v", got)
		}
		close(release)
		if err := e.Retry(t.Context(), "p1", "", "admin"); err != nil {
			t.Fatal(err)
		}
		if got := await(t, e, s, "p1", ended); got.Status != plan.StatusDone {
			t.Fatalf("got %+v", got)
		}
	})
}

func TestOnePlanHoldsACluster(t *testing.T) {
	both(t, func(t *testing.T, open func(t *testing.T) adapted) {
		s := open(t)
		block := make(chan struct{})
		e := startEngine(t, s, map[string]plan.Handler{"work": plan.HandlerFunc(func(
			ctx context.Context, _ plan.Run,
		) error {
			select {
			case <-block:
			case <-ctx.Done():
			}
			return ctx.Err()
		})})
		p1, p2 := demo("p1"), demo("p2")
		p2.Cluster = p1.Cluster
		addPlan(t, s, p1)
		addPlan(t, s, p2)
		if err := e.Begin(t.Context(), "p1", "admin", nil); err != nil {
			t.Fatal(err)
		}
		if err := e.Begin(t.Context(), "p2", "admin", nil); err == nil {
			t.Error("a second plan started on a cluster that is held")
		}
		close(block)
		await(t, e, s, "p1", ended)
		if err := e.Begin(t.Context(), "p2", "admin", nil); err != nil {
			t.Errorf("the cluster is not free after the end: %v", err)
		}
		await(t, e, s, "p2", ended)
	})
}

func TestUnknownStepKindParks(t *testing.T) {
	both(t, func(t *testing.T, open func(t *testing.T) adapted) {
		s := open(t)
		e := startEngine(t, s, nil)
		addPlan(t, s, demo("p1"))
		if err := e.Begin(t.Context(), "p1", "admin", nil); err != nil {
			t.Fatal(err)
		}
		await(t, e, s, "p1", func(s plan.State) bool { return s.Status == plan.StatusParked })
	})
}
