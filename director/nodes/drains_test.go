package nodes

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director/kube"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/servicetest"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/store"
)

// drainStep is as the planner makes it.
func drainStep(t *testing.T, node string, unmanaged, local bool) plan.Step {
	t.Helper()
	params, err := json.Marshal(step.PlayParams{
		Playbook: "drain_worker", Limit: []string{node},
		Vars: map[string]any{step.DrainUnmanaged: unmanaged, step.DrainLocalData: local},
	})
	if err != nil {
		t.Fatal(err)
	}
	return plan.Step{
		ID: "drain/" + node, Kind: step.Play, Params: params,
		Effects: []plan.Effect{{Verb: plan.VerbEvict, Object: "pod", Name: node}},
	}
}

func TestDrainsOfAPlan(t *testing.T) {
	t.Parallel()
	other := plan.Step{
		ID: "delete/w1", Kind: step.Play, Effects: []plan.Effect{{Verb: "delete", Object: "api", Name: "node/w1"}},
	}
	p := plan.Plan{Content: plan.Content{Steps: []plan.Step{
		drainStep(t, "w1", false, true), other, drainStep(t, "w2", true, false), drainStep(t, "w3", false, false),
		drainStep(t, "w4", false, false),
	}}}
	state := plan.NewState(&p)
	state.Step("drain/w2").Status = plan.Parked
	state.Step("drain/w3").Status, state.Step("drain/w4").Status = plan.Done, plan.Skipped
	var out Drains
	limits, err := drainsOf(p, state, &out)
	if err != nil {
		t.Fatal(err)
	}
	want := Drains{Items: []Drain{{Step: "drain/w1", Node: "w1"}, {Step: "drain/w2", Node: "w2"}}}
	if diff := cmp.Diff(want, out); diff != "" {
		t.Errorf("drains (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff([]kube.DrainLimits{{LocalData: true}, {Unmanaged: true}}, limits); diff != "" {
		t.Errorf("how far they may go (-want +got):\n%s", diff)
	}
}

// A plan for hundreds of nodes asks its cluster about the first ones only, and says of how many it does not know.
func TestDrainsOfALargePlan(t *testing.T) {
	t.Parallel()
	var p plan.Plan
	for i := range MostDrains + 7 {
		p.Steps = append(p.Steps, drainStep(t, fmt.Sprintf("w%d", i), false, false))
	}
	var out Drains
	if _, err := drainsOf(p, plan.NewState(&p), &out); err != nil || len(out.Items) != MostDrains || out.Rest != 7 {
		t.Errorf("%d drains, %d more, %v", len(out.Items), out.Rest, err)
	}
}

// A cluster that cannot be asked is no error: the drain says why nothing is known of it.
func TestDrainsOfAClusterThatCannotBeAsked(t *testing.T) {
	t.Parallel()
	l := servicetest.Open(t, 1, 1)
	p := plan.Plan{ID: "p1", CreatedAt: time.Now(), Content: plan.Content{
		Operation: plan.NodeDrain, Cluster: "c000", Facts: json.RawMessage("{}"),
		Steps: []plan.Step{drainStep(t, "c000-w-1", false, false)},
	}}
	p.Hash = plan.HashOf(p.Content)
	if err := l.Store.Update(t.Context(), func(tx *store.Tx) error { return tx.AddPlan(p) }); err != nil {
		t.Fatal(err)
	}
	s := New(Config{Store: l.Store, Clusters: l.Env, Now: time.Now, Log: slog.New(slog.DiscardHandler)})
	d, err := s.RehearseDrains(t.Context(), "p1")
	if err != nil {
		t.Fatal(err)
	}
	want := []Drain{{Step: "drain/c000-w-1", Node: "c000-w-1", Unseen: "cluster c000 is not installed"}}
	if diff := cmp.Diff(want, d.Items); diff != "" {
		t.Errorf("drains (-want +got):\n%s", diff)
	}
}
