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
		Ranges: []model.AddressRange{{
			From: netip.MustParseAddr("10.88.0.200"),
			To:   netip.MustParseAddr("10.88.0.200"),
		}},
	}
	if _, err := MakeDirector(w); director.KindOf(err) != director.KindExhausted {
		t.Errorf("no address left: %v", err)
	}
}

// TestDirectorsAreApart places a director on a host without one, however many other VMs that host has.
func TestDirectorsAreApart(t *testing.T) {
	t.Parallel()
	w := outer(t)
	first := w.Provider.Provider.Libvirt.Hosts[0]
	other := first
	other.Name = "other"
	w.Provider.Provider.Libvirt.Hosts = append(w.Provider.Provider.Libvirt.Hosts, other)
	w.Host, w.Peers = map[string]int{first.Name: 1, other.Name: 50}, map[string]int{first.Name: 1}
	c, err := MakeDirector(w)
	if err != nil || c.Machines[0].Host != other.Name {
		t.Errorf("%+v, %v: want the host %s", c.Machines, err, other.Name)
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

// upgradable is the world of a director's VM whose document asks for another image.
func upgradable(t *testing.T) World {
	t.Helper()
	w := outer(t)
	was := *w.Cluster.Director
	w.Installed = &Installed{Director: &was}
	w.Cluster.Director.Image.SHA256 = strings.Repeat("cd", 32)
	w.Cluster, w.Image = OfDirector(w.Cluster)
	w.Machines = []director.Machine{{
		ID: "m1", ClusterUID: "uid-outer", Cluster: "outer", Name: "outer", Role: director.RoleDirector,
		Pool: DirectorPool, Address: "10.88.0.77", Provider: w.Cluster.Cluster.Provider, Network: "demo",
		State: director.MachinePresent, CPUs: 2, Memory: 4 << 30, Image: "appliance-of-old", VMID: "v1",
	}}
	return w
}

func TestDirectorIsUpgraded(t *testing.T) {
	t.Parallel()
	w := upgradable(t)
	c, err := UpgradeDirector(w, plan.Request{Operation: plan.DirectorUpgrade})
	got := ids(t, c, err)
	golden(t, "testdata/director_upgrade.golden.json", c)
	if want := []string{
		"image.ensure/appliance", "director.check/outer", "vm.remove/outer", "copy.make/outer", "vm.ensure/outer",
		"director.ready/outer", "vm.remove-undo/outer", "copy.restore-undo/outer", "vm.ensure-undo/outer",
		"director.ready-undo/outer", "copy.delete-undo/outer", "director.record/outer", "copy.delete/outer",
	}; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	for _, s := range c.Steps {
		if s.Kind == "vm.ensure" && !s.Keep && !s.Back() {
			t.Errorf("%s is undone with the data disk", s.ID)
		}
	}
	if len(c.Approvals) != 2 || c.Command() != "directorctl director upgrade outer" {
		t.Errorf("approvals %v, %q", c.Approvals, c.Command())
	}
	again, err := UpgradeDirector(w, c.Request)
	if err != nil || plan.HashOf(again) != plan.HashOf(c) {
		t.Errorf("made twice, it is another plan: %v", err)
	}
}

func TestUpgradesOfADirectorThatAreNotPlain(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change    func(*World)
		r         plan.Request
		steps     int
		approvals int
		warns     string
	}{
		"as its document says": {change: func(w *World) { *w.Installed.Director = *w.Cluster.Director }},
		"more memory":          {func(w *World) { memory(w) }, plan.Request{}, 13, 2, "upgraded in place"},
		"not asked before":     {func(*World) {}, plan.Request{Unready: true}, 12, 3, ""},
		"not asked before, as its document says": {
			func(w *World) { *w.Installed.Director = *w.Cluster.Director }, plan.Request{Unready: true}, 12, 3, "",
		},
		"its VM is away": {func(w *World) {
			w.Machines[0].State = director.MachineIntended
		}, plan.Request{}, 12, 2, "an earlier plan has taken the VM away"},
		"it went back before": {
			func(w *World) { w.Gone = "p0" },
			plan.Request{},
			13,
			2, "plan p0 began the same upgrade",
		},
		"a copy is left": {func(w *World) {
			w.Disks = []director.KeptDisk{{ID: "c1.kaas-data", Plan: "p0", Machine: "c1", CopyOf: "m1.kaas-data"}}
		}, plan.Request{}, 13, 2, "plan p0 has left the copy c1.kaas-data"},
	} {
		w := upgradable(t)
		tt.change(&w)
		c, err := UpgradeDirector(w, tt.r)
		if err != nil || len(c.Steps) != tt.steps || len(c.Approvals) != tt.approvals ||
			!strings.Contains(strings.Join(c.Warnings, "\n"), tt.warns) {
			t.Errorf("%s: %v, approvals %v, warnings %v, %v", name, ids(t, c, nil), c.Approvals, c.Warnings, err)
		}
	}
	w := upgradable(t)
	w.Installed = nil
	if _, err := UpgradeDirector(w, plan.Request{}); director.KindOf(err) != director.KindConflict {
		t.Errorf("before it was made: %v", err)
	}
}

// memory has the document ask for the image that runs, and for more memory.
func memory(w *World) {
	w.Cluster.Director.Image, w.Cluster.Director.Memory = w.Installed.Director.Image, 8*model.GiB
	w.Cluster, w.Image = OfDirector(w.Cluster)
}
