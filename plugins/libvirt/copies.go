package libvirt

import (
	"context"
	"strings"

	virt "libvirt.org/go/libvirt"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// A data disk that is written from another one has a mark next to the seeds from before it is touched until it is
// whole. libvirt copies; a copy that libvirtd or the director did not end is deleted and made again.

// diskCopies are what a pool needs for copies of disks.
type diskCopies struct{ *pool }

func (p *pool) ofCopies() diskCopies { return diskCopies{p} }

// CopyDisk implements hypervisor.DiskCopier. The copy is on the host and in the pool of the disk.
func (b *Backend) CopyDisk(ctx context.Context, owner director.Stamp, serial string, to director.Stamp) error {
	const op = "libvirt.copy_disk"
	if err := hypervisor.ValidCopy(op, owner, serial, to); err != nil {
		return err
	}
	return b.alone(ctx, op, machineKey(owner), func(work context.Context) error {
		return b.writeDisk(work, op, owner, to, serial, false)
	})
}

// RestoreDisk implements hypervisor.DiskCopier. The disk is on the host of its copy.
func (b *Backend) RestoreDisk(ctx context.Context, owner director.Stamp, serial string, from director.Stamp) error {
	const op = "libvirt.restore_disk"
	if err := hypervisor.ValidCopy(op, owner, serial, from); err != nil {
		return err
	}
	return b.alone(ctx, op, machineKey(owner), func(work context.Context) error {
		if err := b.onEachPool(work, op, func(p *pool) error {
			return p.volumesUnused(owner, []string{serial}, "")
		}); err != nil {
			return err
		}
		return b.writeDisk(work, op, from, owner, serial, true)
	})
}

// writeDisk gives a disk the content of another one, on the host that has that. With again, also one that is whole.
func (b *Backend) writeDisk(ctx context.Context, op string, from, to director.Stamp, serial string, again bool) error {
	off := func(u user) bool { return !u.on }
	var source *host
	for _, h := range b.hosts {
		there, err := inPool(ctx, h, op, func(p *pool) (bool, error) {
			v, err := p.disks.find(p.dataName(from, serial))
			if v == nil || err != nil {
				return false, err
			}
			_ = v.Free()
			return true, p.volumesFree(from, []string{serial}, off)
		})
		if err != nil {
			return err
		}
		if there && source == nil {
			source = h
		}
	}
	if source == nil {
		return hypervisor.NoCopy(op, from, serial)
	}
	_, err := inPool(ctx, source, op, func(p *pool) (none, error) {
		return none{}, b.copyVolume(p, p.dataName(from, serial), p.dataName(to, serial), again)
	})
	return err
}

// copyVolume is writeDisk in the pools of the host. Each line may be the last one, and the next call continues from
// there.
func (b *Backend) copyVolume(p *pool, from, to string, again bool) error {
	if err := p.ofCopies().whole(from); err != nil {
		return err
	}
	there, err := p.disks.ofCopies().allocated(to)
	if err != nil {
		return err
	}
	if there >= 0 && !again && p.ofCopies().whole(to) == nil {
		return nil
	}
	source, err := p.disks.find(from)
	if err != nil {
		return err
	}
	if source == nil {
		return director.Errorf(director.KindUnavailable, p.op, "the data disk %s vanished while it was copied", from)
	}
	defer func() { _ = source.Free() }()
	info, err := source.GetInfo()
	if err != nil {
		return err
	}
	if err := p.disks.room(int64(info.Allocation) - max(there, 0)); err != nil {
		return err
	}
	mark, err := p.ensure(volume{name: copyingName(to), size: 512, format: "raw"}, false)
	if err != nil {
		return err
	}
	_ = mark.Free()
	if err := b.at("copying"); err != nil {
		return err
	}
	if err := p.disks.remove(to); err != nil {
		return err
	}
	if err := b.at("dropped"); err != nil {
		return err
	}
	text, err := p.disks.define(volume{name: to, size: info.Capacity, format: p.disks.format()})
	if err != nil {
		return err
	}
	target, err := b.clone(p.disks, text, source)
	if err != nil {
		return err
	}
	_ = target.Free()
	if err := b.at("copied disk"); err != nil {
		return err
	}
	return p.remove(copyingName(to))
}

// allocated is what the volume takes of the pool, or -1 if there is none.
func (p diskCopies) allocated(name string) (int64, error) {
	info, found, err := read(p.pool, name, (*virt.StorageVol).GetInfo)
	if err != nil || !found {
		return -1, err
	}
	return int64(info.Allocation), nil
}

// whole is a conflict if the data disk of the name is marked as not written to its end.
func (p diskCopies) whole(disk string) error {
	mark, err := p.find(copyingName(disk))
	if err != nil || mark == nil {
		return err
	}
	_ = mark.Free()
	return hypervisor.NotWhole(p.op, disk)
}

// copying are the names of the data disks that are marked as not written to their end.
func (p diskCopies) copying() ([]string, error) {
	names, err := p.names()
	var disks []string
	for _, name := range names {
		if disk, marked := strings.CutSuffix(name, copyingName("")); marked {
			disks = append(disks, disk)
		}
	}
	return disks, err
}
