package planner

import (
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// drillable is a cluster that names a network for drills.
func drillable(t *testing.T) World {
	t.Helper()
	w := restorable(t, 3, 2)
	want(&w, func(c *model.Cluster) { c.Backup.Drill.Network = "drills" })
	doc := model.Document{
		Kind: model.KindNetwork, Metadata: model.Metadata{Name: "drills"}, Network: &model.Network{
			Provider: w.Cluster.Cluster.Provider, Mode: "isolated", CIDR: netip.MustParsePrefix("10.90.0.0/24"),
			Gateway: netip.MustParseAddr("10.90.0.1"), DNS: []netip.Addr{netip.MustParseAddr("10.90.0.1")},
			Pool:   model.AddressPool{From: netip.MustParseAddr("10.90.0.1"), To: netip.MustParseAddr("10.90.0.9")},
			Routes: []model.Route{{To: netip.MustParsePrefix("10.0.0.0/8"), Via: netip.MustParseAddr("10.90.0.1")}},
		},
	}
	w.Underlays = map[string]Underlay{"drills": {Stored: model.Stored{Document: doc, UID: "uid-drills", Generation: 1}}}
	return w
}

var drillRequest = plan.Request{Operation: plan.ClusterDrill, Restore: plan.Restore{Backup: "b1"}}

func TestDrill(t *testing.T) {
	t.Parallel()
	w := drillable(t)
	before := *w.Cluster.Cluster
	c, err := Drill(w, drillRequest)
	got := ids(t, c, err)
	golden(t, "testdata/drill.golden.json", c)
	if d := cmp.Diff(before, *w.Cluster.Cluster, cmp.Comparer(func(a, b netip.Addr) bool { return a == b }),
		cmp.Comparer(func(a, b netip.Prefix) bool { return a == b })); d != "" {
		t.Errorf("the document is another one: %s", d)
	}
	for _, s := range c.Steps {
		if s.Node != "" && s.Node != "demo-drill" || strings.Contains(string(s.Params), "demo-master-") {
			t.Errorf("step %s works on a node of the cluster", s.ID)
		}
	}
	if tail := got[len(got)-3:]; !slices.Equal(
		tail, []string{"vm.delete-undo/demo-drill", "network.delete-undo/drills", "drill.end-undo/demo-drill"},
	) {
		t.Errorf("the drill ends with %v", tail)
	}
	if len(c.Approvals) > 0 || len(c.Machines) != 1 {
		t.Errorf("approvals %v, machines %v", c.Approvals, c.Machines)
	}
	if uid := step.ClusterUID(c); uid != w.Cluster.UID {
		t.Errorf("the plan is of the cluster %q", uid)
	}
}

// The VM of a drill has no way but the one to the director, and an address that no router has.
func TestDrillIsSecluded(t *testing.T) {
	t.Parallel()
	for address, routes := range map[string]int{"172.30.0.1": 1, "10.90.0.1": 0} {
		w := drillable(t)
		w.Director.Address = address
		alone, err := w.drill().secluded()
		if err != nil {
			t.Fatal(err)
		}
		m, err := alone.drill().drillMachine()
		if err != nil {
			t.Fatal(err)
		}
		p := alone.params().vmParams(m)
		if p.Network.Gateway.IsValid() || p.Network.DNS != nil || len(p.Network.Routes) != routes || p.NICs != nil ||
			routes == 1 && p.Network.Routes[0].To.String() != address+"/32" {
			t.Errorf("the VM's network is %+v", p.Network)
		}
		if m.Address != "10.90.0.2" || m.ClusterUID == w.Cluster.UID || m.DataDisk != 0 || p.Persist != nil {
			t.Errorf("the machine is %+v", m)
		}
	}
}

func TestDrillIsRefused(t *testing.T) {
	t.Parallel()
	network := func(change func(n *model.Network)) func(*World) {
		return func(w *World) { change(w.Underlays["drills"].Network) }
	}
	for name, tt := range map[string]struct {
		change func(w *World)
		says   string
	}{
		"without a network": {
			func(w *World) { want(w, func(c *model.Cluster) { c.Backup.Drill.Network = "" }) },
			"names no network for drills",
		},
		"on the nodes' network": {
			func(w *World) {
				want(w, func(c *model.Cluster) { c.Backup.Drill.Network = c.Network })
				w.Underlays = map[string]Underlay{w.Cluster.Cluster.Network: {Stored: w.Network}}
			}, "is a network of the cluster's nodes",
		},
		"over the nodes' range": {
			network(func(n *model.Network) { n.CIDR = netip.MustParsePrefix("10.0.0.0/8") }), "overlaps with the range",
		},
		"on another provider": {
			network(func(n *model.Network) { n.Provider = "elsewhere" }), "is on provider elsewhere",
		},
		"without addresses": {
			func(w *World) {
				u := w.Underlays["drills"]
				u.Used = map[netip.Addr]bool{}
				for a := u.Network.Pool.From; a.Compare(u.Network.Pool.To) <= 0; a = a.Next() {
					u.Used[a] = true
				}
				w.Underlays["drills"] = u
			}, "too few free addresses",
		},
		"while another is there": {
			func(w *World) { w.Drills = []director.Machine{{ID: "m1", Name: "demo-drill"}} }, "another drill",
		},
		"of another minor": {
			func(w *World) { w.Restore.Kubernetes = "v1.30.0" }, "was made with Kubernetes v1.30.0",
		},
		"to a director that is a name": {
			func(w *World) { w.Director.Address = "director.example" }, "is a name",
		},
		"without a backup": {func(w *World) { w.Restore = nil }, "names no backup"},
	} {
		w := drillable(t)
		tt.change(&w)
		_, err := Drill(w, drillRequest)
		text := ""
		if err != nil {
			text = err.Error()
			for _, f := range director.FieldsOf(err) {
				text += f.Msg
			}
		}
		if !strings.Contains(text, tt.says) {
			t.Errorf("%s: %q", name, text)
		}
	}
}

// A machine of an earlier drill is a tombstone: the next one has another id.
func TestDrillAgain(t *testing.T) {
	t.Parallel()
	w := drillable(t)
	first, err := Drill(w, drillRequest)
	if err != nil {
		t.Fatal(err)
	}
	gone := time.Unix(1e9, 0)
	w.Drills = []director.Machine{{ID: first.Machines[0].ID, Name: "demo-drill", Created: gone, Deleted: gone}}
	second, err := Drill(w, drillRequest)
	if err != nil || second.Machines[0].ID == first.Machines[0].ID {
		t.Errorf("%v: %v, and before %v", err, second.Machines, first.Machines)
	}
}
