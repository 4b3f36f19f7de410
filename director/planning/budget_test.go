package planning

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/servicetest"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/steps"
)

// A model that asks for VMs without end gets so many in a span of time; the next one waits, costs no attempt, and says
// until when and what to do.
func TestCreationBudget(t *testing.T) {
	t.Parallel()
	l := openLab(t, 1, 5)
	now := time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)
	provider := model.Provider{Budget: model.Budget{Creations: 2}}
	env := l.Env
	env.Now = func() time.Time { return now }
	env.Allowances = func(context.Context, string) ([]director.Allowance, error) {
		return Allowances("lab", &provider, 3), nil
	}
	planned := &plan.Plan{ID: "p1"}
	create := func(n int) string {
		m := l.Made[fmt.Sprintf("c000-w-%d", n)]
		s := plan.Step{ID: step.VMEnsure + "/" + m.Name, Kind: step.VMEnsure, Params: servicetest.Params(m)}
		err := steps.Handlers(env)[step.VMEnsure].Run(t.Context(), plan.Run{Plan: planned, Step: s})
		o := plan.OutcomeOf(err)
		if err != nil && o.Kind != plan.NotReady {
			t.Fatalf("VM %d: %v", n, err)
		}
		return strings.TrimSpace(fmt.Sprintf("%s %s", o.Text, o.After))
	}
	const fine = "0s"
	ofProvider := "the creation budget is used up: 2 VMs in 1h0m0s by spec.budget of Provider/lab; there is room " +
		"again at 2026-07-01 13:00:00 UTC. " +
		"If so many VMs are meant, raise it; if not, cancel the plan 5m0s"
	// The hypervisor has a fault in the middle of the second: the step is tried again, and takes nothing more.
	var got []string
	got = append(got, create(1))
	now = now.Add(10 * time.Minute)
	l.World.Inject(sim.Fault{Verb: sim.VerbEnsure})
	if err := steps.Handlers(env)[step.VMEnsure].Run(t.Context(), plan.Run{Plan: planned, Step: plan.Step{
		ID: step.VMEnsure + "/c000-w-2", Params: servicetest.Params(l.Made["c000-w-2"]),
	}}); director.KindOf(err) != director.KindUnavailable {
		t.Fatal(err)
	}
	got = append(got, create(2), create(3))
	// The administrator raises it, up to the director's own.
	provider.Budget.Creations = 10
	got = append(got, create(3), create(4))
	// What exists needs no budget.
	got = append(got, create(1))
	now = now.Add(50*time.Minute + time.Second)
	got = append(got, create(4))
	want := []string{
		fine, fine, ofProvider, fine,
		"the creation budget is used up: 3 VMs in 1h0m0s by creationsPerHour of the director's configuration; there " +
			"is room again at 2026-07-01 13:00:00 UTC. " +
			"If so many VMs are meant, raise it; if not, cancel the plan 5m0s",
		fine, fine,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if n := l.World.Count(); n != 4 {
		t.Errorf("there are %d VMs", n)
	}
}

// A plan that is larger than the budget says so before it is started.
func TestPlansSayThatTheyWillWait(t *testing.T) {
	t.Parallel()
	l := openLab(t, 1, 1)
	var c plan.Content
	for range 3 {
		c.Steps = append(c.Steps, plan.Step{Kind: step.VMEnsure}, plan.Step{Kind: step.VMBoot})
	}
	provider := model.Provider{Budget: model.Budget{Creations: 2, Per: model.Duration(30 * time.Minute)}}
	for perHour, want := range map[int][]string{
		0: {
			"it makes up to 3 VMs, and the creation budget is 2 VMs in 30m0s by spec.budget of Provider/lab: it " +
				"will wait on its way",
		},
		1: {
			"it makes up to 3 VMs, and the creation budget is 2 VMs in 30m0s by spec.budget of Provider/lab: it " +
				"will wait on its way",
			"it makes up to 3 VMs, and the creation budget is 1 VMs in 1h0m0s by creationsPerHour of the director's " +
				"configuration: it will wait on its way",
		},
	} {
		l.CreationsPerHour = perHour
		if diff := cmp.Diff(want, l.prechecks().overBudget("lab", &provider, c)); diff != "" {
			t.Error(diff)
		}
	}
}
