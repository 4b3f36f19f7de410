package sim

import (
	"context"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

var _ hypervisor.DiskCopier = (*Backend)(nil)

// CopyDisk implements hypervisor.DiskCopier.
func (b *Backend) CopyDisk(ctx context.Context, owner director.Stamp, serial string, to director.Stamp) error {
	return b.do(ctx, VerbCopyDisk, []string{owner.Machine, to.Machine}, func(op string, when When) error {
		if err := hypervisor.ValidCopy(op, owner, serial, to); err != nil {
			return err
		}
		if have := b.w.disks[diskKey{to, serial}]; have != nil && !have.part {
			return nil
		}
		return b.write(op, diskKey{owner, serial}, diskKey{to, serial}, when)
	})
}

// RestoreDisk implements hypervisor.DiskCopier.
func (b *Backend) RestoreDisk(ctx context.Context, owner director.Stamp, serial string, from director.Stamp) error {
	return b.do(ctx, VerbRestoreDisk, []string{owner.Machine, from.Machine}, func(op string, when When) error {
		if err := hypervisor.ValidCopy(op, owner, serial, from); err != nil {
			return err
		}
		if user := b.w.diskUser(owner, []string{serial}, nil); user != nil {
			return inUse(op, user)
		}
		return b.write(op, diskKey{from, serial}, diskKey{owner, serial}, when)
	})
}

// write gives the disk to the content of the disk from. Midway the disk is there, and not whole.
func (b *Backend) write(op string, from, to diskKey, when When) error {
	w := b.w
	source := w.disks[from]
	switch {
	case source == nil || b.lost[source.host]:
		return hypervisor.NoCopy(op, from.stamp, from.serial)
	case w.hosts[source.host].down:
		return unreachable(op, source.host)
	case source.part:
		return hypervisor.NotWhole(op, from.name())
	}
	if user := w.diskUser(from.stamp, []string{from.serial}, nil); user != nil && user.Power == hypervisor.PowerOn {
		return inUse(op, user)
	}
	fresh := disk{host: source.host, size: source.size, content: source.content, part: when == Midway}
	_, space := w.free(w.hosts[source.host])
	if old := w.disks[to]; old != nil {
		fresh.label = old.label
		if old.host == source.host {
			space += old.size
		}
	}
	if space < source.size {
		return director.Errorf(
			director.KindExhausted, op, "host %s has no room for a copy of the data disk %s", source.host, from.name(),
		).WithHint("free space on it")
	}
	w.dropDisks(to.stamp, []string{to.serial})
	w.putDisk(to, &fresh)
	return nil
}

// whole tells which of the disks is not written to its end.
func (w *things) whole(op string, key director.Stamp, disks []hypervisor.Disk) error {
	for _, d := range disks {
		k := diskKey{d.Owner(key), d.Serial}
		if have := w.disks[k]; have != nil && have.part {
			return hypervisor.NotWhole(op, k.name())
		}
	}
	return nil
}

// WriteDisk writes the text to the data disk, as its VM would. It panics if there is no such disk, or the world's file
// cannot be written.
func (w *World) WriteDisk(owner director.Stamp, serial, text string) {
	const op = "sim.write_disk"
	if err := w.enter(op); err != nil {
		panic(err)
	}
	defer w.leave()
	changed := *w.disks[diskKey{owner, serial}]
	changed.content = text
	w.putDisk(diskKey{owner, serial}, &changed)
	if err := w.journal.flush(op); err != nil {
		panic(err)
	}
}

// ReadDisk returns what was written to the data disk, and whether the disk exists.
func (w *World) ReadDisk(owner director.Stamp, serial string) (text string, exists bool) {
	defer w.look()()
	d := w.disks[diskKey{owner, serial}]
	if d == nil {
		return "", false
	}
	return d.content, true
}
