package vsphere

import (
	"context"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// Adopt implements hypervisor.Adopter. The VM may be in any folder of the datacenter, and stays there. It gets our
// UUID, by which it is found from then on; its BIOS UUID, which storage drivers and licences go by, stays.
func (b *machines) Adopt(
	ctx context.Context, key director.Stamp, name string, disks []hypervisor.Disk,
) (vm hypervisor.VM, err error) {
	const op = "vsphere.adopt"
	fields := hypervisor.ValidStamp("key", key)
	if name == "" {
		fields = append(fields, director.Field{Path: "name", Msg: "is empty"})
	}
	if err := director.Invalid(op, "the VM cannot be adopted", fields); err != nil {
		return hypervisor.VM{}, err
	}
	err = b.alone(ctx, op, machineKey(key), func() error {
		vm, err = b.adopt(ctx, op, key, name, disks)
		return b.translate(ctx, op, "VM "+name, b.forget(err))
	})
	return vm, err
}

// adopt is Adopt under the machine's lock. One call writes all of it, so that a VM is adopted or not, whatever happens.
func (b *machines) adopt(
	ctx context.Context, op string, key director.Stamp, name string, disks []hypervisor.Disk,
) (hypervisor.VM, error) {
	p, err := b.place(ctx, op)
	if err != nil {
		return hypervisor.VM{}, err
	}
	m, err := b.adoptable(ctx, op, p, key, name)
	if err != nil {
		return hypervisor.VM{}, err
	}
	if m.stamp() != key || !m.made() {
		if err := b.takeOver(ctx, op, p, key, m, disks); err != nil {
			return hypervisor.VM{}, err
		}
		b.conn.log.InfoContext(ctx, "vm adopted", "vm", name)
	}
	if err := b.at("adopted"); err != nil {
		return hypervisor.VM{}, err
	}
	if !m.on {
		if err := b.power(ctx, op, p, m.ref, true); err != nil {
			return hypervisor.VM{}, err
		}
	}
	if m, err = readMachine(ctx, p.vim, m.ref); err != nil {
		return hypervisor.VM{}, err
	}
	if m == nil {
		return hypervisor.VM{}, director.Errorf(
			director.KindUnavailable, op, "the VM %s vanished while it was adopted", name,
		)
	}
	return b.vm(ctx, p, m)
}

// adoptable returns the VM of the name without another owner, or the one that is ours already. In vCenter names are
// unique in a folder alone: a VM below the provider's folder goes before one that is elsewhere in the datacenter.
func (b *machines) adoptable(
	ctx context.Context, op string, p *place, key director.Stamp, name string,
) (*machine, error) {
	ours, err := lookup(ctx, p, vmUUID(key))
	if err != nil {
		return nil, err
	}
	var found []*machine
	if ours != nil && ours.stamp() == key {
		found = append(found, ours)
	}
	scopes := []types.ManagedObjectReference{p.folder.Reference()}
	if p.root != scopes[0] {
		scopes = append(scopes, p.root)
	}
	for _, scope := range scopes {
		if len(found) > 0 && scope != scopes[0] {
			break
		}
		all, err := below(ctx, p.vim, scope)
		if err != nil {
			return nil, err
		}
		for _, m := range all {
			switch owner := m.stamp(); {
			case m.name != name || m.template || owner == key:
			case owner != (director.Stamp{}):
				return nil, director.Errorf(
					director.KindConflict, op, "the VM %s has another owner (%s/%s)", name, owner.Director,
					owner.Machine,
				).
					WithHint("it is left as it is")
			default:
				found = append(found, m)
			}
		}
	}
	switch len(found) {
	case 0:
		return nil, director.Errorf(director.KindNotFound, op, "there is no VM named %q", name).
			WithHint("make it in datacenter %s, in a folder that the account may see", b.cfg.Datacenter)
	case 1:
		return found[0], nil
	}
	return nil, director.Errorf(director.KindConflict, op, "there are %d VMs for %s", len(found), name).
		WithHint("remove those that are not wanted by hand, or move the one that is into the provider's folder")
}

// takeOver writes the stamp, the UUID and the mark, and attaches the data disks that were kept.
func (b *machines) takeOver(
	ctx context.Context, op string, p *place, key director.Stamp, m *machine, disks []hypervisor.Disk,
) error {
	if err := b.whole(ctx, op, p, key, disks); err != nil {
		return err
	}
	have, err := b.keptOf(ctx, op, p, key, disks)
	if err != nil {
		return err
	}
	all, err := devices(ctx, p, m)
	if err != nil {
		return err
	}
	s := hypervisor.Spec{Key: key}
	for _, d := range disks {
		k, kept := have[d.Serial]
		if !kept {
			continue // it never had one, or its maker has brought the data in another way
		}
		s.DataDisks = append(s.DataDisks, d)
		if hasDisk(all, d.Owner(key), d.Serial, k.file) {
			continue
		}
		err := object.NewVirtualDiskManager(p.vim).SetVirtualDiskUuid(ctx, k.file, p.dc, spaced(d.Owner(key), d.Serial))
		if err != nil && !hasFault[types.FileLocked](err) {
			return err
		}
	}
	extra := []types.BaseOptionValue{
		option(keyDirector, key.Director), option(keyMachine, key.Machine), option(keyMade, "yes"),
		option(keyAdopted, "yes"),
	}
	if len(s.DataDisks) > 0 {
		extra = append(extra, option(keyDisks, serials(s.DataDisks)))
	}
	// what a copy of one of our VMs has brought along
	for _, k := range []string{keyGroup, keyApart, keyNICs, keyMoved} {
		if m.extra[k] != "" {
			extra = append(extra, option(k, ""))
		}
	}
	return b.reconfigure(ctx, op, p, m, types.VirtualMachineConfigSpec{
		InstanceUuid: vmUUID(key), Annotation: note("Adopted", key), DeviceChange: attach(all, s, have),
		ExtraConfig: extra,
	})
}
