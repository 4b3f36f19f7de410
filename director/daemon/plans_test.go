package daemon

import (
	"io"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
)

// A plan is started as it was read, or not at all: when a document or the world has moved meanwhile, the refusal says what.
func TestStartOfAPlanThatIsOutOfDate(t *testing.T) {
	t.Parallel()
	c := simulating(t, documents)
	d, err := start(t, c, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	api := connect(t, c, d)
	other := strings.Replace(documents[strings.LastIndex(documents, "---\n"):], "name: demo", "name: other", 1)
	more := strings.Replace(documents[strings.LastIndex(documents, "---\n"):], "count: 3", "count: 4", 1)
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

// The planner's budgets are those of the configuration.
func TestBudgets(t *testing.T) {
	t.Parallel()
	c := Config{ClonesPerProvider: 16, ClonesPerHost: 4}
	got := map[string]int{}
	for _, name := range []string{planner.BudgetClones + "/lab", planner.BudgetClones + "/lab/h1", "other"} {
		got[name] = c.budget(name)
	}
	want := map[string]int{planner.BudgetClones + "/lab": 16, planner.BudgetClones + "/lab/h1": 4, "other": 0}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}
