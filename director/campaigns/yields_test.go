package campaigns_test

import (
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/campaigns"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
)

// A person's plan that was made in place of the campaign's stays until it is discarded.
func TestYieldsToThePlanOfAPerson(t *testing.T) {
	t.Parallel()
	w := open(t, 2)
	s := w.service(time.Minute)
	v, err := s.Create(t.Context(), ann, "yields", upgrade())
	v = must(t, v, err)
	v = tick(t, s, v.ID)
	remove := plan.Request{Operation: plan.ClusterDelete}
	theirs, err := w.MakePlanWith(t.Context(), "bob", "c000", remove, func(*store.Tx, string) error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	status := func() plan.Status {
		t.Helper()
		_, state, err := w.db.Plan(t.Context(), theirs.Plan.ID)
		if err != nil {
			t.Fatal(err)
		}
		return state.Status
	}
	v = tick(t, s, v.ID)
	if status() != plan.StatusPlanned || campaigns.StateOf(v.Clusters[0]) != campaigns.Outdated ||
		!strings.Contains(v.Clusters[0].Message, theirs.Plan.ID) {
		t.Fatalf("bob's plan is %s, and the cluster %+v", status(), v.Clusters[0])
	}
	if err := w.event(t.Context(), theirs.Plan.ID, plan.PlanDiscarded); err != nil {
		t.Fatal(err)
	}
	v, err = s.Resume(t.Context(), ann, v.ID)
	v = must(t, v, err)
	if v = tick(t, s, v.ID); campaigns.StateOf(v.Clusters[0]) != campaigns.Planned || v.Clusters[0].Message != "" {
		t.Errorf("%+v", v.Clusters[0])
	}
}
