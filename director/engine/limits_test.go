package engine_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/engine"
	"github.com/director-kaas/kaas/director/plan"
)

func parked(s plan.State) bool { return s.Status == plan.StatusParked }

func oneStepPlan() plan.Plan {
	p := demo("p1")
	p.Steps = []plan.Step{{ID: "one", Kind: "work", Attempts: 1}}
	p.Hash = plan.HashOf(p.Content)
	return p
}

// A step that takes its director down each time waits for a person in the end. A stop that a person wants is not
// counted, and a person's retry begins to count anew.
func TestAStepThatEndsItsDirectorParks(t *testing.T) {
	both(t, func(t *testing.T, open func(t *testing.T) adapted) {
		const most = 3
		s, p := open(t), oneStepPlan()
		addPlan(t, s, p)
		start := func() (*engine.Engine, chan struct{}) {
			entered := make(chan struct{}, 1)
			return startInstance(t, s, engine.Config{Instance: "one", Interruptions: most, Handlers: work(func(
				ctx context.Context, _ plan.Run,
			) error {
				entered <- struct{}{}
				<-ctx.Done()
				return ctx.Err()
			})}), entered
		}
		e, entered := start()
		if err := e.Begin(t.Context(), "p1", "admin", nil); err != nil {
			t.Fatal(err)
		}
		for deaths := range most {
			<-entered
			if err := e.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			_, st, err := s.Plan(t.Context(), "p1")
			if err != nil {
				t.Fatal(err)
			}
			if one := st.Step("one"); one.Status != plan.Waiting || one.Interruptions != deaths {
				t.Fatalf("after %d deaths and a stop the step is %+v", deaths, one)
			}
			// Another process of the instance claims it, and dies.
			err = s.Update(t.Context(), func(tx engine.Tx) error {
				_, st, err := tx.Plan("p1")
				if err != nil {
					return err
				}
				return errors.Join(
					tx.Append(&st, plan.Event{
						Plan: "p1", Step: "one", Kind: plan.Started, Attempt: st.Step("one").Attempt + 1,
						At: time.Now(),
					}),
					tx.Lease("p1", "one", "one/0", time.Now().Add(time.Hour)))
			})
			if err != nil {
				t.Fatal(err)
			}
			e, entered = start()
		}
		got := await(t, e, s, "p1", parked)
		if st := got.Step("one"); !strings.Contains(st.Message, "interrupted 3 times in a row") || st.Hint == "" {
			t.Errorf("got %+v", st)
		}
		if err := e.Retry(t.Context(), "p1", "one", "admin"); err != nil {
			t.Fatal(err)
		}
		<-entered
		got = await(t, e, s, "p1", func(st plan.State) bool { return st.Step("one").Status == plan.Running })
		if n := got.Step("one").Interruptions; n != 0 {
			t.Errorf("%d interruptions are left over", n)
		}
		checkJournal(t, s, p, got)
	})
}

// What ends a step from outside costs no attempt, is not tried again at once for ever, and waits for a person in the
// end.
func TestInterruptedHandlerParksInTheEnd(t *testing.T) {
	both(t, func(t *testing.T, open func(t *testing.T) adapted) {
		s, p := open(t), oneStepPlan()
		addPlan(t, s, p)
		var runs atomic.Int64
		e := startInstance(t, s, engine.Config{Instance: "one", Interruptions: 2, Handlers: work(func(
			context.Context, plan.Run,
		) error {
			runs.Add(1)
			return plan.Interrupt(errors.New("killed"))
		})})
		if err := e.Begin(t.Context(), "p1", "admin", nil); err != nil {
			t.Fatal(err)
		}
		got := await(t, e, s, "p1", parked)
		if st := got.Step("one"); runs.Load() != 2 || st.Failures != 0 || !strings.HasSuffix(st.Message, "killed") {
			t.Errorf("%d runs, got %+v", runs.Load(), st)
		}
		checkJournal(t, s, p, got)
	})
}

// A step that is never ready asks a person when its time is over, counted from its first look, and says meanwhile until
// when it waits.
func TestAWaitHasAnEnd(t *testing.T) {
	both(t, func(t *testing.T, open func(t *testing.T) adapted) {
		s, p := open(t), oneStepPlan()
		addPlan(t, s, p)
		var ahead, runs atomic.Int64
		now := func() time.Time { return time.Now().Add(time.Duration(ahead.Load())) }
		e := startInstance(t, s, engine.Config{Instance: "one", Now: now, Handlers: work(func(
			context.Context, plan.Run,
		) error {
			if runs.Add(1)%5 == 0 { // the fourth look of each wait was in its time
				ahead.Add(int64(2 * time.Hour))
			}
			return plan.AfterWithin(time.Hour, 10*time.Millisecond, "no VM yet")
		})})
		if err := e.Begin(t.Context(), "p1", "admin", nil); err != nil {
			t.Fatal(err)
		}
		for range 2 { // a retry starts again
			runs.Store(0)
			waiting := await(t, e, s, "p1", func(s plan.State) bool {
				return !s.Step("one").Deadline.IsZero() || parked(s)
			})
			if waits := plan.Waits(&p, &waiting, plan.Outside{
				Now: now(),
			}); waiting.Step("one").Status == plan.Waiting &&
				(len(waits) != 1 || waits[0].Deadline.Before(waits[0].Since.Add(30*time.Minute))) {
				t.Errorf("waits %+v", waits)
			}
			got := await(t, e, s, "p1", parked)
			if st := got.Step(
				"one",
			); runs.Load() != 5 || !strings.Contains(st.Message, "not ready for 1h0m0s: no VM yet") ||
				!st.Deadline.IsZero() {
				t.Errorf("%d looks, got %+v", runs.Load(), st)
			}
			checkJournal(t, s, p, got)
			if err := e.Retry(t.Context(), "p1", "one", "admin"); err != nil {
				t.Fatal(err)
			}
		}
	})
}

// A plan that is being undone comes to its end: it cannot be paused or cancelled half way, and refusing does not move
// it.
func TestAnUndoingPlanIsNotPaused(t *testing.T) {
	both(t, func(t *testing.T, open func(t *testing.T) adapted) {
		s, p := open(t), oneStepPlan()
		addPlan(t, s, p)
		undoing, release := make(chan struct{}), make(chan struct{})
		e := startInstance(t, s, engine.Config{Instance: "one", Handlers: map[string]plan.Handler{"work": plan.Undoable{
			Do: func(context.Context, plan.Run) error { return plan.Abort(errors.New("no")) },
			TakeBack: func(context.Context, plan.Run) error {
				close(undoing)
				<-release
				return nil
			},
		}}})
		if err := e.Begin(t.Context(), "p1", "admin", nil); err != nil {
			t.Fatal(err)
		}
		await(t, e, s, "p1", inStatus(plan.StatusFailed))
		if err := e.Undo(t.Context(), "p1", "admin"); err != nil {
			t.Fatal(err)
		}
		<-undoing
		if err := e.Pause(
			t.Context(), "p1", "admin", "coffee",
		); director.KindOf(err) != director.KindConflict || director.HintOf(err) == "" {
			t.Errorf("a pause: %v", err)
		}
		if err := e.Cancel(t.Context(), "p1", "admin", false); director.KindOf(err) != director.KindConflict {
			t.Errorf("a cancel: %v", err)
		}
		close(release)
		if got := await(
			t, e, s, "p1", inStatus(plan.StatusUndone, plan.StatusFailed, plan.StatusPaused),
		); got.Status != plan.StatusUndone {
			t.Errorf("got %+v", got)
		}
	})
}

// scarce is a handler that has to wait for longer than its step's time before it may act.
type scarce struct{ plan.Handler }

func (scarce) Prepare(ctx context.Context, r plan.Run) (context.Context, func(), error) {
	wait, cancel := context.WithTimeout(ctx, 3*r.Step.Timeout)
	defer cancel()
	<-wait.Done()
	return ctx, func() {}, ctx.Err()
}

// What a step waits for before it acts costs neither its time nor an attempt.
func TestPreparingCostsNoTime(t *testing.T) {
	both(t, func(t *testing.T, open func(t *testing.T) adapted) {
		s, p := open(t), oneStepPlan()
		p.Steps[0].Timeout = 200 * time.Millisecond
		p.Hash = plan.HashOf(p.Content)
		addPlan(t, s, p)
		e := startInstance(t, s, engine.Config{Instance: "one", Handlers: map[string]plan.Handler{"work": scarce{
			plan.HandlerFunc(func(ctx context.Context, _ plan.Run) error { return ctx.Err() }),
		}}})
		if err := e.Begin(t.Context(), "p1", "admin", nil); err != nil {
			t.Fatal(err)
		}
		got := await(t, e, s, "p1", ended)
		if st := got.Step("one"); got.Status != plan.StatusDone || st.Attempt != 1 || st.Failures != 0 {
			t.Errorf("got %+v", got)
		}
	})
}
