package vms_test

import (
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/servicetest"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/vms"
)

func TestReclaim(t *testing.T) {
	t.Parallel()
	l := openLab(t, 1, 3)
	ctx := t.Context()
	one, two := l.Made["c000-w-1"], l.Made["c000-w-2"]
	if err := l.AddPlan(ctx, "p1", true, one, two); err != nil {
		t.Fatal(err)
	}
	vm1, vm2 := l.MakeVM(t, one), l.MakeVM(t, two)
	if err := l.EndPlan(ctx, "p1", plan.PlanDone); err != nil {
		t.Fatal(err)
	}
	stranger := l.World.AddStranger("c000-w-3")
	if diff := cmp.Diff([]string{"stranger c000-w-3"}, l.found(t)); diff != "" {
		t.Error(diff)
	}
	_, err := l.Reclaim(ctx, "admin", "lab", string(stranger), true)
	servicetest.WantKind(t, err, director.KindConflict, "no stamp", "left as it is")
	_, err = l.Reclaim(ctx, "admin", "lab", string(vm1.ID), true)
	servicetest.WantKind(t, err, director.KindConflict, "machine c000-w-1 of cluster c000",
		"directorctl node delete c000 c000-w-1")
	_, err = l.Reclaim(ctx, "admin", "lab", "sim-9999", true)
	servicetest.WantKind(t, err, director.KindNotFound)
	_, err = l.Reclaim(ctx, "admin", "labb", string(vm1.ID), true)
	servicetest.WantKind(t, err, director.KindNotFound, "lab")

	// A row is lost, and a plan that was made before still means to make the VM: neither a planned nor a failed one may
	// be pulled the rug from under.
	l.Forget(t, two)
	if diff := cmp.Diff([]string{"orphan c000-w-2", "stranger c000-w-3"}, l.found(t)); diff != "" {
		t.Error(diff)
	}
	if err := l.AddPlan(ctx, "p2", false, two); err != nil {
		t.Fatal(err)
	}
	_, err = l.Reclaim(ctx, "admin", "lab", string(vm2.ID), false)
	servicetest.WantKind(t, err, director.KindConflict, "plan p2 is planned and still means to make machine",
		"discard p2")
	if err := l.EndPlan(ctx, "p2", plan.PlanDiscarded); err != nil {
		t.Fatal(err)
	}
	// The director dies between its word and the deed: the same again does the rest.
	l.World.Inject(sim.Fault{Verb: sim.VerbDelete})
	_, err = l.Reclaim(ctx, "admin", "lab", string(vm2.ID), false)
	servicetest.WantKind(t, err, director.KindUnavailable)
	if diff := cmp.Diff([]string{"orphan c000-w-2", "stranger c000-w-3"}, l.found(t)); diff != "" {
		t.Error(diff)
	}
	// Meanwhile nobody can take up the identity: it is a tombstone, and the planner counts it.
	servicetest.WantKind(t, l.AddPlan(ctx, "p3", true, two), director.KindConflict, "was taken away", "plan again")
	rows, err := l.Store.Machines(ctx, store.MachineFilter{ClusterUID: two.ClusterUID, Tombstones: true})
	if err != nil || len(rows) != 2 || rows[1].Name != two.Name || rows[1].Deleted.IsZero() || rows[1].Pool != "w" {
		t.Fatalf("got %+v, %v", rows, err)
	}
	if got, err := l.Reclaim(ctx, "admin", "lab", string(vm2.ID), false); err != nil || got.Name != two.Name {
		t.Fatalf("got %+v, %v", got, err)
	}
	if diff := cmp.Diff([]string{"stranger c000-w-3"}, l.found(t)); diff != "" {
		t.Error(diff)
	}
	if _, err := sim.Open(l.World).Get(ctx, stranger); err != nil {
		t.Error(err)
	}
	// Somebody has renamed an orphan: its tombstone is the node's all the same, or the planner would use its id again
	// and again.
	three := l.Made["c000-w-3"]
	odd, err := sim.Open(l.World).Ensure(ctx, hypervisor.Spec{
		Key: director.Stamp{Director: l.Director.ID, Machine: three.ID}, Name: "odd", CPUs: 1, Memory: 1 << 30,
		Image: "node", RootDisk: 1 << 30,
		NICs: []hypervisor.NIC{{Network: "net", MAC: three.MAC}},
		Seed: hypervisor.Seed{UserData: []byte("#cloud-config\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Reclaim(ctx, "admin", "lab", string(odd.ID), false); err != nil {
		t.Error(err)
	}
	if row, there, err := l.Store.Machine(
		ctx, three.ID,
	); err != nil || !there || row.Name != three.Name || row.ClusterUID != three.ClusterUID {
		t.Errorf("got %+v, %v", row, err)
	}
}

// Another director's VMs are strangers, whatever their names.
func TestReclaimAndAdoptLeaveOthersAlone(t *testing.T) {
	t.Parallel()
	l := openLab(t, 1, 1)
	m := l.Made["c000-w-1"]
	vm, err := sim.Open(l.World).Ensure(t.Context(), hypervisor.Spec{
		Key: director.Stamp{Director: "theirs", Machine: m.ID}, Name: m.Name, CPUs: 1, Memory: 1 << 30, Image: "node",
		RootDisk: 1 << 30,
		NICs:     []hypervisor.NIC{{Network: "net", MAC: m.MAC}},
		Seed:     hypervisor.Seed{UserData: []byte("#cloud-config\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	_, err = l.Reclaim(t.Context(), "admin", "lab", string(vm.ID), true)
	servicetest.WantKind(t, err, director.KindConflict, "director theirs")
	_, err = l.Adopt(t.Context(), "admin", "lab", string(vm.ID), vms.Addresses{First: m.Address})
	servicetest.WantKind(t, err, director.KindConflict, "director theirs")
	if diff := cmp.Diff([]string{"stranger c000-w-1"}, l.found(t)); diff != "" {
		t.Error(diff)
	}
}

func TestAdopt(t *testing.T) {
	t.Parallel()
	l := openLab(t, 2, 3)
	ctx := t.Context()
	one, two, three := l.Made["c000-w-1"], l.Made["c000-w-2"], l.Made["c000-w-3"]
	if err := l.AddPlan(ctx, "p1", true, one, two); err != nil {
		t.Fatal(err)
	}
	vm1, vm2 := l.MakeVM(t, one), l.MakeVM(t, two)
	adopt := func(vm hypervisor.VM, address string) (director.Machine, error) {
		return l.Adopt(ctx, "admin", "lab", string(vm.ID), vms.Addresses{First: address})
	}
	// What is in the ledger and where it should be needs nothing.
	if got, err := adopt(vm1, ""); err != nil || got.ID != one.ID {
		t.Errorf("got %+v, %v", got, err)
	}
	// The row was lost with a restored backup; the plan remembers the address.
	l.Forget(t, two)
	_, err := adopt(vm2, "")
	servicetest.WantKind(t, err, director.KindConflict, "plan p1 holds cluster c000")
	if err := l.EndPlan(ctx, "p1", plan.PlanDone); err != nil {
		t.Fatal(err)
	}
	_, err = adopt(vm2, "10.64.9.9")
	servicetest.WantKind(t, err, director.KindConflict, "has the address "+two.Address)
	got, err := adopt(vm2, "")
	want := two
	want.State, want.VMID, want.Host = director.MachinePresent, string(vm2.ID), vm2.Host
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v\n%s", err, diff)
	}
	if row, _, err := l.Store.Machine(
		ctx, two.ID,
	); err != nil || row.Address != two.Address || row.State != director.MachinePresent {
		t.Errorf("got %+v, %v", row, err)
	}
	// A VM that turned up after its row was buried: the tombstone comes to life again.
	if err := l.Store.BuryMachine(ctx, one.ID, time.Now()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"orphan c000-w-1"}, l.found(t)); diff != "" {
		t.Error(diff)
	}
	if got, err := adopt(vm1, ""); err != nil || got.Address != one.Address || !got.Deleted.IsZero() {
		t.Errorf("got %+v, %v", got, err)
	}
	// Nobody remembers: neither a row nor a plan. The stamp proves the cluster and the name; the address has to be
	// said, and to be right.
	if err := l.Store.Update(ctx, func(tx *store.Tx) error { return tx.IntendMachine(three, time.Now()) }); err != nil {
		t.Fatal(err)
	}
	vm3 := l.MakeVM(t, three)
	l.Forget(t, three)
	_, err = adopt(vm3, "")
	servicetest.WantKind(t, err, director.KindInvalid, "there is no record of the address", "--address")
	_, err = adopt(vm3, "192.0.2.1")
	servicetest.WantKind(t, err, director.KindInvalid, "not an address of Network/net")
	_, err = adopt(vm3, one.Address)
	servicetest.WantKind(t, err, director.KindConflict, one.Address)
	if got, err := adopt(
		vm3, three.Address,
	); err != nil || got.MAC != three.MAC || got.Pool != "w" || got.Kubernetes != "" {
		t.Errorf("got %+v, %v", got, err)
	}
	if got := l.found(t); got != nil {
		t.Errorf("still found: %v", got)
	}
	// A VM that somebody moved is written down where it is.
	if err := l.Store.SetMachine(ctx, one.ID, director.MachinePresent, "h9", ""); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"drift c000-w-1"}, l.found(t)); diff != "" {
		t.Error(diff)
	}
	if got, err := adopt(vm1, ""); err != nil || got.Host != vm1.Host {
		t.Errorf("got %+v, %v", got, err)
	}
	// The cluster of that uid is gone: a namesake is another cluster.
	l.Forget(t, two)
	if _, err := l.Store.SQL().ExecContext(
		ctx, "UPDATE documents SET uid = 'another' WHERE kind = 'Cluster' AND name = 'c000'",
	); err != nil {
		t.Fatal(err)
	}
	_, err = adopt(vm2, "")
	servicetest.WantKind(t, err, director.KindConflict, "is gone", "directorctl vms reclaim lab "+string(vm2.ID))
	if _, err := l.Reclaim(ctx, "admin", "lab", string(vm2.ID), true); err != nil {
		t.Error(err)
	}
}

// A VM with several adapters that nobody remembers: each address is asked for, and has to be right. An adapter that the
// document has got since is none of the VM's.
func TestAdoptWithSeveralAdapters(t *testing.T) {
	t.Parallel()
	l := openLab(t, 1, 1)
	ctx := t.Context()
	docs := "apiVersion: kaas/v1\nkind: Network\nmetadata: {name: store}\nspec: {provider: lab, mode: isolated, " +
		"cidr: 10.65.0.0/24, gateway: 10.65.0.1, pool: {from: 10.65.0.10, to: 10.65.0.20}}\n" +
		"---\napiVersion: kaas/v1\nkind: Network\nmetadata: {name: front}\nspec: {provider: lab, mode: isolated, " +
		"cidr: 10.66.0.0/24, gateway: 10.66.0.1, pool: {from: 10.66.0.10, to: 10.66.0.20}}\n" +
		"---\napiVersion: kaas/v1\nkind: Cluster\nmetadata: {name: c000}\nspec: {release: k8s, provider: lab, " +
		"image: node, network: net, workers: [{name: w, count: 1," +
		" interfaces: [{role: storage, network: store}, {role: services, network: front}]}]}\n"
	l.Put(t, docs)
	doc, err := l.Store.Document(ctx, model.Ref{Kind: model.KindCluster, Name: "c000"})
	if err != nil {
		t.Fatal(err)
	}
	one := l.Made["c000-w-1"]
	want, ok := planner.Member(doc, one.Name, one.ID, nil)
	if !ok || len(want.NICs) != 2 || want.NICs[0].Network != "front" {
		t.Fatalf("the document wants %+v", want)
	}
	b, err := l.Env.Backends.Backend(ctx, "lab")
	if err != nil {
		t.Fatal(err)
	}
	network := hypervisor.NetworkSpec{
		Owner: director.Stamp{Director: l.Director.ID, Machine: "n2"}, Name: "store", Mode: "isolated",
		CIDR: netip.MustParsePrefix("10.65.0.0/24"), Gateway: netip.MustParseAddr("10.65.0.1"),
	}
	if err := b.(hypervisor.Networking).EnsureNetwork(ctx, network); err != nil {
		t.Fatal(err)
	}
	vm, err := b.Ensure(ctx, hypervisor.Spec{
		Key: director.Stamp{Director: l.Director.ID, Machine: one.ID}, Name: one.Name, Image: "node", CPUs: 1,
		Memory: 1 << 30, RootDisk: 30 << 30,
		NICs: []hypervisor.NIC{{Network: "net", MAC: one.MAC}, {Network: "store", MAC: want.NICs[1].MAC}},
		Seed: hypervisor.Seed{UserData: []byte("#cloud-config\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	adopt := func(address string, further map[string]string) (director.Machine, error) {
		return l.Adopt(ctx, "admin", "lab", string(vm.ID), vms.Addresses{First: address, Further: further})
	}
	_, err = adopt("", nil)
	servicetest.WantKind(t, err, director.KindInvalid, "on network net, store",
		"--address ADDRESS --address store=ADDRESS")
	_, err = adopt("10.64.1.0", nil)
	servicetest.WantKind(t, err, director.KindInvalid, "on network store", "--address store=ADDRESS")
	_, err = adopt("10.64.1.0", map[string]string{"store": "10.65.1.10"})
	servicetest.WantKind(t, err, director.KindInvalid, "not an address of Network/store")
	_, err = adopt("10.64.1.0", map[string]string{"store": "10.65.0.10", "front": "10.66.0.10"})
	servicetest.WantKind(t, err, director.KindConflict, "no further adapter on network front")
	got, err := adopt("10.64.1.0", map[string]string{"store": "10.65.0.10"})
	if err != nil {
		t.Fatal(err)
	}
	row, _, err := l.Store.Machine(ctx, one.ID)
	if diff := cmp.Diff(
		[]director.NIC{{Role: "storage", Network: "store", Address: "10.65.0.10", MAC: want.NICs[1].MAC}}, row.NICs,
	); diff != "" || err != nil || got.Address != "10.64.1.0" {
		t.Errorf("the row has the adapters (-want +got), %v:\n%s", err, diff)
	}
}

// A row that vanished from under a plan is written again before the hypervisor is asked: a retry after an undo must not
// make a VM that nobody knows.
func TestNoVMWithoutARow(t *testing.T) {
	t.Parallel()
	l := openLab(t, 1, 1)
	m := l.Made["c000-w-1"]
	if err := l.AddPlan(t.Context(), "p1", true, m); err != nil {
		t.Fatal(err)
	}
	l.MakeVM(t, m)
	if err := l.Step(t.Context(), l.Env, step.VMDelete, m); err != nil { // what undo does
		t.Fatal(err)
	}
	l.MakeVM(t, m)
	row, there, err := l.Store.Machine(t.Context(), m.ID)
	if err != nil || !there || !row.Deleted.IsZero() || row.State != director.MachinePresent {
		t.Errorf("got %+v, %v, %v", row, there, err)
	}
	if got := l.found(t); got != nil {
		t.Errorf("found %v", got)
	}
}

func TestVMs(t *testing.T) {
	t.Parallel()
	l := openLab(t, 1, 3)
	ctx := t.Context()
	one, two, three := l.Made["c000-w-1"], l.Made["c000-w-2"], l.Made["c000-w-3"]
	if err := l.AddPlan(ctx, "p1", true, one, two, three); err != nil {
		t.Fatal(err)
	}
	l.MakeVM(t, one)
	l.MakeVM(t, two)
	l.Forget(t, two)
	l.World.AddStranger("mail")
	for strangers, want := range map[bool][]string{
		false: {"c000-w-1 ledger on present", "c000-w-2 orphan on ", "c000-w-3 ledger  intended"},
		true:  {"c000-w-1 ledger on present", "c000-w-2 orphan on ", "c000-w-3 ledger  intended", "mail stranger on "},
	} {
		v, err := l.List(ctx, strangers, "lab")
		var got []string
		for _, i := range v.Items {
			got = append(got, fmt.Sprintf("%s %s %s %s", i.VM.Name, i.Owner, i.VM.Power, i.Machine.State))
		}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%v: %s", err, diff)
		}
	}
	// A host that does not answer hides nothing of the ledger, and is no reason to call anything a ghost.
	l.World.SetReachable("h1", false)
	v, err := l.List(ctx, false)
	if err != nil || len(v.Items) != 2 || v.Providers[0].Err == nil {
		t.Errorf("got %+v, %v", v, err)
	}
	r, err := l.Audit(ctx)
	if err != nil || len(r.Findings) != 0 || r.Providers[0].Err == nil {
		t.Errorf("got %+v, %v", r, err)
	}
	_, err = l.Audit(ctx, "none")
	servicetest.WantKind(t, err, director.KindNotFound, "lab")
}
