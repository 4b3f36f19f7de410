package vsphere

import (
	"context"
	"path"
	"regexp"
	"slices"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// A data disk that is written from another one has a mark next to it, a text file, from before it is touched until it
// is whole. vCenter copies; a copy that vCenter or the director did not end is deleted and made again.
var copyingFile = regexp.MustCompile(`^([^.]+)\.([^.]+)\.([^.]+)\.copying\.txt$`)

func copyingName(key director.Stamp, serial string) string {
	return key.Director + "." + key.Machine + "." + serial + ".copying.txt"
}

// CopyDisk implements hypervisor.DiskCopier. The copy is in the datastore of the disk.
func (b *dataDisks) CopyDisk(ctx context.Context, owner director.Stamp, serial string, to director.Stamp) error {
	const op = "vsphere.copy_disk"
	return b.withCopy(ctx, op, owner, serial, to, func(p *place) error {
		have, err := b.disks(ctx, op, p, dataName(to, serial))
		if err != nil {
			return err
		}
		marks, err := b.copying(ctx, op, p, to)
		if err != nil || len(have) > 0 && len(marks[serial]) == 0 {
			return err
		}
		return b.writeDisk(ctx, op, p, owner, to, serial)
	})
}

// RestoreDisk implements hypervisor.DiskCopier. The disk is in the datastore of its copy.
func (b *dataDisks) RestoreDisk(ctx context.Context, owner director.Stamp, serial string, from director.Stamp) error {
	const op = "vsphere.restore_disk"
	return b.withCopy(ctx, op, owner, serial, from, func(p *place) error {
		m, err := lookup(ctx, p, vmUUID(owner))
		if err != nil {
			return err
		}
		if m != nil && m.stamp() == owner { // also one that has not been given its disks yet
			return diskUsed(op, m.name, kept{file: dataName(owner, serial), stamp: owner})
		}
		return b.writeDisk(ctx, op, p, from, owner, serial)
	})
}

// withCopy checks the stamps of a disk and its copy, and runs act under the lock of the disk's machine.
func (b *dataDisks) withCopy(
	ctx context.Context, op string, owner director.Stamp, serial string, other director.Stamp, act func(*place) error,
) error {
	if err := hypervisor.ValidCopy(op, owner, serial, other); err != nil {
		return err
	}
	return b.alone(ctx, op, machineKey(owner), func() error {
		p, err := b.place(ctx, op)
		if err != nil {
			return err
		}
		return b.translate(ctx, op, "the data disk of machine "+owner.Machine, b.forget(act(p)))
	})
}

// writeDisk gives a disk the content of another one. Each line may be the last one, and the next call continues from
// there.
func (b *dataDisks) writeDisk(ctx context.Context, op string, p *place, from, to director.Stamp, serial string) error {
	source, old, err := b.copyable(ctx, op, p, from, to, serial)
	if err != nil {
		return err
	}
	mark := source.store.Path(path.Join(dataDir, copyingName(to, serial)))
	text := "The data disk next to this file is not written to its end.\n"
	if err := writeText(ctx, source.store, mark, text); err != nil {
		return b.translate(ctx, op, "file "+mark, err)
	}
	if err := b.at("copying"); err != nil {
		return err
	}
	if err := b.deleteDisks(ctx, op, p, to, old); err != nil {
		return err
	}
	if err := b.at("dropped"); err != nil {
		return err
	}
	target := source.store.Path(path.Join(dataDir, dataName(to, serial)))
	manager := object.NewVirtualDiskManager(p.vim)
	if _, err := b.run(ctx, op, p.vim, func() (types.ManagedObjectReference, error) {
		t, err := manager.CopyVirtualDisk(ctx, source.file, p.dc, target, p.dc, nil, false)
		if err != nil {
			return types.ManagedObjectReference{}, err
		}
		return t.Reference(), nil
	}); err != nil {
		return b.translate(ctx, op, "disk "+target, err)
	}
	if err := b.at("copied disk"); err != nil {
		return err
	}
	if err := manager.SetVirtualDiskUuid(ctx, target, p.dc, spaced(to, serial)); err != nil {
		return b.translate(ctx, op, "disk "+target, err)
	}
	marks, err := b.copying(ctx, op, p, to)
	if err != nil {
		return err
	}
	for _, file := range marks[serial] {
		if err := b.deleteFile(ctx, op, p, file); err != nil {
			return err
		}
	}
	return nil
}

// copyable returns the disk to copy, and what there is of the other one. No VM that is on has the first, and none the
// second.
func (b *dataDisks) copyable(
	ctx context.Context, op string, p *place, from, to director.Stamp, serial string,
) (source kept, old []kept, err error) {
	found, err := b.disks(ctx, op, p, dataName(from, serial))
	if err != nil {
		return kept{}, nil, err
	}
	if len(found) == 0 {
		return kept{}, nil, hypervisor.NoCopy(op, from, serial)
	}
	source = found[0]
	if err := b.whole(ctx, op, p, from, []hypervisor.Disk{{Serial: serial}}); err != nil {
		return kept{}, nil, err
	}
	if old, err = b.disks(ctx, op, p, dataName(to, serial)); err != nil {
		return kept{}, nil, err
	}
	users, err := diskUsers(ctx, p, append(slices.Clone(old), source))
	if err != nil {
		return kept{}, nil, err
	}
	if user := users[source.file]; user.on {
		return kept{}, nil, diskUsed(op, user.vm, source)
	}
	for _, k := range old {
		if user := users[k.file]; user.vm != "" {
			return kept{}, nil, diskUsed(op, user.vm, k)
		}
	}
	return source, old, nil
}

// copying are the marks of the owner's disks that are not written to their end, by serial.
func (b *dataDisks) copying(
	ctx context.Context, op string, p *place, owner director.Stamp,
) (map[string][]string, error) {
	marks := map[string][]string{}
	for _, store := range p.dataStores() {
		files, err := b.texts(ctx, op, p, store, owner.Director+"."+owner.Machine+".")
		if err != nil {
			return nil, err
		}
		for _, f := range files {
			name := f.GetFileInfo().Path
			if m := copyingFile.FindStringSubmatch(name); m != nil {
				marks[m[3]] = append(marks[m[3]], store.Path(path.Join(dataDir, name)))
			}
		}
	}
	return marks, nil
}

// whole is a conflict if one of the disks of a machine with the key is not written to its end.
func (b *dataDisks) whole(
	ctx context.Context, op string, p *place, key director.Stamp, disks []hypervisor.Disk,
) error {
	marks := map[director.Stamp]map[string][]string{}
	for _, d := range disks {
		owner := d.Owner(key)
		if marks[owner] == nil {
			found, err := b.copying(ctx, op, p, owner)
			if err != nil {
				return err
			}
			marks[owner] = found
		}
		if len(marks[owner][d.Serial]) > 0 {
			return hypervisor.NotWhole(op, dataName(owner, d.Serial))
		}
	}
	return nil
}
