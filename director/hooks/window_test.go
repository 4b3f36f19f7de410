package hooks_test

import (
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/webhook/webhooktest"
)

// inWindow starts a plan that upgrades a worker in a window, and asks the hook between its drain and its upgrade.
func (l *lab) inWindow(onRefuse string) string {
	l.t.Helper()
	l.beginWindow(onRefuse, "n1")
	return step.HookID("before.upgrade", "h", "n1")
}

// beginWindow is inWindow for several workers, of which one may be worked on at once.
func (l *lab) beginWindow(onRefuse string, nodes ...string) {
	l.t.Helper()
	const window = "workers"
	var steps []plan.Step
	for _, node := range nodes {
		of := func(s plan.Step) plan.Step {
			s.Node, s.Window, s.Attempts = node, window, 1
			if s.Kind == "" {
				s.Kind = "work"
			}
			return s
		}
		drain, upgrade := "drain/"+node, "upgrade/"+node
		hook := asks("h", func(p *step.HookParams) { p.Phase, p.Node, p.OnRefuse = "before.upgrade", node, onRefuse })
		hook.ID, hook.Needs = step.HookID("before.upgrade", "h", node), []string{drain}
		steps = append(
			steps, of(plan.Step{ID: drain}), of(hook), of(plan.Step{ID: upgrade, Needs: []string{hook.ID}}),
			of(plan.Step{ID: plan.UndoID("uncordon", node), Undoes: []string{drain, hook.ID, upgrade}}),
		)
	}
	l.beginWhole(plan.Content{
		Operation: plan.ClusterUpgrade, Cluster: "demo", Windows: []plan.Window{{ID: window, Size: 1}}, Steps: steps,
	})
}

// beginWhole starts the plan p1 with the content.
func (l *lab) beginWhole(c plan.Content) {
	l.t.Helper()
	if err := c.Check(); err != nil {
		l.t.Fatal(err)
	}
	p := plan.Plan{ID: "p1", CreatedAt: time.Now(), CreatedBy: "t", Hash: plan.HashOf(c), Content: c}
	if err := l.db.Update(l.t.Context(), func(tx *store.Tx) error { return tx.AddPlan(p) }); err != nil {
		l.t.Fatal(err)
	}
	if err := l.engine.Begin(l.t.Context(), "p1", "ann", nil); err != nil {
		l.t.Fatal(err)
	}
}

func (l *lab) steps(want map[string]plan.StepStatus) {
	l.t.Helper()
	_, s, err := l.db.Plan(l.t.Context(), "p1")
	if err != nil {
		l.t.Fatal(err)
	}
	for id, status := range want {
		if got := s.Step(id).Status; got != status {
			l.t.Errorf("%s is %s, and should be %s", id, got, status)
		}
	}
}

// A node whose hook refuses in the middle of a window is rolled back, or stays as it is until a person decides.
func TestARefusalInTheMiddleOfAWindow(t *testing.T) {
	t.Parallel()
	back := plan.UndoID("uncordon", "n1")
	for name, test := range map[string]struct {
		onRefuse string
		then     func(l *lab, hook string) error
		between  plan.Status
		end      plan.Status
		want     map[string]plan.StepStatus
	}{
		"fail": {model.HookFail, nil, "", plan.StatusFailed, map[string]plan.StepStatus{
			"drain/n1": plan.Done, "upgrade/n1": plan.Pending, back: plan.Done,
		}},
		"park, undone": {
			model.HookPark, func(l *lab, _ string) error { return l.engine.Undo(l.t.Context(), "p1", "ann") },
			plan.StatusParked, plan.StatusUndone,
			map[string]plan.StepStatus{"upgrade/n1": plan.Pending, back: plan.Done},
		},
		"park, skipped": {
			model.HookPark,
			func(l *lab, hook string) error { return l.engine.Skip(l.t.Context(), "p1", hook, "agreed", "ann") },
			plan.StatusParked, plan.StatusDone,
			map[string]plan.StepStatus{"upgrade/n1": plan.Done, back: plan.Pending},
		},
		"continue": {model.HookContinue, nil, "", plan.StatusDone, map[string]plan.StepStatus{
			"upgrade/n1": plan.Done, back: plan.Pending,
		}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l := open(t)
			l.hook("h", webhooktest.JSON(200, `{"decision":"refuse"}`), nil)
			hook := l.inWindow(test.onRefuse)
			if test.then != nil {
				l.ends("p1", test.between)
				l.steps(map[string]plan.StepStatus{"drain/n1": plan.Done, hook: plan.Parked, back: plan.Pending})
				if err := test.then(l, hook); err != nil {
					t.Fatal(err)
				}
			}
			l.ends("p1", test.end)
			l.steps(test.want)
			if d := l.deliveries("p1"); len(d) != 1 || d[0].Decision != director.HookRefuses {
				t.Errorf("%+v", d)
			}
		})
	}
}
