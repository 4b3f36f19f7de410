package planner

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// Every member is given the new password before the former one ends; what is no member is given it when it rejoins.
func TestRotatePullPassword(t *testing.T) {
	t.Parallel()
	w := running(t, 3, 2, v)
	w.Machines[4].Kubernetes, w.Machines[4].State = "", director.MachineDetached
	c, err := RotatePullPassword(w, plan.Request{Operation: plan.ClusterRotatePull})
	if diff := cmp.Diff(
		[]string{"pull.renew/demo", "registry_trust/demo", "pull.settle/demo"}, ids(t, c, err),
	); diff != "" {
		t.Fatalf("-want +got:\n%s", diff)
	}
	for i := 1; i < len(c.Steps); i++ {
		if diff := cmp.Diff([]string{c.Steps[i-1].ID}, c.Steps[i].Needs); diff != "" {
			t.Errorf("%s: %s", c.Steps[i].ID, diff)
		}
	}
	var p step.PlayParams
	if err := json.Unmarshal(c.Steps[1].Params, &p); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(
		[]string{"demo-master-1", "demo-master-2", "demo-master-3", "demo-worker-1"}, p.Limit,
	); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	w.Installed = nil
	if _, err := RotatePullPassword(w, plan.Request{}); director.KindOf(err) != director.KindConflict {
		t.Errorf("a cluster that is not installed: %v", err)
	}
}
