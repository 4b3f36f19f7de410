package hypervisortest

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// deleteAfterCrash takes away what a cut-off Ensure left, without finishing it first.
func deleteAfterCrash(b bundle) {
	b.crashes(func(b bundle, s hypervisor.Spec) {
		x := b.open()
		for _, v := range b.list(hypervisor.Filter{Director: b.Director, Machine: s.Key.Machine}) {
			if err := x.Delete(b.ctx, v.ID, hypervisor.DeleteOptions{Owner: s.Key, DataDisks: true}); err != nil {
				b.Errorf("Delete: %v", err)
			}
		}
		b.remains("after Delete")
	})
}

func getNotFound(b bundle) {
	s := b.spec("gone")
	v := b.ready(b.b, s)
	b.delete(v.ID, hypervisor.DeleteOptions{Owner: s.Key})
	_, err := b.b.Get(b.ctx, v.ID)
	b.wantKind(err, director.KindNotFound, "Get of a deleted VM")
	_, err = b.b.Get(b.ctx, "no-such-id")
	b.wantKind(err, director.KindNotFound, "Get of an id that never was")
}

// getAdapters holds a back end that tells of adapters to the truth: the drift check takes another network for a fault.
func getAdapters(b bundle) {
	s := b.spec("nics")
	got := b.get(b.ready(b.b, s).ID).Adapters
	if got == nil {
		b.Skip("this back end does not tell of adapters")
	}
	want := []hypervisor.Adapter{{Network: s.NICs[0].Network, MAC: s.NICs[0].MAC}}
	if diff := cmp.Diff(want, got); diff != "" {
		b.Errorf("the adapters (-want +got):\n%s", diff)
	}
}

// getSeveralAdapters is a VM on two networks: each adapter with its own MAC, in the order that was asked for.
func getSeveralAdapters(b bundle) {
	_, network := b.madeNetwork()
	s := b.spec("nics")
	second := s.NICs[0]
	second.Network, second.PortGroup, second.MAC = network.Name, network.PortGroup, second.MAC[:len(second.MAC)-2]+"ff"
	if second.MAC == s.NICs[0].MAC {
		second.MAC = second.MAC[:len(second.MAC)-2] + "fe"
	}
	s.NICs = append(s.NICs, second)
	v := b.ready(b.b, s)
	got := b.get(v.ID).Adapters
	if got == nil {
		b.Skip("this back end does not tell of adapters")
	}
	want := []hypervisor.Adapter{
		{Network: s.NICs[0].Network, MAC: s.NICs[0].MAC}, {Network: second.Network, MAC: second.MAC},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		b.Errorf("the adapters (-want +got):\n%s", diff)
	}
	b.delete(v.ID, hypervisor.DeleteOptions{Owner: s.Key})
}

// addressesTold holds what a back end tells of addresses to what it knows else: a plan is refused for it.
func addressesTold(b bundle) {
	teller := capability[hypervisor.AddressTeller](b)
	s := b.spec("addresses")
	v := b.ready(b.b, s)
	told, err := teller.UsedAddresses(b.ctx)
	if err != nil {
		b.Fatalf("UsedAddresses: %v", err)
	}
	for _, u := range told {
		if !u.Address.IsValid() {
			b.Errorf("an address that is none: %+v", u)
		}
		if u.VM == v.Name && (u.Stamp != s.Key || u.Host != v.Host || u.MAC != s.NICs[0].MAC) {
			b.Errorf("of %+v it is told %+v", v, u)
		}
	}
	if err := b.b.SetPower(b.ctx, v.ID, hypervisor.PowerOff); err != nil {
		b.Fatal(err)
	}
	told, err = teller.UsedAddresses(b.ctx)
	if err != nil {
		b.Fatalf("UsedAddresses: %v", err)
	}
	for _, u := range told {
		if u.VM == v.Name {
			b.Errorf("a VM that is off uses %s", u.Address)
		}
	}
}

func listFilters(b bundle) {
	var want []hypervisor.VM
	for _, name := range []string{"zeta", "alpha"} {
		want = append(want, b.ready(b.b, b.spec(name)))
	}
	slices.Reverse(want)
	other := b
	other.Director = RandomID("d")
	others := b.ready(b.b, other.spec("beta"))

	for name, tt := range map[string]struct {
		f    hypervisor.Filter
		want []hypervisor.VM
	}{
		"ours": {hypervisor.Filter{Director: b.Director}, want},
		"one machine": {
			hypervisor.Filter{Director: b.Director, Machine: want[1].Stamp.Machine}, want[1:],
		},
		"no such machine":            {hypervisor.Filter{Director: b.Director, Machine: "nothing"}, nil},
		"another director":           {hypervisor.Filter{Director: other.Director}, []hypervisor.VM{others}},
		"another director's machine": {hypervisor.Filter{Director: b.Director, Machine: others.Stamp.Machine}, nil},
	} {
		got := b.list(tt.f)
		if len(got) == 0 {
			got = nil
		}
		if diff := cmp.Diff(tt.want, got); diff != "" {
			b.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
	_, err := b.b.List(b.ctx, hypervisor.Filter{})
	b.wantKind(err, director.KindInvalid, "List without a director")
}

func listStrangers(b bundle) {
	id := b.stranger(RandomID("stranger-"))
	ours := b.ready(b.b, b.spec("ours"))
	if got := b.list(hypervisor.Filter{Director: b.Director}); len(got) != 1 || got[0].ID != ours.ID {
		b.Errorf("List without strangers: %v", got)
	}
	found := map[hypervisor.ID]hypervisor.VM{}
	all := b.list(hypervisor.Filter{Director: b.Director, Strangers: true})
	for _, v := range all {
		found[v.ID] = v
	}
	if diff := cmp.Diff(ours, found[ours.ID]); diff != "" {
		b.Errorf("our VM among strangers (-want +got):\n%s", diff)
	}
	if v, ok := found[id]; !ok || v.Stamp != (director.Stamp{}) {
		b.Errorf("the stranger is missing or has a stamp: %+v", v)
	}
	if !slices.IsSortedFunc(all, func(x, y hypervisor.VM) int { return strings.Compare(x.Name, y.Name) }) {
		b.Errorf("not ordered by name: %v", all)
	}
}

func powerIdempotent(b bundle) {
	s := b.spec("power")
	v := b.ready(b.b, s)
	for _, p := range []hypervisor.Power{
		hypervisor.PowerOn, hypervisor.PowerOff, hypervisor.PowerOff, hypervisor.PowerOn, hypervisor.PowerOff,
	} {
		if err := b.b.SetPower(b.ctx, v.ID, p); err != nil {
			b.Fatalf("SetPower(%s): %v", p, err)
		}
		if got := b.get(v.ID); got.Power != p || got.Ready != (p == hypervisor.PowerOn) {
			b.Errorf("after SetPower(%s): %+v", p, got)
		}
	}
	if got := b.ready(b.b, s); got.ID != v.ID || got.Power != hypervisor.PowerOn {
		b.Errorf("Ensure of a VM that is off: %+v", got)
	}
	b.wantKind(b.b.SetPower(b.ctx, v.ID, "sideways"), director.KindInvalid, "SetPower(sideways)")
}

func powerNotFound(b bundle) {
	b.wantKind(b.b.SetPower(b.ctx, "no-such-id", hypervisor.PowerOn), director.KindNotFound, "SetPower")
}

func deleteIdempotent(b bundle) {
	s := withData(b.spec("delete"))
	v := b.ready(b.b, s)
	for range 2 {
		b.delete(v.ID, hypervisor.DeleteOptions{Owner: s.Key, DataDisks: true})
		b.remains("after Delete")
	}
	if err := b.b.Delete(b.ctx, "no-such-id", hypervisor.DeleteOptions{Owner: s.Key}); err != nil {
		b.Errorf("Delete of an id that never was: %v", err)
	}
	again := b.ready(b.b, s)
	if err := b.b.SetPower(b.ctx, again.ID, hypervisor.PowerOff); err != nil {
		b.Fatalf("SetPower: %v", err)
	}
	if err := b.b.Delete(b.ctx, again.ID, hypervisor.DeleteOptions{
		Owner: s.Key, DataDisks: true, Grace: time.Second,
	}); err != nil {
		b.Errorf("Delete of a VM that is off: %v", err)
	}
	b.remains("after Delete")
}

func deleteForeign(b bundle) {
	s := b.spec("foreign")
	v := b.ready(b.b, s)
	for _, owner := range []director.Stamp{
		{},
		{Director: s.Key.Director, Machine: RandomID("m")},
		{Director: RandomID("d"), Machine: s.Key.Machine},
	} {
		err := b.b.Delete(b.ctx, v.ID, hypervisor.DeleteOptions{Owner: owner, DataDisks: true})
		b.wantKind(err, director.KindConflict, fmt.Sprintf("Delete as %+v", owner))
	}
	b.untouched(v)
}

func deleteStranger(b bundle) {
	id := b.stranger(RandomID("stranger-"))
	for _, owner := range []director.Stamp{{}, {Director: b.Director, Machine: RandomID("m")}} {
		err := b.b.Delete(b.ctx, id, hypervisor.DeleteOptions{Owner: owner})
		b.wantKind(err, director.KindConflict, fmt.Sprintf("Delete as %+v", owner))
	}
	if _, err := b.b.Get(b.ctx, id); err != nil {
		b.Errorf("the stranger is gone: %v", err)
	}
}
