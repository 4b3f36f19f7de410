package libvirt

import (
	"context"
	"io"

	virt "libvirt.org/go/libvirt"
	virtxml "libvirt.org/go/libvirtxml"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

var _ hypervisor.Seeds = (*Backend)(nil)

// RemoveSeed implements hypervisor.Seeds. The disk leaves the definition first, so that the VM boots at any line. A
// guest that runs may keep the disk until its next boot: it finds nothing on it.
func (b *Backend) RemoveSeed(ctx context.Context, id hypervisor.ID, owner director.Stamp) error {
	const op = "libvirt.remove_seed"
	return b.alone(ctx, op, machineKey(owner), func(work context.Context) error {
		vm, h, err := b.get(work, op, id)
		if err != nil {
			return err
		}
		if vm.Stamp != owner || owner == (director.Stamp{}) {
			return director.Errorf(
				director.KindConflict, op, "the VM %s on host %s has another owner (%s/%s)", vm.Name, h.Name,
				vm.Stamp.Director, vm.Stamp.Machine,
			).
				WithHint("it is left as it is")
		}
		_, err = call(work, h, op, func(c *virt.Connect) (none, error) {
			return none{}, b.removeSeed(work, op, h, c, id, owner)
		})
		return err
	})
}

func (b *domains) removeSeed(
	ctx context.Context, op string, h *host, c *virt.Connect, id hypervisor.ID, owner director.Stamp,
) error {
	d, err := findDomain(c, string(id))
	if err != nil {
		return err
	}
	if d == nil {
		return notThere(op, id)
	}
	defer func() { _ = d.Free() }()
	p, err := h.pool(op, c)
	if err != nil {
		return err
	}
	defer p.close()
	if err := forgetDisk(c, d, p.path(seedName(owner))); err != nil {
		return err
	}
	if err := b.at("seed undefined"); err != nil {
		return err
	}
	vol, err := p.find(seedName(owner))
	if err != nil || vol == nil {
		return err
	}
	size, err := vol.GetInfo()
	if err == nil { // a process that has the file open reads zeros
		n := int64(size.Capacity) //nolint:gosec // a few KiB
		err = b.upload(ctx, c, vol, source{r: io.LimitReader(zero{}, n), size: n})
	}
	_ = vol.Free()
	if err != nil {
		return err
	}
	if err := b.at("seed overwritten"); err != nil {
		return err
	}
	if d.active {
		b.unplug(ctx, h, d, p.path(seedName(owner)))
	}
	return p.remove(seedName(owner))
}

// forgetDisk takes the disk with that file out of the VM's definition. No error if it is not in it.
func forgetDisk(c *virt.Connect, d *domain, file string) error {
	text, err := d.GetXMLDesc(virt.DOMAIN_XML_INACTIVE | virt.DOMAIN_XML_SECURE)
	if err != nil {
		return err
	}
	var def virtxml.Domain
	if err := def.Unmarshal(text); err != nil {
		return err
	}
	i := diskWith(def, file)
	if i < 0 {
		return nil
	}
	def.Devices.Disks = append(def.Devices.Disks[:i:i], def.Devices.Disks[i+1:]...)
	if text, err = def.Marshal(); err != nil {
		return err
	}
	dom, err := c.DomainDefineXML(text)
	if err != nil {
		return err
	}
	return dom.Free()
}

// unplug asks the running guest to let the disk go. One that does not is no error: the disk is empty, and goes with the
// next start of the VM.
func (b *domains) unplug(ctx context.Context, h *host, d *domain, file string) {
	text, err := d.GetXMLDesc(0)
	if err == nil {
		var def virtxml.Domain
		if err = def.Unmarshal(text); err == nil {
			i := diskWith(def, file)
			if i < 0 {
				return
			}
			if text, err = def.Devices.Disks[i].Marshal(); err == nil {
				err = d.DetachDeviceFlags(text, virt.DOMAIN_DEVICE_MODIFY_LIVE)
			}
		}
	}
	if err != nil {
		h.log.InfoContext(ctx, "the guest keeps its empty seed until its next start", "vm", d.name, "err", err)
	}
}

// diskWith returns which of the disks has the file, or -1.
func diskWith(def virtxml.Domain, file string) int {
	if def.Devices == nil {
		return -1
	}
	for i, disk := range def.Devices.Disks {
		if disk.Source != nil && disk.Source.File != nil && disk.Source.File.File == file {
			return i
		}
	}
	return -1
}
