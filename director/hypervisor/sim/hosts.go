package sim

import (
	"context"
	"slices"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// HostStates implements hypervisor.Hosts.
func (b *Backend) HostStates(ctx context.Context) ([]hypervisor.HostState, error) {
	var all []hypervisor.HostState
	err := b.do(ctx, VerbHostStates, nil, func(op string, _ When) error {
		for _, name := range b.w.hostNames() {
			s := hypervisor.HostState{Host: name}
			if b.w.hosts[name].down {
				s.Err = unreachable(op, name)
			}
			all = append(all, s)
		}
		return nil
	})
	return all, err
}

// Without implements hypervisor.Hosts.
func (b *Backend) Without(hosts ...string) hypervisor.Backend {
	lost := map[string]bool{}
	for _, h := range hosts {
		lost[h] = true
	}
	return &Backend{w: b.w, closed: b.closed, lost: lost, view: true}
}

// Fence implements hypervisor.Hosts. Nothing here starts a VM by itself.
func (b *Backend) Fence(ctx context.Context, id hypervisor.ID, owner director.Stamp) error {
	return b.do(ctx, VerbFence, []string{string(id), owner.Machine}, func(op string, when When) error {
		v, err := b.find(op, id)
		if err != nil {
			return err
		}
		if v.Stamp != owner || owner == (director.Stamp{}) {
			return director.Errorf(director.KindConflict, op, "the VM %s has another owner", v.Name).
				WithHint("it is left as it is")
		}
		if when != Midway && v.Power != hypervisor.PowerOff {
			b.w.power(v, hypervisor.PowerOff)
		}
		return nil
	})
}

// hostNames are the hosts that b asks.
func (b *Backend) hostNames() []string {
	return slices.DeleteFunc(b.w.hostNames(), func(name string) bool { return b.lost[name] })
}

// namesakes is how many VMs of the name are on hosts that b leaves out.
func (b *Backend) namesakes(name string) int {
	n := 0
	if len(b.lost) > 0 {
		for _, v := range b.w.vms {
			if v.Name == name && b.lost[v.Host] {
				n++
			}
		}
	}
	return n
}

// leftOut is the error of a call that needs a host which Without left out.
func leftOut(op, host string) error {
	return director.Errorf(director.KindConflict, op, "host %s was declared lost", host).
		WithHint("place the VM on another host")
}
