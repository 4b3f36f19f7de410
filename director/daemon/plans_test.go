package daemon

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/simulate"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/wire"
)

// A plan is started as it was read, or not at all: when a document or the world has moved meanwhile, the refusal says
// what.
func TestStartOfAPlanThatIsOutOfDate(t *testing.T) {
	t.Parallel()
	_, api := opened(t, simulating(t, demoDocuments))
	other := strings.Replace(demoDocuments[strings.LastIndex(demoDocuments, "---\n"):], "name: demo", "name: other", 1)
	more := strings.Replace(demoDocuments[strings.LastIndex(demoDocuments, "---\n"):], "count: 3", "count: 4", 1)
	for _, tt := range []struct {
		name, hash string
		meanwhile  func(t *testing.T)
		want       []string
	}{
		{"another hash", "0000", func(*testing.T) {}, []string{"hash"}},
		{"the document", "", func(t *testing.T) {
			if _, err := api.Apply(t.Context(), []byte(more), "x", false); err != nil {
				t.Fatal(err)
			}
		}, []string{"out of date", "Cluster/demo has changed (now generation 2)"}},
		{"the world", "", func(t *testing.T) { // another cluster takes the addresses
			if _, err := api.Apply(t.Context(), []byte(other), "x", false); err != nil {
				t.Fatal(err)
			}
			p, err := api.MakePlan(t.Context(), "other", plan.Request{})
			if err == nil {
				_, err = api.StartPlan(t.Context(), p.ID, p.Hash)
			}
			if err != nil {
				t.Fatal(err)
			}
		}, []string{"out of date", "demo-master-1"}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p, err := api.MakePlan(t.Context(), "demo", plan.Request{})
			if err != nil {
				t.Fatal(err)
			}
			tt.meanwhile(t)
			if tt.hash == "" {
				tt.hash = p.Hash
			}
			_, err = api.StartPlan(t.Context(), p.ID, tt.hash)
			if director.KindOf(err) != director.KindConflict || director.HintOf(err) == "" {
				t.Fatalf("%v, hint %q", err, director.HintOf(err))
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("the refusal does not say %q: %v", want, err)
				}
			}
		})
	}
}

// The way back of a worker is a snapshot, or is made from the documents of what it ran. It is gone by the same director
// that upgrades.
func TestAWorkerThatFailsItsUpgradeIsPutBack(t *testing.T) {
	t.Parallel()
	for _, way := range []string{model.RollbackSnapshot, model.RollbackRecreate} {
		t.Run(way, func(t *testing.T) {
			t.Parallel()
			putBackBy(t, way)
		})
	}
}

func putBackBy(t *testing.T, way string) {
	t.Helper()
	c := simulating(t, threeHosts)
	c.Simulation.Plays.Faults = []simulate.PlayFault{
		{Hosts: "demo-w-2", Playbook: "upgrade_worker", Outcome: "failed", Percent: 100},
	}
	_, api := created(t, c)
	text := nextRelease() + "  maintenance: {rollback: " + way + "}\n"
	if _, err := api.Apply(t.Context(), []byte(text), "x", false); err != nil {
		t.Fatal(err)
	}
	p, err := api.MakePlan(t.Context(), "demo", plan.Request{})
	if err != nil {
		t.Fatal(err)
	}
	asks := slices.ContainsFunc(p.Approvals, func(a string) bool {
		return strings.HasPrefix(a, "should the upgrade of a worker fail")
	})
	if len(p.Warnings) > 0 || asks != (way == model.RollbackRecreate) {
		t.Errorf("it warns of %v, and asks for %v", p.Warnings, p.Approvals)
	}
	if _, err := api.StartPlan(t.Context(), p.ID, p.Hash); err != nil {
		t.Fatal(err)
	}
	status, err := api.Follow(t.Context(), p.ID, 0, func(wire.Event) error { return nil }, nil, nil)
	if err != nil || status != string(plan.StatusFailed) {
		t.Fatalf("the plan ends as %q: %v", status, err)
	}
	if p, err = api.Plan(t.Context(), p.ID); err != nil {
		t.Fatal(err)
	}
	if want := "demo-w-2: rolled back, and in use; of the workers 1 run v1.37.2, 1 are not begun"; !strings.Contains(
		p.Message, want,
	) {
		t.Errorf("it says %q, want %q", p.Message, want)
	}
	v, err := api.Nodes(t.Context(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, n := range v.Items {
		got[n.Name] = n.Version + " " + n.Power
	}
	next, old := "v1.37.2 on", "v1.37.1 on"
	want := map[string]string{
		"demo-master-1": next, "demo-master-2": next, "demo-master-3": next, "demo-w-1": next, "demo-w-2": old,
		"demo-w-3": old,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if _, err := api.RetryPlan(t.Context(), p.ID, ""); director.KindOf(err) != director.KindConflict ||
		!strings.Contains(director.HintOf(err), "directorctl plan demo") {
		t.Errorf("a plan for a worker that was rolled back continues: %v", err)
	}
	if p, err = api.MakePlan(t.Context(), "demo", plan.Request{}); err != nil {
		t.Fatal(err)
	}
	var begins []string
	for _, s := range p.Steps {
		if strings.HasPrefix(s.ID, "upgrade/") {
			begins = append(begins, s.ID)
		}
	}
	if diff := cmp.Diff([]string{"upgrade/demo-w-2", "upgrade/demo-w-3"}, begins); diff != "" {
		t.Errorf("the next plan: %s", diff)
	}
}

// The planner's budgets are those of the configuration.
func TestBudgets(t *testing.T) {
	t.Parallel()
	c := Config{ClonesPerProvider: 16, ClonesPerHost: 4}
	got := map[string]int{}
	for _, name := range []string{step.BudgetClones + "/lab", step.BudgetClones + "/lab/h1", "other"} {
		got[name] = c.budget(name)
	}
	want := map[string]int{step.BudgetClones + "/lab": 16, step.BudgetClones + "/lab/h1": 4, "other": 0}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
