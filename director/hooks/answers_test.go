package hooks_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/webhook/webhooktest"
)

// accepted waits until the one event of the plan is accepted, and returns the id of its delivery.
func (l *lab) accepted(id string) string {
	l.t.Helper()
	l.await("the event is accepted", func() bool {
		d := l.deliveries(id)
		return len(d) == 1 && d[0].State == director.HookAccepted
	})
	return l.deliveries(id)[0].ID
}

// The first final answer counts. Waiting for it holds no worker, and survives a restart of the director.
func TestALaterAnswer(t *testing.T) {
	t.Parallel()
	l := open(t)
	l.hook("h", webhooktest.JSON(202, ""), nil)
	l.begin("p1", asks("h", nil))
	id := l.accepted("p1")
	if n := l.engine.Held(); n != 0 {
		t.Errorf("%d steps are held", n)
	}
	l.stop()
	l.start()
	answer := func(decision director.HookDecision) error {
		_, err := l.hooks.Answer(t.Context(), "bob", id, decision, "checked")
		return err
	}
	if err := answer(director.HookContinues); err != nil {
		t.Fatal(err)
	}
	l.ends("p1", plan.StatusDone)
	if err := answer(director.HookContinues); err != nil {
		t.Errorf("the same answer again: %v", err)
	}
	if err := answer(director.HookRefuses); director.KindOf(err) != director.KindConflict {
		t.Errorf("another answer: %v", err)
	}
	_, err := l.hooks.Answer(t.Context(), "bob", "none", director.HookRefuses, "")
	if director.KindOf(err) != director.KindNotFound {
		t.Errorf("an answer to nothing: %v", err)
	}
	if _, err := l.hooks.Replay(t.Context(), "bob", id); director.KindOf(err) != director.KindConflict {
		t.Errorf("a replay of what is answered: %v", err)
	}
}

// A hook that names who answers for it takes no answer from others, whatever they may do besides.
func TestAnAnswerFromAnother(t *testing.T) {
	t.Parallel()
	l := open(t)
	l.hook("h", webhooktest.JSON(202, ""), func(h *model.Hook) { h.AnsweredBy = []string{"cmdb", "ann"} })
	l.begin("p1", asks("h", nil))
	id := l.accepted("p1")
	_, err := l.hooks.Answer(t.Context(), "other-service", id, director.HookContinues, "")
	if director.KindOf(err) != director.KindForbidden || !strings.Contains(err.Error(), "spec.answeredBy") {
		t.Errorf("an answer from another: %v", err)
	}
	if d := l.deliveries("p1")[0]; d.State != director.HookAccepted {
		t.Errorf("after it, the delivery is %s", d.State)
	}
	if _, err := l.hooks.Answer(t.Context(), "cmdb", id, director.HookContinues, ""); err != nil {
		t.Fatal(err)
	}
	l.ends("p1", plan.StatusDone)
	_, err = l.hooks.Answer(t.Context(), "other-service", id, director.HookContinues, "")
	if director.KindOf(err) != director.KindForbidden {
		t.Errorf("the same answer from another: %v", err)
	}
}

// Of answers that contradict each other and come at once, one counts: who says the same is told so, and the others are
// told whose it is. The plan follows that one.
func TestAnswersThatContradictEachOther(t *testing.T) {
	t.Parallel()
	l := open(t)
	l.hook("h", webhooktest.JSON(202, ""), nil)
	l.begin("p1", asks("h", nil))
	id := l.accepted("p1")
	const each = 8
	var said sync.WaitGroup
	errs := map[director.HookDecision][]error{
		director.HookContinues: make([]error, each), director.HookRefuses: make([]error, each),
	}
	for decision, of := range errs {
		for i := range of {
			said.Go(func() {
				_, of[i] = l.hooks.Answer(t.Context(), fmt.Sprintf("%s-%d", decision, i), id, decision, "")
			})
		}
	}
	said.Wait()
	won := l.deliveries("p1")[0].Decision
	l.ends("p1", map[director.HookDecision]plan.Status{
		director.HookContinues: plan.StatusDone, director.HookRefuses: plan.StatusParked,
	}[won])
	for decision, of := range errs {
		for _, err := range of {
			if decision == won && err != nil || decision != won && (director.KindOf(err) != director.KindConflict ||
				!strings.Contains(err.Error(), "was answered already by "+string(won))) {
				t.Errorf("%s counts, and %s: %v", won, decision, err)
			}
		}
	}
}

func TestAnAnswerThatIsTooLate(t *testing.T) {
	t.Parallel()
	l := open(t)
	l.hook("h", webhooktest.JSON(202, ""), nil)
	l.begin("p1", asks("h", func(p *step.HookParams) { p.Deadline = time.Second }))
	l.ends("p1", plan.StatusParked)
	_, err := l.hooks.Answer(t.Context(), "bob", l.deliveries("p1")[0].ID, director.HookContinues, "")
	if director.KindOf(err) != director.KindConflict || !strings.Contains(err.Error(), "any more: it is expired") {
		t.Error(err)
	}
	if s := l.status("p1"); s != plan.StatusParked {
		t.Errorf("the plan is %s", s)
	}
}
