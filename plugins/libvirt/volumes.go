package libvirt

import (
	"cmp"
	"context"
	"slices"

	virt "libvirt.org/go/libvirt"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// diskLabels say what the disks in a pool are.
type diskLabels struct{ *pool }

func (p *pool) ofLabels() diskLabels { return diskLabels{p} }

// ListVolumes implements hypervisor.Volumes.
func (b *Backend) ListVolumes(ctx context.Context, directorID string) ([]hypervisor.VolumeInfo, error) {
	const op = "libvirt.list_volumes"
	var all []hypervisor.VolumeInfo
	for _, h := range b.hosts {
		rows, err := inPool(ctx, h, op, func(p *pool) ([]hypervisor.VolumeInfo, error) {
			rows, err := p.dataDisks(func(s director.Stamp, _ string) bool { return s.Director == directorID })
			if err != nil || len(rows) == 0 {
				return nil, err
			}
			users, err := p.users()
			for i := range rows {
				rows[i].VM = users[p.disks.path(rows[i].Name)].name
			}
			return rows, err
		})
		if err != nil {
			return nil, err
		}
		for _, r := range rows {
			same := slices.IndexFunc(all, func(a hypervisor.VolumeInfo) bool {
				return a.Name == r.Name && a.Host == r.Host
			})
			if same < 0 {
				all = append(all, r)
				continue
			}
			all[same].VM = cmp.Or(all[same].VM, r.VM) // what all hosts see is one disk
			all[same].Label = cmp.Or(all[same].Label, r.Label)
		}
	}
	slices.SortFunc(all, func(x, y hypervisor.VolumeInfo) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.Host, y.Host))
	})
	return all, nil
}

// wants matches the data disks of the VM, those that it takes over included.
func wants(s hypervisor.Spec) func(director.Stamp, string) bool {
	return func(stamp director.Stamp, serial string) bool {
		return stamp == s.Key ||
			slices.ContainsFunc(s.DataDisks, func(d hypervisor.Disk) bool {
				return d.Of == stamp && d.Serial == serial
			})
	}
}

// dataDisks returns the data disks that match. Which VMs have them it does not tell.
func (p *pool) dataDisks(match func(stamp director.Stamp, serial string) bool) ([]hypervisor.VolumeInfo, error) {
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
		if m == nil || !match(director.Stamp{Director: m[1], Machine: m[2]}, m[3]) {
			continue
		}
		info, found, err := read(p.disks, name, (*virt.StorageVol).GetInfo)
		if err != nil {
			return nil, err
		}
		if found {
			rows = append(rows, hypervisor.VolumeInfo{
				Name: name, Host: where, Size: int64(info.Capacity),
				Stamp: director.Stamp{Director: m[1], Machine: m[2]}, Serial: m[3],
			})
		}
	}
	if len(rows) == 0 {
		return nil, nil
	}
	labels, err := p.ofLabels().labels()
	for i := range rows {
		rows[i].Label = hypervisor.ParseDiskLabel(labels[rows[i].Name])
	}
	return rows, err
}

// labels are the texts of the labels of data disks, by the names of the disks.
func (p diskLabels) labels() (map[string]string, error) {
	names, err := p.names()
	labels := map[string]string{}
	for _, name := range names {
		if m := keptVolume.FindStringSubmatch(name); m != nil {
			labels[m[1]] = m[2]
		}
	}
	return labels, err
}

// label writes what the data disk was for, and forgets what was written before.
func (p diskLabels) label(disk string, l hypervisor.DiskLabel) error {
	want := disk + ".kept." + l.Text()
	v, err := p.ensure(volume{name: want, size: 512, format: "raw"}, false)
	if err != nil {
		return err
	}
	_ = v.Free()
	return p.unlabel(disk, want)
}

// unlabel removes the labels of the disk but one.
func (p diskLabels) unlabel(disk, but string) error {
	names, err := p.names()
	if err != nil {
		return err
	}
	for _, name := range names {
		if m := keptVolume.FindStringSubmatch(name); m != nil && m[1] == disk && name != but {
			if err := p.remove(name); err != nil {
				return err
			}
		}
	}
	return nil
}

// DeleteVolume implements hypervisor.Volumes.
func (b *Backend) DeleteVolume(ctx context.Context, owner director.Stamp, serials ...string) error {
	const op = "libvirt.delete_volume"
	if err := director.Invalid(op, "the owner is wrong", hypervisor.ValidStamp("owner", owner)); err != nil {
		return err
	}
	return b.alone(ctx, op, machineKey(owner), func(work context.Context) error {
		// Who uses them is asked of all hosts first: each of them may see the same disks.
		if err := b.onEachPool(work, op, func(p *pool) error {
			return p.volumesUnused(owner, serials, "")
		}); err != nil {
			return err
		}
		return b.onEachPool(work, op, func(p *pool) error { return p.deleteVolumes(owner, serials) })
	})
}

// named matches the owner's data disks with those serials, or all of them without any.
func named(owner director.Stamp, serials []string) func(director.Stamp, string) bool {
	return func(s director.Stamp, serial string) bool {
		return s == owner && (len(serials) == 0 || slices.Contains(serials, serial))
	}
}

// deleteVolumes removes the disks, and then their labels and marks, also of disks that an earlier try has removed.
func (p *pool) deleteVolumes(owner director.Stamp, serials []string) error {
	match := named(owner, serials)
	rows, err := p.dataDisks(match)
	if err != nil {
		return err
	}
	for _, r := range rows {
		if err := p.disks.remove(r.Name); err != nil {
			return err
		}
	}
	labels, err := p.ofLabels().labels()
	if err != nil {
		return err
	}
	for disk := range labels {
		if ofDisk(disk, match) {
			if err := p.ofLabels().unlabel(disk, ""); err != nil {
				return err
			}
		}
	}
	pending, err := p.ofCopies().copying()
	if err != nil {
		return err
	}
	for _, disk := range pending {
		if ofDisk(disk, match) {
			if err := p.remove(copyingName(disk)); err != nil {
				return err
			}
		}
	}
	return nil
}

// ofDisk tells whether the name is that of a data disk that matches.
func ofDisk(name string, match func(director.Stamp, string) bool) bool {
	m := dataVolume.FindStringSubmatch(name)
	return m != nil && match(director.Stamp{Director: m[1], Machine: m[2]}, m[3])
}

// takeable tells what keeps the VM from the disks that it is to take over.
func (p *pool) takeable(s hypervisor.Spec) error {
	for _, d := range s.DataDisks {
		if err := p.ofCopies().whole(p.dataName(d.Owner(s.Key), d.Serial)); err != nil {
			return err
		}
		if d.Of == (director.Stamp{}) {
			continue
		}
		v, err := p.disks.find(p.dataName(d.Of, d.Serial))
		if err != nil {
			return err
		}
		if v == nil {
			return director.Errorf(director.KindNotFound, p.op, "host %s does not have the data disk %s of machine "+
				"%s, which %s is to take over",
				p.h.Name, d.Serial, d.Of.Machine, s.Name).WithHint("see where it is: directorctl disks list")
		}
		_ = v.Free()
		if err := p.volumesUnused(d.Of, []string{d.Serial}, hypervisor.ID(domainUUID(s.Key))); err != nil {
			return err
		}
	}
	return nil
}

// volumesUnused is a conflict if a VM of the pool's host other than but uses data disks of the owner with those
// serials, or any of them without serials.
func (p *pool) volumesUnused(owner director.Stamp, serials []string, but hypervisor.ID) error {
	return p.volumesFree(owner, serials, func(u user) bool { return u.id == but })
}

// volumesFree is volumesUnused for the VMs that may not use them.
func (p *pool) volumesFree(owner director.Stamp, serials []string, may func(user) bool) error {
	rows, err := p.dataDisks(named(owner, serials))
	if err != nil || len(rows) == 0 {
		return err
	}
	users, err := p.users()
	if err != nil {
		return err
	}
	for _, r := range rows {
		if u, used := users[p.disks.path(r.Name)]; used && !may(u) {
			return director.Errorf(
				director.KindConflict, p.op, "the VM %s on host %s uses the data disk %s of machine %s", u.name,
				p.h.Name, r.Serial, owner.Machine,
			).
				WithHint("delete the VM first")
		}
	}
	return nil
}
