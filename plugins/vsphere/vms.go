package vsphere

import (
	"cmp"
	"context"
	"slices"

	"github.com/google/uuid"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

func notThere(op string, id hypervisor.ID) error {
	return director.Errorf(director.KindNotFound, op, "there is no VM with the id %s", id)
}

// get returns the VM with the id. Errors: not_found.
func (b *center) get(ctx context.Context, op string, id hypervisor.ID) (*place, *machine, error) {
	if err := interrupted(ctx, op); err != nil {
		return nil, nil, err
	}
	if uuid.Validate(string(id)) != nil {
		return nil, nil, notThere(op, id)
	}
	p, err := b.place(ctx, op)
	if err != nil {
		return nil, nil, err
	}
	m, err := lookup(ctx, p, string(id))
	if err != nil {
		return nil, nil, b.translate(ctx, op, "VM "+string(id), b.forget(err))
	}
	if m == nil || m.template {
		return nil, nil, notThere(op, id)
	}
	if out, err := b.leftOut(ctx, p, m); err != nil || out {
		if err == nil {
			err = notThere(op, id)
		}
		return nil, nil, b.translate(ctx, op, "VM "+m.name, b.forget(err))
	}
	return p, m, nil
}

// Get implements hypervisor.Backend.
func (b *Backend) Get(ctx context.Context, id hypervisor.ID) (hypervisor.VM, error) {
	const op = "vsphere.get"
	p, m, err := b.get(ctx, op, id)
	if err != nil {
		return hypervisor.VM{}, err
	}
	vm, err := b.vm(ctx, p, m)
	return vm, b.translate(ctx, op, "VM "+m.name, err)
}

// List implements hypervisor.Backend. Strangers are the other VMs of the datacenter that the account may see. Templates
// are no VMs.
func (b *Backend) List(ctx context.Context, f hypervisor.Filter) ([]hypervisor.VM, error) {
	const op = "vsphere.list"
	if f.Director == "" && !f.Strangers {
		return nil, director.Invalid(op, "the filter is wrong", []director.Field{{Path: "director", Msg: "is empty"}})
	}
	p, err := b.place(ctx, op)
	if err != nil {
		return nil, err
	}
	var found []*machine
	if f.Machine != "" && !f.Strangers { // its id is known
		m, err := lookup(ctx, p, vmUUID(director.Stamp{Director: f.Director, Machine: f.Machine}))
		if err != nil {
			return nil, b.translate(ctx, op, "machine "+f.Machine, b.forget(err))
		}
		if m != nil {
			found = append(found, m)
		}
	} else if found, err = below(ctx, p.vim, p.root); err != nil {
		return nil, b.translate(ctx, op, "the VMs of datacenter "+b.cfg.Datacenter, b.forget(err))
	}
	found = slices.DeleteFunc(found, func(m *machine) bool {
		return m.template || m.extra[keyTemplate] != "" || !f.Match(m.stamp())
	})
	if found, err = readDevices(ctx, p, found); err != nil {
		return nil, b.translate(ctx, op, "the adapters of the VMs of datacenter "+b.cfg.Datacenter, b.forget(err))
	}
	var all []hypervisor.VM
	for _, m := range found {
		vm, err := b.vm(ctx, p, m)
		if err != nil {
			return nil, b.translate(ctx, op, "VM "+m.name, b.forget(err))
		}
		if slices.Contains(b.lost, vm.Host) {
			continue
		}
		all = append(all, vm)
	}
	slices.SortFunc(all, func(x, y hypervisor.VM) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.ID, y.ID))
	})
	return all, nil
}

// SetPower implements hypervisor.Backend. Off is immediate; Delete has the patient way.
func (b *Backend) SetPower(ctx context.Context, id hypervisor.ID, want hypervisor.Power) error {
	const op = "vsphere.set_power"
	if want != hypervisor.PowerOn && want != hypervisor.PowerOff {
		return director.Errorf(director.KindInvalid, op, "%q is not a power state", want)
	}
	p, m, err := b.get(ctx, op, id)
	if err != nil {
		return err
	}
	if m.on == (want == hypervisor.PowerOn) {
		return nil
	}
	return b.translate(ctx, op, "VM "+m.name, b.power(ctx, op, p, m.ref, want == hypervisor.PowerOn))
}
