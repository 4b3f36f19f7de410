package libvirt

import (
	"cmp"
	"context"
	"path"
	"slices"
	"strings"

	virt "libvirt.org/go/libvirt"
	virtxml "libvirt.org/go/libvirtxml"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// AttachedDisks implements hypervisor.DiskTeller.
func (b *Backend) AttachedDisks(ctx context.Context, id hypervisor.ID) ([]hypervisor.AttachedDisk, error) {
	const op = "libvirt.attached_disks"
	_, h, err := b.get(ctx, op, id)
	if err != nil {
		return nil, err
	}
	return inPool(ctx, h, op, func(p *pool) ([]hypervisor.AttachedDisk, error) {
		return withDomain(op, p.conn, id, p.attached)
	})
}

// attached are the disks of the domain but its root disk and its seed, as it runs and as it would start again.
func (p *pool) attached(d *domain) ([]hypervisor.AttachedDisk, error) {
	defs, err := definitions(d.Domain)
	if err != nil {
		return nil, err
	}
	stamp := d.mark.stamp()
	var out []hypervisor.AttachedDisk
	for _, disk := range disksOf(defs) {
		where := whereIs(disk)
		m := dataVolume.FindStringSubmatch(path.Base(where))
		if where == "" ||
			m == nil && stamp != (director.Stamp{}) && strings.HasPrefix(path.Base(where), volumePrefix(stamp)) {
			continue // no medium, or the root disk with its snapshots, or the seed
		}
		a := hypervisor.AttachedDisk{Name: where}
		if m != nil && path.Dir(where) == path.Clean(p.disks.dir) {
			a.Name, a.Stamp, a.Serial = path.Base(where), director.Stamp{Director: m[1], Machine: m[2]}, m[3]
		}
		if disk.Target != nil {
			// for people; not every driver and every disk tells
			if info, err := d.GetBlockInfo(disk.Target.Dev, 0); err == nil {
				a.Size = int64(info.Capacity)
			}
		}
		if !slices.ContainsFunc(out, func(o hypervisor.AttachedDisk) bool { return o.Name == a.Name }) {
			out = append(out, a)
		}
	}
	slices.SortFunc(out, func(x, y hypervisor.AttachedDisk) int { return cmp.Compare(x.Name, y.Name) })
	return out, nil
}

// definitions are the domain's as it runs and as it would start again, which differ where a disk was attached to one of
// the two.
func definitions(d *virt.Domain) ([]virtxml.Domain, error) {
	var defs []virtxml.Domain
	for _, flags := range []virt.DomainXMLFlags{0, virt.DOMAIN_XML_INACTIVE} {
		text, err := d.GetXMLDesc(flags)
		if err != nil {
			return nil, err
		}
		var def virtxml.Domain
		if err := def.Unmarshal(text); err != nil {
			return nil, director.Errorf(
				director.KindInternal, "libvirt.definition", "the definition of a VM cannot be read: %w", err,
			)
		}
		defs = append(defs, def)
	}
	return defs, nil
}

// disksOf are the hard disks of the definitions.
func disksOf(defs []virtxml.Domain) []virtxml.DomainDisk {
	var out []virtxml.DomainDisk
	for _, def := range defs {
		if def.Devices == nil {
			continue
		}
		for _, d := range def.Devices.Disks {
			if d.Device == "" || d.Device == "disk" || d.Device == "lun" {
				out = append(out, d)
			}
		}
	}
	return out
}

// whereIs is the path of the disk, or what else names it; empty for a drive without a medium.
func whereIs(d virtxml.DomainDisk) string {
	s := d.Source
	switch {
	case s == nil:
	case s.File != nil:
		return s.File.File
	case s.Block != nil:
		return s.Block.Dev
	case s.Network != nil:
		return s.Network.Protocol + ":" + s.Network.Name
	case s.Volume != nil:
		return s.Volume.Pool + "/" + s.Volume.Volume
	}
	return ""
}

// user is a VM that has a disk.
type user struct {
	id   hypervisor.ID
	name string
	on   bool
}

// users are the VMs of the pool's host by the paths of their disks.
func (p *pool) users() (map[string]user, error) {
	domains, err := p.conn.ListAllDomains(0)
	if err != nil {
		return nil, err
	}
	users := map[string]user{}
	for i := range domains {
		id, idErr := domains[i].GetUUIDString()
		name, nameErr := domains[i].GetName()
		on, onErr := domains[i].IsActive()
		defs, err := definitions(&domains[i])
		_ = domains[i].Free()
		if cmp.Or(idErr, nameErr, onErr, err) != nil {
			continue // it went away
		}
		for _, d := range disksOf(defs) {
			if where := whereIs(d); where != "" {
				users[where] = user{hypervisor.ID(id), name, on}
			}
		}
	}
	return users, nil
}
