package planner

import (
	"encoding/json"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// Only masters that are members are given the keys: another one gets them when it joins.
func TestTokenKeys(t *testing.T) {
	t.Parallel()
	w := running(t, 3, 2, v)
	w.Machines[2].Kubernetes, w.Machines[2].State = "", director.MachineDetached
	c, err := TokenKeys(w, plan.Request{Operation: plan.ClusterTokenKeys})
	if diff := cmp.Diff([]string{"cluster_users/demo"}, ids(t, c, err)); diff != "" {
		t.Fatalf("-want +got:\n%s", diff)
	}
	var p step.PlayParams
	if err := json.Unmarshal(c.Steps[0].Params, &p); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"demo-master-1", "demo-master-2"}, p.Limit); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
	if c.Steps[0].Safety != safeKeys {
		t.Errorf("a person is told: %s", c.Steps[0].Safety)
	}
	w.Installed = nil
	if _, err := TokenKeys(w, plan.Request{}); director.KindOf(err) != director.KindConflict {
		t.Errorf("a cluster that is not installed: %v", err)
	}
}
