package daemon

import (
	"io"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
)

// Between a plan and its start another machine gets the MAC address that the plan has for a node: the start is refused,
// and the next plan has another address.
func TestAPlanWhoseMACWasGivenAway(t *testing.T) {
	t.Parallel()
	d, err := start(t, simulating(t, demoDocuments), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	first, err := d.services.planning.MakePlan(t.Context(), "admin", "demo", plan.Request{})
	if err != nil {
		t.Fatal(err)
	}
	node := first.Plan.Machines[1]
	take := director.Machine{
		ID: "m1", ClusterUID: "u1", Cluster: "other", Name: "other-w-1", Provider: "elsewhere", Network: "other",
		Address: "10.0.0.1",
		NICs:    []director.NIC{{Role: "storage", Network: "store", Address: "10.1.0.1", MAC: node.MAC}},
	}
	if err := d.services.db.Update(t.Context(), func(tx *store.Tx) error {
		return tx.IntendMachine(take, time.Now())
	}); err != nil {
		t.Fatal(err)
	}
	_, err = d.services.planning.StartPlan(t.Context(), "admin", first.Plan.ID, first.Plan.Hash)
	if director.KindOf(err) != director.KindConflict ||
		!strings.Contains(err.Error(), node.Name+" would get the MAC address") ||
		!strings.Contains(director.HintOf(err), "plans again") {
		t.Fatalf("the start: %v, hint %q", err, director.HintOf(err))
	}
	second := ended(t, d.services, begin(t, d.services, plan.Request{}).Plan.ID)
	wantStatus(t, second, plan.StatusDone)
	if again := second.Plan.Machines[1]; again.Name != node.Name || again.MAC == node.MAC {
		t.Errorf("%s has %s again", again.Name, again.MAC)
	}
	rows, err := d.services.db.Machines(t.Context(), store.MachineFilter{Cluster: "demo"})
	if err != nil || len(rows) != 4 {
		t.Fatal(rows, err)
	}
	for i, m := range rows {
		if m.MAC != second.Plan.Machines[i].MAC {
			t.Errorf("%s has %s, and the plan had %s", m.Name, m.MAC, second.Plan.Machines[i].MAC)
		}
	}
}
