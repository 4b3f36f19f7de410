package planning

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/servicetest"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/steps"
)

// crowd is a network on which hosts answer at some addresses.
type crowd struct {
	servicetest.Nowhere
	at []string
}

func (c crowd) Answers(_ context.Context, m director.Machine) (bool, error) {
	return slices.Contains(c.at, m.Address), nil
}

// crowdedBy returns env on a network on which hosts answer at the addresses.
func crowdedBy(env steps.Env, at ...string) steps.Env {
	env.Nodes = crowd{at: at}
	return env
}

// Addresses that others use are found before anything is made: VMs that the hypervisor knows of, and hosts that answer.
// The director's own VMs, made by an earlier try, are no strangers.
func TestAddressesInUse(t *testing.T) {
	t.Parallel()
	l := openLab(t, 1, 3)
	ctx := t.Context()
	l.Site = crowdedBy(l.Env, "10.64.0.5", "10.90.0.7")
	b := sim.Open(l.World)
	other := director.Stamp{Director: "another", Machine: "m9"}
	// the address of the second worker, and one of nobody
	for i, address := range []string{"10.64.1.1", "10.64.77.77"} {
		key := other
		key.Machine += string(rune('a' + i))
		_, err := b.Ensure(ctx, hypervisor.Spec{
			Key: key, Name: "stranger-" + key.Machine, CPUs: 1, Memory: 1 << 30, Image: "node", RootDisk: 1 << 30,
			Seed: hypervisor.Seed{UserData: []byte("#cloud-config\n")},
			NICs: []hypervisor.NIC{{
				Network: "net", MAC: "52:54:00:00:00:0" + key.Machine[2:],
				Addresses: []netip.Prefix{netip.MustParsePrefix(address + "/16")},
			}},
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	first := l.Made["c000-w-1"]
	if err := l.AddPlan(ctx, "p1", true, first); err != nil {
		t.Fatal(err)
	}
	l.MakeVM(t, first)
	w := planner.World{
		Provider: model.Stored{Document: model.Document{Metadata: model.Metadata{Name: "lab"}}},
		Machines: []director.Machine{first},
	}
	cluster, net := l.Docs["c000"], model.Network{Mode: "nat"}
	w.Cluster, w.Network.Network = cluster, &net
	w.Machines[0].State = director.MachinePresent
	w.Cluster.Cluster.API.VIP = netip.MustParseAddr("10.64.0.5")
	w.Cluster.Cluster.Workers[0].Interfaces = []model.Interface{{Role: model.NICStorage, Network: "nfs"}}
	w.Underlays = map[string]planner.Underlay{
		"nfs": {Stored: model.Stored{Document: model.Document{Network: &model.Network{Mode: "nat"}}}},
	}
	third := l.Made["c000-w-3"]
	third.NICs = []director.NIC{
		{Role: model.NICStorage, Network: "nfs", Address: "10.90.0.7", MAC: "52:54:00:00:00:0f"},
	}
	facts := step.Facts{Cluster: "c000", Nodes: []plan.MachineSpec{
		plan.SpecOf(first), plan.SpecOf(l.Made["c000-w-2"]), plan.SpecOf(third),
	}}

	var c plan.Content
	for _, m := range facts.Nodes {
		c.Steps = append(c.Steps, plan.Step{
			ID: step.VMEnsure + "/" + m.Name,
		}, plan.Step{ID: step.VMBoot + "/" + m.Name})
	}
	adopted := c
	adopted.Steps = []plan.Step{{ID: step.VMAdopt + "/" + third.Name}}
	if list := claims(w, adopted, facts, nil); len(list) != 0 {
		t.Errorf("a VM that is taken over answers, and its addresses are looked at: %+v", list)
	}
	list := claims(w, c, facts, map[string]bool{first.Name: true})
	if len(list) != 3 { // no virtual address: a machine of the cluster exists, and may have it
		t.Fatalf("%+v", list)
	}
	w.Machines = nil
	list = claims(w, c, facts, map[string]bool{first.Name: true})
	problems, looked, err := l.prechecks().checkAddresses(ctx, l.Reader.Of(w), b, list)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, p := range problems {
		if !strings.Contains(p.Hint, "spec.pool.exclude") {
			t.Errorf("%s: nobody says what to do", p)
		}
		got = append(got, p.Path+": "+p.Msg)
	}
	want := []string{
		"spec.network: 10.64.1.1 of Network/net, for c000-w-2, is in use: VM stranger-m9a on host h1 has it",
		"spec.api.vip: 10.64.0.5 of Network/net, for the virtual address, is in use: a host answers at its SSH port",
		"spec.workers[0].interfaces[0].network: 10.90.0.7 of Network/nfs, for c000-w-3, is in use: a host answers " +
			"at its SSH port",
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	ways := []string{"ledger", "hypervisor", "ssh port"}
	if diff := cmp.Diff(
		[]AddressCheck{{Network: "net", Addresses: 3, Ways: ways}, {Network: "nfs", Addresses: 1, Ways: ways}},
		looked,
	); diff != "" {
		t.Error(diff)
	}
	// A stranger on another network of the hypervisor that has the same range is no problem.
	if !sameNetwork(w, "nfs", "nfs") || !sameNetwork(w, "nfs", "") || sameNetwork(w, "nfs", "default") {
		t.Error("networks are taken for each other")
	}
}
