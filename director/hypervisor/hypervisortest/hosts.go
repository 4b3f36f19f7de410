package hypervisortest

import (
	"slices"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

func hostsFence(b bundle) {
	hosts := capability[hypervisor.Hosts](b)
	v, neighbour := b.ready(b.b, b.spec("fenced")), b.ready(b.b, b.spec("neighbour"))
	err := hosts.Fence(b.ctx, v.ID, neighbour.Stamp)
	b.wantKind(err, director.KindConflict, "Fence with another stamp")
	err = hosts.Fence(b.ctx, v.ID, director.Stamp{})
	b.wantKind(err, director.KindConflict, "Fence without a stamp")
	b.untouched(v)
	for range 2 {
		if err := hosts.Fence(b.ctx, v.ID, v.Stamp); err != nil {
			b.Fatalf("Fence: %v", err)
		}
		if got := b.get(v.ID); got.Power != hypervisor.PowerOff || got.Stamp != v.Stamp {
			b.Errorf("after Fence the VM is %+v", got)
		}
	}
	b.untouched(neighbour)
	b.delete(v.ID, hypervisor.DeleteOptions{Owner: v.Stamp})
	b.wantKind(hosts.Fence(b.ctx, v.ID, v.Stamp), director.KindNotFound, "Fence of a VM that is gone")
	b.delete(neighbour.ID, hypervisor.DeleteOptions{Owner: neighbour.Stamp})
}

func hostsWithout(b bundle) {
	hosts := capability[hypervisor.Hosts](b)
	v := b.ready(b.b, b.spec("there"))
	states, err := hosts.HostStates(b.ctx)
	if err != nil {
		b.Fatalf("HostStates: %v", err)
	}
	i := slices.IndexFunc(states, func(s hypervisor.HostState) bool { return s.Host == v.Host })
	if i < 0 || states[i].Err != nil {
		b.Fatalf("HostStates: %+v, and %s has a VM that runs", states, v.Host)
	}
	rest := hosts.Without(v.Host)
	all, err := rest.List(b.ctx, hypervisor.Filter{Director: b.Director})
	if err != nil || len(all) != 0 {
		b.Errorf("without %s there are %+v, %v", v.Host, all, err)
	}
	one, err := rest.List(b.ctx, hypervisor.Filter{Director: b.Director, Machine: v.Stamp.Machine})
	if err != nil || len(one) != 0 {
		b.Errorf("without %s the machine is there: %+v, %v", v.Host, one, err)
	}
	_, err = rest.Get(b.ctx, v.ID)
	b.wantKind(err, director.KindNotFound, "Get without the host")
	s := b.spec("refused")
	s.Host = v.Host
	if _, err = rest.Ensure(b.ctx, s); err == nil {
		b.Errorf("a VM was made on %s, which was left out", v.Host)
	}
	again, ok := hypervisor.Capability[hypervisor.Hosts](rest)
	if !ok {
		b.Fatal("a view has no hosts")
	}
	if told, err := again.HostStates(b.ctx); err != nil || len(told) != len(states) {
		b.Errorf("a view tells of %+v, %v, and the provider of %+v", told, err, states)
	}
	if whole, err := again.Without().Get(b.ctx, v.ID); err != nil || whole.ID != v.ID {
		b.Errorf("the whole provider has %+v, %v", whole, err)
	}
	if err := rest.Close(); err != nil {
		b.Errorf("Close of a view: %v", err)
	}
	b.untouched(v)
	b.delete(v.ID, hypervisor.DeleteOptions{Owner: v.Stamp})
}

// hostsNamesake is what happens to a node whose host is lost: a VM with its name and another stamp is made elsewhere,
// and then the host is back.
func hostsNamesake(b bundle) {
	hosts := capability[hypervisor.Hosts](b)
	if b.Elsewhere == "" {
		b.Skip("the subject has one host")
	}
	s := b.spec("node")
	s.Host = b.Elsewhere
	lost := b.ready(b.b, s)
	next := b.spec("node-again")
	next.Name = s.Name
	v := b.ready(hosts.Without(lost.Host), next)
	if v.ID == lost.ID || v.Host == lost.Host {
		b.Fatalf("the second VM is %+v, and the first was %+v", v, lost)
	}
	all := b.list(hypervisor.Filter{Director: b.Director})
	if len(all) != 2 || all[0].Stamp == all[1].Stamp {
		b.Errorf("the host is back, and List shows %+v", all)
	}
	if err := hosts.Fence(b.ctx, lost.ID, lost.Stamp); err != nil {
		b.Fatalf("Fence: %v", err)
	}
	if got := b.get(lost.ID); got.Power != hypervisor.PowerOff || got.Host != lost.Host {
		b.Errorf("the fenced VM is %+v", got)
	}
	b.untouched(v)
	b.delete(lost.ID, hypervisor.DeleteOptions{Owner: lost.Stamp})
	b.untouched(v)
	b.delete(v.ID, hypervisor.DeleteOptions{Owner: v.Stamp})
}
