package libvirt

import (
	"cmp"
	"context"
	"slices"
	"strings"

	virt "libvirt.org/go/libvirt"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// ListVolumes implements hypervisor.Volumes.
func (b *Backend) ListVolumes(ctx context.Context, directorID string) ([]hypervisor.VolumeInfo, error) {
	const op = "libvirt.list_volumes"
	var all []hypervisor.VolumeInfo
	for _, h := range b.hosts {
		rows, err := inPool(ctx, h, op, func(p *pool) ([]hypervisor.VolumeInfo, error) {
			return p.dataDisks(func(s director.Stamp) bool { return s.Director == directorID })
		})
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			if r.Host != "" || !slices.Contains(all, r) { // what all hosts see is one disk
				all = append(all, r)
			}
		}
	}
	slices.SortFunc(all, func(x, y hypervisor.VolumeInfo) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.Host, y.Host))
	})
	return all, nil
}

// dataDisks returns the data disks that match.
func (p *pool) dataDisks(match func(director.Stamp) bool) ([]hypervisor.VolumeInfo, error) {
	names, err := p.disks.names()
	if err != nil {
		return nil, err
	}
	where := p.h.Name
	if p.disks.shared() {
		where = ""
	}
	var rows []hypervisor.VolumeInfo
	for _, name := range names {
		m := dataVolume.FindStringSubmatch(name)
		if m == nil || !match(director.Stamp{Director: m[1], Machine: m[2]}) {
			continue
		}
		info, found, err := read(p.disks, name, (*virt.StorageVol).GetInfo)
		if err != nil {
			return nil, err
		}
		if found {
			rows = append(rows, hypervisor.VolumeInfo{
				Name: name, Host: where, Size: int64(info.Capacity), Stamp: director.Stamp{Director: m[1], Machine: m[2]},
			})
		}
	}
	return rows, nil
}

// DeleteVolume implements hypervisor.Volumes.
func (b *Backend) DeleteVolume(ctx context.Context, owner director.Stamp) error {
	const op = "libvirt.delete_volume"
	if err := director.Invalid(op, "the owner is wrong", hypervisor.ValidStamp("owner", owner)); err != nil {
		return err
	}
	return b.alone(ctx, op, machineKey(owner), func(work context.Context) error {
		// Who uses them is asked of all hosts first: each of them may see the same disks.
		if err := b.onEachPool(work, op, func(p *pool) error { return p.volumesUnused(owner) }); err != nil {
			return err
		}
		return b.onEachPool(work, op, func(p *pool) error { return p.deleteVolumes(owner) })
	})
}

func (p *pool) deleteVolumes(owner director.Stamp) error {
	rows, err := p.dataDisks(func(s director.Stamp) bool { return s == owner })
	if err != nil {
		return err
	}
	for _, r := range rows {
		if err := p.disks.remove(r.Name); err != nil {
			return err
		}
	}
	return nil
}

// volumesUnused is a conflict if a VM of the pool's host uses data disks of the owner.
func (p *pool) volumesUnused(owner director.Stamp) error {
	rows, err := p.dataDisks(func(s director.Stamp) bool { return s == owner })
	if err != nil || len(rows) == 0 {
		return err
	}
	domains, err := p.conn.ListAllDomains(0)
	if err != nil {
		return err
	}
	used := ""
	for i := range domains {
		text, err := domains[i].GetXMLDesc(0)
		name, _ := domains[i].GetName()
		_ = domains[i].Free()
		if err != nil {
			continue // it went away
		}
		for _, r := range rows {
			if strings.Contains(text, p.disks.path(r.Name)) {
				used = name
			}
		}
	}
	if used != "" {
		return director.Errorf(director.KindConflict, p.op, "the VM %s on host %s uses the data disks of machine %s", used, p.h.Name, owner.Machine).
			WithHint("delete the VM first")
	}
	return nil
}
