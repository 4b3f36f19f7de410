package planner

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
)

// outer is the world of a director's VM on the network of the cluster demo.
func outer(t *testing.T) World {
	t.Helper()
	w := running(t, 3, 2, v)
	doc := model.Stored{UID: "uid-outer", Generation: 1, Document: model.Document{
		Kind: model.KindDirector, Metadata: model.Metadata{Name: "outer"}, Director: &model.Director{
			Provider: w.Cluster.Cluster.Provider, Network: w.Cluster.Cluster.Network, CPUs: 2, Memory: 4 * model.GiB,
			Disk: 8 * model.GiB, DataDisk: 100 * model.GiB, Credentials: "outer-admin",
			Image: model.DirectorImage{SHA256: strings.Repeat("ab", 32), Unsigned: "made in a test"},
		},
	}}
	for _, m := range w.Machines {
		w.Used[netip.MustParseAddr(m.Address)] = true
	}
	w.Machines, w.Installed, w.Sharers = nil, nil, []string{"demo"}
	w.Cluster, w.Image = OfDirector(doc)
	return w
}

func TestDirectorIsMade(t *testing.T) {
	t.Parallel()
	w := outer(t)
	c, err := MakeDirector(w)
	got := ids(t, c, err)
	golden(t, "testdata/director.golden.json", c)
	if want := []string{
		"network.ensure/demo", "image.ensure/appliance", "vm.ensure/outer", "director.ready/outer",
		"director.record/outer",
	}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if len(c.Machines) != 1 || c.Machines[0].Role != string(director.RoleDirector) || len(c.Approvals) > 0 {
		t.Errorf("%+v, approvals %v", c.Machines, c.Approvals)
	}
	again, err := MakeDirector(w)
	if err != nil || plan.HashOf(again) != plan.HashOf(c) {
		t.Errorf("made twice, it is another plan: %v", err)
	}
	row := director.Machine{
		ID: "m1", ClusterUID: "uid-outer", Cluster: "outer", Name: "outer", Role: director.RoleDirector,
		Pool: DirectorPool, Address: "10.88.0.77", Provider: w.Cluster.Cluster.Provider, Network: "demo",
	}
	w.Machines = []director.Machine{row}
	if c, err := MakeDirector(w); err != nil || c.Machines[0].ID != "m1" || c.Machines[0].Address != "10.88.0.77" {
		t.Errorf("an unfinished creation continues with %+v: %v", c.Machines, err)
	}
	w.Installed = &Installed{}
	if _, err := MakeDirector(w); director.KindOf(err) != director.KindConflict {
		t.Errorf("there already: %v", err)
	}
}

func TestAddressAndHostOfADirector(t *testing.T) {
	t.Parallel()
	w := outer(t)
	w.Cluster.Director.Address = netip.MustParseAddr("10.88.0.200")
	w.Cluster.Director.Host = "none"
	if _, err := MakeDirector(w); director.KindOf(err) != director.KindInvalid ||
		len(director.FieldsOf(err)) != 1 || !strings.Contains(director.FieldsOf(err)[0].Path, "spec.host") {
		t.Errorf("a host that there is not: %v", err)
	}
	w.Cluster.Director.Host = w.Provider.Provider.HostNames()[0]
	c, err := MakeDirector(w)
	if err != nil || c.Machines[0].Address != "10.88.0.200" || c.Machines[0].Host != w.Cluster.Director.Host {
		t.Errorf("%+v, %v", c.Machines, err)
	}
	w.Used[w.Cluster.Director.Address] = true
	if _, err := MakeDirector(w); director.KindOf(err) != director.KindConflict ||
		len(director.FieldsOf(err)) != 1 || director.FieldsOf(err)[0].Path != "spec.address" {
		t.Errorf("an address in use: %v", err)
	}
	w.Cluster.Director.Address = netip.Addr{}
	w.Network.Network.Pool = model.AddressPool{
		From: w.Cluster.Director.Address, To: w.Cluster.Director.Address,
		Ranges: []model.AddressRange{{From: netip.MustParseAddr("10.88.0.200"), To: netip.MustParseAddr("10.88.0.200")}},
	}
	if _, err := MakeDirector(w); director.KindOf(err) != director.KindExhausted {
		t.Errorf("no address left: %v", err)
	}
}

func TestDirectorIsDeleted(t *testing.T) {
	t.Parallel()
	w := outer(t)
	w.Machines = []director.Machine{{
		ID: "m1", ClusterUID: "uid-outer", Cluster: "outer", Name: "outer", Role: director.RoleDirector,
		Pool: DirectorPool, Address: "10.88.0.77", Provider: w.Cluster.Cluster.Provider, Network: "demo",
		State: director.MachinePresent,
	}}
	for _, data := range []bool{false, true} {
		c, err := DeleteDirector(w, plan.Request{Operation: plan.DirectorDelete, DeleteData: data})
		if got := ids(t, c, err); !slices.Equal(got, []string{"vm.delete/outer", "director.forget/outer"}) {
			t.Errorf("%v", got)
		}
		if want := map[bool]int{false: 1, true: 2}[data]; len(c.Approvals) != want {
			t.Errorf("approvals %v", c.Approvals)
		}
	}
	w.Sharers = nil
	c, err := DeleteDirector(w, plan.Request{})
	if got := ids(t, c, err); !slices.Contains(got, "network.delete/demo") {
		t.Errorf("the last on its network: %v", got)
	}
	w.Machines = nil
	c, err = DeleteDirector(w, plan.Request{})
	if got := ids(t, c, err); !slices.Equal(got, []string{"director.forget/outer"}) {
		t.Errorf("without a VM: %v", got)
	}
}
