package hooks_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/webhook/webhooktest"
)

// told is what an event says of its plan.
type told struct{ Phase, Status string }

// toldOf returns what the endpoint was told, in its order.
func toldOf(t *testing.T, e *webhooktest.Endpoint) []told {
	t.Helper()
	var out []told
	for _, r := range e.Got() {
		var event struct{ Data told }
		if err := json.Unmarshal(r.Body, &event); err != nil {
			t.Fatal(err)
		}
		out = append(out, event.Data)
	}
	return out
}

// Who is told behind a plan is told also of one that comes to no good end, with how it ended.
func TestTheEndOfAPlanIsTold(t *testing.T) {
	t.Parallel()
	refuses := webhooktest.JSON(200, `{"decision":"refuse"}`)
	for name, test := range map[string]struct {
		onRefuse string
		then     func(l *lab) error
		end      plan.Status
		want     []told
	}{
		"done": {model.HookContinue, nil, plan.StatusDone, []told{{"after.plan", "running"}}}, // it is a step of it
		"failed": {
			model.HookFail, nil, plan.StatusFailed, []told{{"after.plan", "failed"}},
		},
		"cancelled": {
			model.HookPark, func(l *lab) error { return l.engine.Cancel(l.t.Context(), "p1", "ann", false) },
			plan.StatusCancelled,
			[]told{{"after.plan", "cancelled"}},
		},
		"undone": {
			model.HookPark, func(l *lab) error { return l.engine.Undo(l.t.Context(), "p1", "ann") },
			plan.StatusUndone,
			[]told{{"after.plan", "undone"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := open(t)
			l.hook("asked", refuses, nil)
			e := l.hook("told", webhooktest.JSON(200, ""), nil)
			question := asks("asked", func(p *step.HookParams) { p.OnRefuse = test.onRefuse })
			last := asks("told", func(p *step.HookParams) { p.Phase, p.Mode = "after.plan", model.HookNotify })
			work := plan.Step{ID: "drain/n1", Kind: "work", Node: "n1", Window: "workers", Attempts: 1}
			question.Node, question.Window, question.Needs = work.Node, work.Window, []string{work.ID}
			back := work
			back.ID, back.Undoes = plan.UndoID("uncordon", "n1"), []string{work.ID, question.ID}
			last.Needs = []string{question.ID}
			l.beginWhole(plan.Content{
				Operation: plan.ClusterUpgrade, Cluster: "demo", Windows: []plan.Window{{ID: "workers", Size: 1}},
				Steps: []plan.Step{work, question, last, back},
			})
			if test.then != nil {
				l.ends("p1", plan.StatusParked)
				if err := test.then(l); err != nil {
					t.Fatal(err)
				}
			}
			l.ends("p1", test.end)
			l.await("the end is told", func() bool { return len(e.Got()) == len(test.want) })
			if diff := cmp.Diff(test.want, toldOf(t, e)); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// While a node's hook has not answered, its place in the window is taken: the next node waits, and goes on with the
// answer. A refusal that a person has to look at lets no other node begin.
func TestANodeThatAsksKeepsItsPlace(t *testing.T) {
	t.Parallel()
	l := open(t)
	l.hook("h", webhooktest.JSON(202, ""), nil)
	l.beginWindow(model.HookPark, "n1", "n2")
	first := l.accepted("p1")
	asked := func(node string) string { return step.HookID("before.upgrade", "h", node) }
	if d := l.deliveries("p1")[0]; d.Step != asked("n1") {
		t.Fatalf("first %s is asked", d.Step)
	}
	l.steps(map[string]plan.StepStatus{"drain/n2": plan.Pending, asked("n2"): plan.Pending})
	if _, err := l.hooks.Answer(t.Context(), "bob", first, director.HookRefuses, "not now"); err != nil {
		t.Fatal(err)
	}
	l.ends("p1", plan.StatusParked)
	l.steps(map[string]plan.StepStatus{"drain/n2": plan.Pending, "upgrade/n1": plan.Pending})
	if err := l.engine.Retry(t.Context(), "p1", "", "ann"); err != nil {
		t.Fatal(err)
	}
	for range 2 { // each node in its turn
		var id string
		l.await("a node is asked for", func() bool {
			for _, d := range l.deliveries("p1") {
				if d.State == director.HookAccepted {
					id = d.ID
				}
			}
			return id != ""
		})
		if _, err := l.hooks.Answer(t.Context(), "bob", id, director.HookContinues, ""); err != nil {
			t.Fatal(err)
		}
	}
	l.ends("p1", plan.StatusDone)
	d := l.deliveries("p1") // the newest first
	if len(d) != 3 || d[0].Step != asked("n2") || d[1].Step != asked("n1") || d[1].Created.After(d[0].Created) {
		t.Errorf("they were asked %+v", d)
	}
	if late := d[2].Answered.Sub(d[2].Created); d[2].Decision != director.HookRefuses || late > time.Minute {
		t.Errorf("the first answer: %+v", d[2])
	}
}
