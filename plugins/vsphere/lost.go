package vsphere

import (
	"context"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// HostStates implements hypervisor.Hosts. A host answers if vCenter is connected to it. One in maintenance answers.
func (b *Backend) HostStates(ctx context.Context) ([]hypervisor.HostState, error) {
	const op = "vsphere.host_states"
	p, err := b.place(ctx, op)
	if err != nil {
		return nil, err
	}
	hosts, err := b.hosts(ctx, op, p)
	if err != nil && len(hosts) == 0 {
		return nil, err
	}
	var all []hypervisor.HostState
	for _, h := range hosts {
		s := hypervisor.HostState{Host: h.name}
		if h.state != "" && !h.maintained {
			s.Err = director.Errorf(director.KindUnavailable, op, "host %s %s", h.name, h.state).
				WithHint("connect it again in vCenter")
		}
		all = append(all, s)
	}
	for _, name := range b.cfg.Hosts {
		if !slices.ContainsFunc(all, func(s hypervisor.HostState) bool { return s.Host == name }) {
			all = append(all, hypervisor.HostState{
				Host: name, Err: director.Errorf(director.KindUnavailable, op, "vCenter has no host %s any more", name),
			})
		}
	}
	slices.SortFunc(all, func(x, y hypervisor.HostState) int { return strings.Compare(x.Host, y.Host) })
	return all, nil
}

// Without implements hypervisor.Hosts. A VM that vSphere HA has started on another host is there for it.
func (b *Backend) Without(hosts ...string) hypervisor.Backend {
	c := *b.center
	c.view, c.lost = true, slices.Clone(hosts)
	return newBackend(&c)
}

// Fence implements hypervisor.Hosts. vSphere HA starts no VM that was powered off by a user.
func (b *Backend) Fence(ctx context.Context, id hypervisor.ID, owner director.Stamp) error {
	const op = "vsphere.fence"
	return b.alone(ctx, op, machineKey(owner), func() error {
		p, m, err := b.get(ctx, op, id)
		if err != nil {
			return err
		}
		if m.stamp() != owner || owner == (director.Stamp{}) {
			return director.Errorf(director.KindConflict, op, "the VM %s has another owner", m.name).
				WithHint("it is left as it is")
		}
		if !m.on {
			return nil
		}
		return b.translate(ctx, op, "VM "+m.name, b.forget(b.power(ctx, op, p, m.ref, false)))
	})
}

// leftOut reports whether the machine is on a host that Without left out.
func (b *center) leftOut(ctx context.Context, p *place, m *machine) (bool, error) {
	if len(b.lost) == 0 {
		return false, nil
	}
	host, err := b.nameOf(ctx, p, m.host)
	return slices.Contains(b.lost, host), err
}

// giveNameUp renames a VM of ours on a lost host: two VMs of one folder cannot have one name. Its id and stamp stay.
func (b *machines) giveNameUp(ctx context.Context, op string, p *place, m *machine) error {
	name := m.name[:min(len(m.name), mostName/2)] + " lost " + m.stamp().Machine
	_, err := b.run(ctx, op, p.vim, func() (types.ManagedObjectReference, error) {
		res, err := methods.Rename_Task(ctx, p.vim, &types.Rename_Task{This: m.ref, NewName: name})
		if err != nil {
			return types.ManagedObjectReference{}, err
		}
		return res.Returnval, nil
	})
	if err != nil && ctx.Err() == nil {
		return &director.Error{
			Kind: director.KindConflict, Op: op,
			Msg: "VM " + m.name + " on a lost host has the name, and vCenter does not rename it", Err: err,
			Hint: "remove the lost host from vCenter's inventory, and try again",
		}
	}
	return err
}
