package engine_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/engine"
	"github.com/director-kaas/kaas/director/plan"
)

// script is a handler that does what it is told for each step, and notes what it did.
type script struct {
	mu   sync.Mutex
	fail map[string]error // by step; undo: by "undo " and step
	hold map[string]chan struct{}
	did  []string
}

func (x *script) act(ctx context.Context, what string) error {
	x.mu.Lock()
	hold, err := x.hold[what], x.fail[what]
	x.mu.Unlock()
	if hold != nil {
		select {
		case <-hold:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	x.mu.Lock()
	defer x.mu.Unlock()
	if err == nil {
		x.did = append(x.did, what)
	}
	return err
}

func (x *script) mend(what string) {
	x.mu.Lock()
	defer x.mu.Unlock()
	delete(x.fail, what)
}

func (x *script) done() []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.Clone(x.did)
}

func (x *script) handlers() map[string]plan.Handler {
	run := func(ctx context.Context, r plan.Run) error { return x.act(ctx, r.Step.ID) }
	return map[string]plan.Handler{
		"work": plan.HandlerFunc(run),
		"vm": plan.Undoable{
			Do: run, TakeBack: func(ctx context.Context, r plan.Run) error { return x.act(ctx, "undo "+r.Step.ID) },
		},
	}
}

// linear is a plan of steps that run one after the other.
func linear(id string, steps ...plan.Step) plan.Plan {
	for i := range steps {
		if steps[i].Attempts = 2; i > 0 {
			steps[i].Needs = []string{steps[i-1].ID}
		}
	}
	c := plan.Content{Operation: plan.ClusterCreate, Cluster: "c-" + id, Steps: steps}
	return plan.Plan{ID: id, CreatedAt: time.Unix(1, 0), CreatedBy: "t", Hash: plan.HashOf(c), Content: c}
}

func begin(t *testing.T, open func(t *testing.T) adapted, x *script, p plan.Plan) (*engine.Engine, adapted) {
	t.Helper()
	s := open(t)
	e := startEngine(t, s, x.handlers())
	addPlan(t, s, p)
	if err := e.Begin(t.Context(), p.ID, "admin", nil); err != nil {
		t.Fatal(err)
	}
	return e, s
}

func inStatus(want ...plan.Status) func(plan.State) bool {
	return func(s plan.State) bool { return slices.Contains(want, s.Status) }
}

func TestPauseEndsWhatRunsAndStartsNothing(t *testing.T) {
	both(t, func(t *testing.T, open func(t *testing.T) adapted) {
		hold := make(chan struct{})
		x := &script{hold: map[string]chan struct{}{"a": hold}}
		e, s := begin(t, open, x, linear("p1", plan.Step{ID: "a", Kind: "work"}, plan.Step{ID: "b", Kind: "work"}))
		await(t, e, s, "p1", func(s plan.State) bool { return s.Step("a").Status == plan.Running })
		if err := e.Pause(t.Context(), "p1", "admin", "the rack moves"); err != nil {
			t.Fatal(err)
		}
		close(hold)
		got := await(t, e, s, "p1", func(s plan.State) bool { return s.Step("a").Status == plan.Done })
		if got.Status != plan.StatusPaused || got.Step("b").Status != plan.Pending || got.Message != "the rack moves" {
			t.Fatalf("got %+v", got)
		}
		if err := e.Begin(t.Context(), "p1", "admin", nil); director.KindOf(err) != director.KindConflict {
			t.Errorf("a paused plan was started: %v", err)
		}
		if err := e.Retry(t.Context(), "p1", "", "admin"); err != nil {
			t.Fatal(err)
		}
		if got := await(t, e, s, "p1", ended); got.Status != plan.StatusDone {
			t.Fatalf("got %+v", got)
		}
		if diff := cmp.Diff([]string{"a", "b"}, x.done()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestSkipGoesOnWithoutTheStep(t *testing.T) {
	both(t, func(t *testing.T, open func(t *testing.T) adapted) {
		x := &script{fail: map[string]error{"b": plan.Abort(errors.New("no"))}}
		p := linear("p1", plan.Step{
			ID: "a", Kind: "work",
		}, plan.Step{ID: "b", Kind: "work"}, plan.Step{ID: "c", Kind: "work"})
		e, s := begin(t, open, x, p)
		await(t, e, s, "p1", inStatus(plan.StatusFailed))
		if err := e.Skip(t.Context(), "p1", "a", "because", "admin"); director.KindOf(err) != director.KindConflict {
			t.Errorf("a step that is done was skipped: %v", err)
		}
		if err := e.Skip(t.Context(), "p1", "x", "because", "admin"); director.KindOf(err) != director.KindNotFound {
			t.Errorf("a step that is none was skipped: %v", err)
		}
		if err := e.Skip(t.Context(), "p1", "b", "not needed here", "admin"); err != nil {
			t.Fatal(err)
		}
		got := await(t, e, s, "p1", ended)
		if got.Status != plan.StatusDone || got.Step("b").Status != plan.Skipped ||
			got.Step("b").Message != "not needed here" {
			t.Fatalf("got %+v", got)
		}
		checkJournal(t, s, p, got)
		if diff := cmp.Diff([]string{"a", "c"}, x.done()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestUndoTakesBackWhatCanBe(t *testing.T) {
	both(t, func(t *testing.T, open func(t *testing.T) adapted) {
		x := &script{
			fail: map[string]error{"join": plan.Abort(errors.New("no")), "undo vm2": plan.Abort(errors.New("locked"))},
		}
		p := linear(
			"p1", plan.Step{ID: "vm1", Kind: "vm"}, plan.Step{ID: "boot", Kind: "work"},
			plan.Step{ID: "vm2", Kind: "vm"}, plan.Step{ID: "join", Kind: "work"},
		)
		e, s := begin(t, open, x, p)
		await(t, e, s, "p1", inStatus(plan.StatusFailed))
		if err := e.Undo(t.Context(), "p1", "admin"); err != nil {
			t.Fatal(err)
		}
		got := await(t, e, s, "p1", func(s plan.State) bool {
			return s.Step("vm2").Status == plan.Stuck && s.Status == plan.StatusFailed
		})
		if got.Message != "vm2: locked" || got.Step("vm1").Status != plan.UndoDue {
			t.Fatalf("got %+v", got)
		}
		x.mend("undo vm2")
		if err := e.Undo(t.Context(), "p1", "admin"); err != nil {
			t.Fatal(err)
		}
		got = await(t, e, s, "p1", ended)
		if got.Status != plan.StatusUndone || got.Step("boot").Status != plan.Done ||
			got.Step("vm1").Status != plan.Undone {
			t.Fatalf("got %+v", got)
		}
		checkJournal(t, s, p, got)
		if diff := cmp.Diff([]string{"vm1", "boot", "vm2", "undo vm2", "undo vm1"}, x.done()); diff != "" {
			t.Error(diff)
		}
	})
}

func TestAFailedStepIsTakenBackByItself(t *testing.T) {
	both(t, func(t *testing.T, open func(t *testing.T) adapted) {
		x := &script{fail: map[string]error{"vm1": plan.Abort(errors.New("no space"))}}
		p := linear("p1", plan.Step{ID: "vm1", Kind: "vm", UndoOnFailure: true}, plan.Step{ID: "b", Kind: "work"})
		e, s := begin(t, open, x, p)
		got := await(t, e, s, "p1", ended)
		if got.Status != plan.StatusFailed || got.Message != "vm1: no space" || got.Step("vm1").Status != plan.Undone {
			t.Fatalf("got %+v", got)
		}
		x.mend("vm1")
		if err := e.Retry(t.Context(), "p1", "", "admin"); err != nil {
			t.Fatal(err)
		}
		if got := await(t, e, s, "p1", ended); got.Status != plan.StatusDone {
			t.Fatalf("got %+v", got)
		}
		if diff := cmp.Diff([]string{"undo vm1", "vm1", "b"}, x.done()); diff != "" {
			t.Error(diff)
		}
	})
}

// Steps of several plans share a budget: never more at once than it has, everybody has a turn, and one who is cancelled
// in the line does not keep the others waiting.
func TestBudgetIsSharedByAllPlans(t *testing.T) {
	both(t, func(t *testing.T, open func(t *testing.T) adapted) {
		s := open(t)
		var mu sync.Mutex
		now, most := 0, 0
		gate := make(chan struct{})
		e := startInstance(t, s, engine.Config{
			Lease: 2 * time.Second, Budget: func(string) int { return 2 },
			Handlers: map[string]plan.Handler{"work": plan.HandlerFunc(func(ctx context.Context, _ plan.Run) error {
				mu.Lock()
				now++
				most = max(most, now)
				mu.Unlock()
				select {
				case <-gate:
				case <-ctx.Done():
				}
				mu.Lock()
				now--
				mu.Unlock()
				return ctx.Err()
			})},
		})
		var ids []string
		for i := range 6 {
			p := linear(fmt.Sprintf("p%d", i), plan.Step{ID: "clone", Kind: "work", Budgets: []string{"clones/lab"}})
			addPlan(t, s, p)
			if err := e.Begin(t.Context(), p.ID, "admin", nil); err != nil {
				t.Fatal(err)
			}
			ids = append(ids, p.ID)
		}
		var line []string
		for len(line) < 4 {
			changed := e.Changed()
			line = nil
			for _, id := range ids {
				waits, err := s.BudgetWaits(t.Context(), id)
				if err != nil {
					t.Fatal(err)
				}
				if len(waits) > 0 {
					line = append(line, id)
				}
			}
			if len(line) < 4 {
				select {
				case <-changed:
				case <-time.After(20 * time.Millisecond):
				}
			}
		}
		if err := e.Cancel(t.Context(), line[0], "admin", false); err != nil {
			t.Fatal(err)
		}
		close(gate)
		for _, id := range ids {
			want := plan.StatusDone
			if id == line[0] {
				want = plan.StatusCancelled
			}
			if got := await(t, e, s, id, ended); got.Status != want {
				t.Errorf("plan %s is %s, want %s", id, got.Status, want)
			}
		}
		mu.Lock()
		defer mu.Unlock()
		if most != 2 {
			t.Errorf("%d ran at once, want 2", most)
		}
	})
}

// A step that is not ready for an hour runs at once when what it waits for has come; what refuses that leaves it
// waiting.
func TestWakeRunsAStepBeforeItsTime(t *testing.T) {
	both(t, func(t *testing.T, open func(t *testing.T) adapted) {
		var come atomic.Bool
		handlers := map[string]plan.Handler{"work": plan.HandlerFunc(func(context.Context, plan.Run) error {
			if !come.Load() {
				return plan.After(time.Hour, "it has not come")
			}
			return nil
		})}
		s := open(t)
		e := startEngine(t, s, handlers)
		addPlan(t, s, linear("p1", plan.Step{ID: "a", Kind: "work"}))
		if err := e.Begin(t.Context(), "p1", "admin", nil); err != nil {
			t.Fatal(err)
		}
		waits := func(s plan.State) bool { return s.Step("a").Status == plan.Waiting }
		await(t, e, s, "p1", waits)
		ref := plan.StepRef{Plan: "p1", Step: "a"}
		refuses := func(engine.Tx) error { return director.Errorf(director.KindConflict, "test", "not yet") }
		if err := e.Wake(t.Context(), ref, "ann", "", refuses); director.KindOf(err) != director.KindConflict {
			t.Errorf("a refusal is %v", err)
		}
		come.Store(true)
		agrees := func(engine.Tx) error { return nil }
		if err := e.Wake(t.Context(), ref, "ann", "it has come", agrees); err != nil {
			t.Fatal(err)
		}
		got := await(t, e, s, "p1", ended)
		if got.Status != plan.StatusDone || got.Step("a").Attempt != 2 {
			t.Errorf("%s after %d attempts", got.Status, got.Step("a").Attempt)
		}
		if err := e.Wake(t.Context(), ref, "ann", "", agrees); err != nil {
			t.Errorf("a step that is done: %v", err)
		}
	})
}

// TestDrain lets the step that runs end, begins none after it, and continues where it was told to.
func TestDrain(t *testing.T) {
	both(t, func(t *testing.T, open func(t *testing.T) adapted) {
		going := make(chan struct{})
		x := &script{hold: map[string]chan struct{}{"1": going}}
		p := linear("p", plan.Step{ID: "1", Kind: "work"}, plan.Step{ID: "2", Kind: "work"})
		e, s := begin(t, open, x, p)
		await(t, e, s, "p", func(s plan.State) bool { return s.Step("1").Status == plan.Running })
		short, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		if err := e.Drain(short); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("with a step that runs: %v", err)
		}
		close(going)
		if err := e.Drain(t.Context()); err != nil {
			t.Fatal(err)
		}
		state := await(t, e, s, "p", func(s plan.State) bool { return s.Step("1").Status == plan.Done })
		if got := x.done(); !slices.Equal(got, []string{"1"}) || state.Step("2").Status != plan.Pending {
			t.Errorf("did %v, step 2 is %s", got, state.Step("2").Status)
		}
		e.Release()
		await(t, e, s, "p", ended)
		if got := x.done(); !slices.Equal(got, []string{"1", "2"}) {
			t.Errorf("did %v", got)
		}
	})
}
