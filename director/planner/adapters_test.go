package planner

import (
	"encoding/json"
	"errors"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// adapters is the demo's world in which masters have a storage adapter, and workers one for services, that has the
// default route, and one for storage.
func adapters(t *testing.T) World {
	t.Helper()
	w := demo(t)
	underlay := func(name, cidr string, gateway bool) Underlay {
		n := &model.Network{Provider: "lab", Mode: "bridge", Bridge: "br-" + name, CIDR: netip.MustParsePrefix(cidr)}
		first := n.CIDR.Addr().Next()
		n.Pool.Ranges = []model.AddressRange{{From: first.Next(), To: first.Next().Next().Next()}}
		if gateway {
			n.Gateway = first
		}
		d := model.Document{Kind: model.KindNetwork, Metadata: model.Metadata{Name: name}, Network: n}
		return Underlay{Stored: model.Stored{Document: d, UID: "u-" + name, Generation: 1}, Used: map[netip.Addr]bool{}}
	}
	w.Underlays = map[string]Underlay{
		"nfs": underlay("nfs", "10.90.0.0/24", false), "front": underlay("front", "10.91.0.0/24", true),
	}
	c := *w.Cluster.Cluster
	c.Workers = slices.Clone(c.Workers)
	c.Masters.Interfaces = []model.Interface{
		{Role: model.NICStorage, Network: "nfs", Addresses: []netip.Addr{netip.MustParseAddr("10.90.0.50")}},
	}
	c.Workers[0].Interfaces = []model.Interface{
		{Role: model.NICStorage, Network: "nfs"}, {Role: model.NICServices, Network: "front", DefaultRoute: true},
	}
	w.Cluster.Cluster = &c
	return w
}

// Each adapter has an address of its own network's pool or of the document, a MAC that stays, and its network is made
// before the VM.
func TestAdapters(t *testing.T) {
	t.Parallel()
	w := adapters(t)
	w.Underlays["nfs"].Used[netip.MustParseAddr("10.90.0.2")] = true
	c, err := Create(w)
	steps := ids(t, c, err)
	f, err := step.DecodeFacts(c)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	macs := map[string]bool{}
	for _, m := range f.Nodes {
		macs[m.MAC] = true
		got = append(got, m.Name+" "+m.Network+" "+m.Address)
		for _, n := range m.NICs {
			macs[n.MAC] = true
			got = append(got, m.Name+" "+n.Role+" "+n.Network+" "+n.Address)
		}
	}
	want := []string{
		"demo-master-1 demo 10.88.0.10", "demo-master-1 storage nfs 10.90.0.50",
		"demo-worker-1 demo 10.88.0.12", "demo-worker-1 services front 10.91.0.2",
		"demo-worker-1 storage nfs 10.90.0.3",
	}
	if diff := cmp.Diff(want, got); diff != "" || len(macs) != len(want) {
		t.Errorf("%d MACs, addresses (-want +got):\n%s", len(macs), diff)
	}
	for _, id := range []string{"network.ensure/demo", "network.ensure/nfs", "network.ensure/front"} {
		if n := len(slices.DeleteFunc(slices.Clone(steps), func(s string) bool { return s != id })); n != 1 {
			t.Errorf("%s stands %d times in the plan", id, n)
		}
	}
	for _, s := range c.Steps {
		if s.ID != "vm.ensure/demo-worker-1" {
			continue
		}
		for _, need := range []string{"network.ensure/demo", "network.ensure/nfs", "network.ensure/front"} {
			if !slices.Contains(s.Needs, need) {
				t.Errorf("the VM does not wait for %s", need)
			}
		}
		var p step.VMParams
		if err := json.Unmarshal(s.Params, &p); err != nil {
			t.Fatal(err)
		}
		if len(p.NICs) != 2 || p.NICs[0].Role != model.NICServices || !p.NICs[0].DefaultRoute ||
			p.NICs[1].DefaultRoute {
			t.Errorf("the adapters are %+v", p.NICs)
		}
		// With the default route elsewhere, the path to the director is one of its own.
		if len(p.Routes) != 1 || p.Routes[0].To.String() != "172.30.0.1/32" ||
			p.Routes[0].Via != w.Network.Network.Gateway {
			t.Errorf("the routes are %+v", p.Routes)
		}
	}
	if again, err := Create(w); err != nil || plan.HashOf(again) != plan.HashOf(c) {
		t.Errorf("the same world gives another plan: %v", err)
	}
	if len(c.Models) != 7 {
		t.Errorf("the plan is made from %v", c.Models)
	}
}

// runningAdapters is that world with its nodes in the cluster.
func runningAdapters(t *testing.T) World {
	t.Helper()
	w := adapters(t)
	w.Machines = ledger(t, w)
	w.Seen = map[string]Seen{}
	for i := range w.Machines {
		m := &w.Machines[i]
		m.State, m.Kubernetes, m.VMID = director.MachinePresent, v, "vm-"+m.Name
		w.Used[netip.MustParseAddr(m.Address)] = true
		for _, n := range m.NICs {
			w.Underlays[n.Network].Used[netip.MustParseAddr(n.Address)] = true
		}
		w.Seen[m.Name] = Seen{Ready: true, Etcd: m.Role == director.RoleMaster}
	}
	w.Installed = &Installed{Generation: 1, Cluster: *w.Cluster.Cluster}
	return w
}

// The rollback of a worker may not need steps of the plan: its networks are there.
func TestAWorkerWithAdaptersHasAWayBack(t *testing.T) {
	t.Parallel()
	for _, strategy := range []string{model.UpgradeInPlace, model.UpgradeReconstitute, model.UpgradeReplace} {
		w := runningAdapters(t)
		w.Cluster.Cluster.Maintenance.Strategy = strategy
		former(&w)
		release(&w, "v1.38.0")
		c, err := Apply(w, plan.Request{})
		steps := ids(t, c, err)
		if len(backOf(c)) == 0 {
			t.Errorf("%s: no rollback in %v", strategy, steps)
		}
		if made := slices.Contains(steps, "network.ensure/front"); made != (strategy != model.UpgradeInPlace) {
			t.Errorf("%s: the networks are made: %v", strategy, made)
		}
	}
}

// A node that is recreated has the adapters of its row; one that is new has those of the document, and its networks are
// made.
func TestAdaptersOfARunningCluster(t *testing.T) {
	t.Parallel()
	w := runningAdapters(t)
	want(&w, func(c *model.Cluster) { c.Workers[0].Count = 2 })
	c, err := Apply(w, plan.Request{})
	if steps := ids(t, c, err); !slices.Contains(steps, "network.ensure/front") {
		t.Errorf("the steps are %v", steps)
	}
	f, err := step.DecodeFacts(c)
	if err != nil {
		t.Fatal(err)
	}
	var second director.Machine
	for _, m := range f.Nodes {
		if m.Name == "demo-worker-2" {
			second = m.Row()
		}
	}
	if second.On("front") != "10.91.0.3" || second.On("nfs") != "10.90.0.3" {
		t.Errorf("the second worker has %+v", second)
	}
	want(&w, func(c *model.Cluster) { c.Workers[0].Count, c.Workers[0].Interfaces = 1, nil })
	c, err = Node(w, plan.Request{Operation: plan.NodeReplace, Nodes: []string{"demo-worker-1"}})
	ids(t, c, err)
	for _, s := range c.Steps {
		if s.ID == "vm.ensure/demo-worker-1" && !strings.Contains(string(s.Params), `"10.91.0.2"`) {
			t.Errorf("the VM that is recreated lost its adapter: %s", s.Params)
		}
	}
}

func TestAdaptersWithoutAddresses(t *testing.T) {
	t.Parallel()
	w := adapters(t)
	want(&w, func(c *model.Cluster) { c.Workers[0].Count = 4 })
	_, err := Create(w)
	fields := fieldsOf(err)
	if director.KindOf(err) != director.KindExhausted || len(fields) != 1 ||
		fields[0].Path != "spec.workers[0].interfaces[1].network" {
		t.Errorf("got %v, %v", err, fields)
	}
	w = adapters(t)
	w.Underlays["nfs"].Used[netip.MustParseAddr("10.90.0.50")] = true
	_, err = Create(w)
	fields = fieldsOf(err)
	if director.KindOf(err) != director.KindConflict || len(fields) != 1 ||
		fields[0].Path != "spec.masters.interfaces[0].network" {
		t.Errorf("got %v, %v", err, fields)
	}
}

// The networks go with the last cluster that uses them.
func TestDeletionOfUnderlays(t *testing.T) {
	t.Parallel()
	w := adapters(t)
	w.Machines = ledger(t, w)
	shared := w.Underlays["nfs"]
	shared.Sharers = []string{"other"}
	w.Underlays["nfs"] = shared
	c, err := Delete(w, plan.Request{})
	steps := ids(t, c, err)
	if !slices.Contains(steps, "network.delete/front") || !slices.Contains(steps, "network.delete/demo") ||
		slices.Contains(steps, "network.delete/nfs") {
		t.Errorf("the steps are %v", steps)
	}
}

func fieldsOf(err error) []director.Field {
	e, _ := errors.AsType[*director.Error](err)
	if e == nil {
		return nil
	}
	return e.Fields
}
