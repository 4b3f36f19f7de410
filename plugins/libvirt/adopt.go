package libvirt

import (
	"context"

	virt "libvirt.org/go/libvirt"
	virtxml "libvirt.org/go/libvirtxml"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// Adopt implements hypervisor.Adopter. All hosts must answer. The domain keeps its UUID, its disks and its devices.
func (b *domains) Adopt(
	ctx context.Context, key director.Stamp, name string, disks []hypervisor.Disk,
) (hypervisor.VM, error) {
	const op = "libvirt.adopt"
	return locked(ctx, b.fleet, op, machineKey(key), func(work context.Context) (hypervisor.VM, error) {
		all, err := b.List(work, hypervisor.Filter{Strangers: true})
		if err != nil {
			return hypervisor.VM{}, err
		}
		vm, err := adoptable(op, all, key, name)
		if err != nil {
			return hypervisor.VM{}, err
		}
		for _, h := range b.hosts {
			if h.Name == vm.Host {
				return call(work, h, op, func(c *virt.Connect) (hypervisor.VM, error) {
					return b.adopt(op, h, c, vm.ID, key, disks)
				})
			}
		}
		return hypervisor.VM{}, notThere(op, vm.ID)
	})
}

// adoptable chooses the VM of the name without another owner.
func adoptable(op string, all []hypervisor.VM, key director.Stamp, name string) (hypervisor.VM, error) {
	var found []hypervisor.VM
	for _, vm := range all {
		switch {
		case vm.Stamp == key:
			found = append(found, vm)
		case vm.Name != name:
		case vm.Stamp != (director.Stamp{}):
			return vm, director.Errorf(
				director.KindConflict, op, "the VM %s on host %s has another owner (%s/%s)", name, vm.Host,
				vm.Stamp.Director, vm.Stamp.Machine,
			).
				WithHint("it is left as it is")
		default:
			found = append(found, vm)
		}
	}
	switch len(found) {
	case 0:
		return hypervisor.VM{}, director.Errorf(director.KindNotFound, op, "there is no VM named %q", name)
	case 1:
		return found[0], nil
	}
	return hypervisor.VM{}, director.Errorf(
		director.KindConflict, op, "there are two VMs for %s: on host %s and on host %s", name, found[0].Host,
		found[1].Host,
	).
		WithHint("remove the one that is not wanted by hand")
}

// adopt is Adopt on the host of the domain. The stamp is written last but one: before it there is nothing that a second
// call would not do again.
func (b *domains) adopt(
	op string, h *host, c *virt.Connect, id hypervisor.ID, key director.Stamp, disks []hypervisor.Disk,
) (hypervisor.VM, error) {
	d, err := findDomain(c, string(id))
	if err != nil {
		return hypervisor.VM{}, err
	}
	if d == nil {
		return hypervisor.VM{}, notThere(op, id)
	}
	defer func() { _ = d.Free() }()
	if err := attachKept(op, h, c, d, key, disks); err != nil {
		return hypervisor.VM{}, err
	}
	if err := setMade(d.Domain, key, "yes"); err != nil {
		return hypervisor.VM{}, err
	}
	d.mark.Director, d.mark.ID, d.mark.Made = key.Director, key.Machine, "yes"
	if err := d.power(true); err != nil {
		return hypervisor.VM{}, err
	}
	return d.vm(h), nil
}

// attachKept attaches the data disks that are in the host's pool and that the domain does not have.
func attachKept(op string, h *host, c *virt.Connect, d *domain, key director.Stamp, disks []hypervisor.Disk) error {
	if len(disks) == 0 {
		return nil
	}
	p, err := h.pool(op, c)
	if err != nil {
		return err
	}
	defer p.close()
	serials, targets, err := takenBy(op, d)
	if err != nil {
		return err
	}
	for _, disk := range disks {
		if serials[disk.Serial] {
			continue
		}
		vol, err := p.disks.find(p.dataName(disk.Owner(key), disk.Serial))
		if err != nil {
			return err
		}
		if vol == nil {
			continue // it never had one, or its maker has brought the data in another way
		}
		_ = vol.Free()
		if err := p.ofCopies().whole(p.dataName(disk.Owner(key), disk.Serial)); err != nil {
			return err
		}
		if err := attach(op, p, d, key, disk, freeTarget(targets)); err != nil {
			return err
		}
	}
	return nil
}

// takenBy returns the serials that the domain's disks have, and the names of their devices.
func takenBy(op string, d *domain) (serials, targets map[string]bool, err error) {
	text, err := d.GetXMLDesc(0)
	if err != nil {
		return nil, nil, err
	}
	var def virtxml.Domain
	if err := def.Unmarshal(text); err != nil {
		return nil, nil, director.Errorf(
			director.KindInternal, op, "the definition of %s cannot be read: %w", d.name, err,
		)
	}
	serials, targets = map[string]bool{}, map[string]bool{}
	if def.Devices != nil {
		for _, disk := range def.Devices.Disks {
			serials[disk.Serial] = true
			if disk.Target != nil {
				targets[disk.Target.Dev] = true
			}
		}
	}
	return serials, targets, nil
}

// attach attaches a data disk that is in the pool to the domain, and to its VM if that runs.
func attach(op string, p *pool, d *domain, key director.Stamp, disk hypervisor.Disk, target string) error {
	xml, err := (&virtxml.DomainDisk{
		Device: "disk", Serial: disk.Serial,
		Driver: &virtxml.DomainDiskDriver{Name: "qemu", Type: p.disks.format(), Discard: "unmap"},
		Source: p.source(p.dataName(disk.Owner(key), disk.Serial), true),
		Target: &virtxml.DomainDiskTarget{Dev: target, Bus: "virtio"},
	}).Marshal()
	if err != nil {
		return director.Errorf(director.KindInternal, op, "the disk cannot be described: %w", err)
	}
	flags := virt.DOMAIN_DEVICE_MODIFY_CONFIG
	if d.active {
		flags |= virt.DOMAIN_DEVICE_MODIFY_LIVE
	}
	if err := d.AttachDeviceFlags(xml, flags); err != nil {
		return director.Errorf(
			director.KindConflict, op, "the data disk %s cannot be attached to %s: %w", disk.Serial, d.name, err,
		).
			WithHint(
				"attach %s by hand as a virtio disk with the serial %s, and retry",
				p.disks.path(p.dataName(disk.Owner(key), disk.Serial)), disk.Serial,
			)
	}
	return nil
}

// freeTarget returns a device name that no disk has, and takes it.
func freeTarget(taken map[string]bool) string {
	for letter := 'b'; ; letter++ {
		if dev := "vd" + string(letter); !taken[dev] {
			taken[dev] = true
			return dev
		}
	}
}
