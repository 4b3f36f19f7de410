package vsphere

import (
	"context"
	"path"
	"strings"
	"time"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// Delete implements hypervisor.Backend. The VM goes last, so that a half-done Delete is still listed. Only the disk
// that came with the image is destroyed with it: every other one is detached first, the director's data disks as well
// as disks that others have attached, such as the volumes of a storage driver, which are never deleted. Of a VM that
// was adopted no disk is destroyed: they are its maker's.
func (b *machines) Delete(ctx context.Context, id hypervisor.ID, o hypervisor.DeleteOptions) error {
	const op = "vsphere.delete"
	return b.alone(ctx, op, machineKey(o.Owner), func() error {
		p, m, err := b.get(ctx, op, id)
		if director.KindOf(err) == director.KindNotFound && err != nil {
			if string(id) != vmUUID(o.Owner) || !o.DataDisks {
				return nil
			}
			if p, err = b.place(ctx, op); err != nil { // the VM was removed by hand
				return err
			}
			return b.deleteKept(ctx, op, p, o.Owner)
		}
		if err != nil {
			return err
		}
		if m.stamp() != o.Owner || o.Owner == (director.Stamp{}) {
			return director.Errorf(
				director.KindConflict, op, "the VM %s has another owner (%s/%s)", m.name, m.stamp().Director,
				m.stamp().Machine,
			).
				WithHint("it is left as it is; remove it by hand if it is yours")
		}
		return b.translate(ctx, op, "VM "+m.name, b.forget(b.delete(ctx, op, p, m, o)))
	})
}

func (b *machines) delete(ctx context.Context, op string, p *place, m *machine, o hypervisor.DeleteOptions) error {
	if m.on {
		if err := b.shutdown(ctx, op, p, m, o.Grace); err != nil {
			return err
		}
		if err := b.power(ctx, op, p, m.ref, false); err != nil {
			return err
		}
	}
	if err := b.detach(ctx, op, p, m, o.Owner); err != nil {
		return err
	}
	if m.extra[keyApart] != "" {
		if err := b.keepApart(ctx, op, p, m.extra[keyGroup]); err != nil {
			return err
		}
	}
	if err := b.at("detached"); err != nil {
		return err
	}
	if o.DataDisks {
		if err := b.deleteKept(ctx, op, p, o.Owner); err != nil {
			return err
		}
	}
	if err := b.label(ctx, op, p, o, m); err != nil {
		return err
	}
	if err := b.dropConsole(ctx, op, p, m); err != nil {
		return err
	}
	return b.destroy(ctx, op, p, m.ref)
}

// shutdown asks the guest to power off and waits for it, at most for grace. No error if it does not comply.
func (b *machines) shutdown(ctx context.Context, op string, p *place, m *machine, grace time.Duration) error {
	if grace <= 0 {
		return nil
	}
	if _, err := methods.ShutdownGuest(ctx, p.vim, &types.ShutdownGuest{This: m.ref}); err != nil {
		if interrupted(ctx, op) == nil {
			b.conn.log.InfoContext(ctx, "guest takes no request to shut down", "vm", m.name, "err", err)
		}
		return interrupted(ctx, op)
	}
	deadline := time.NewTimer(grace)
	defer deadline.Stop()
	for pause := 100 * time.Millisecond; ; pause = min(lastLook, pause*2) {
		now, err := readMachine(ctx, p.vim, m.ref)
		if err != nil || now == nil || !now.on {
			return err
		}
		look := time.NewTimer(pause)
		select {
		case <-look.C:
		case <-deadline.C:
			look.Stop()
			return nil
		case <-ctx.Done():
			look.Stop()
			return interrupted(ctx, op)
		}
	}
}

// detach takes every disk but the root disk off the machine (of one that was adopted, that too) and unsets its mark:
// from here on it is half a machine. A data disk of ours that was moved, as vCenter does when it moves a VM to another
// datastore, is brought back under its name; where it is is written into the VM's settings before it is detached, so
// that a crash does not lose sight of it.
func (b *machines) detach(ctx context.Context, op string, p *place, m *machine, owner director.Stamp) error {
	all, err := devices(ctx, p, m)
	if err != nil {
		return err
	}
	spec := types.VirtualMachineConfigSpec{ExtraConfig: []types.BaseOptionValue{option(keyMade, "")}}
	moved := m.extra[keyMoved]
	for _, d := range all {
		disk, ok := d.(*types.VirtualDisk)
		if !ok || isRoot(all, disk) && !m.adopted() {
			continue
		}
		// Without a file operation the file stays.
		spec.DeviceChange = append(spec.DeviceChange, &types.VirtualDeviceConfigSpec{
			Operation: types.VirtualDeviceConfigSpecOperationRemove, Device: disk,
		})
		for _, name := range strings.Fields(m.extra[keyDisks]) {
			whose, serial := listed(owner, name)
			if strings.EqualFold(uuidOf(disk), diskUUID(whose, serial)) &&
				!strings.HasSuffix(fileOf(disk), "] "+path.Join(dataDir, dataName(whose, serial))) {
				moved += name + "\t" + fileOf(disk) + "\n"
			}
		}
	}
	if m.extra[keyApart] == "yes" {
		spec.ExtraConfig = append(spec.ExtraConfig, option(keyApart, leaving))
	}
	if moved != "" {
		spec.ExtraConfig = append(spec.ExtraConfig, option(keyMoved, moved))
	}
	if len(spec.DeviceChange) > 0 || m.made() || m.extra[keyApart] == "yes" {
		if err := b.reconfigure(ctx, op, p, m, spec); err != nil {
			return err
		}
	}
	for line := range strings.Lines(moved) {
		name, file, _ := strings.Cut(strings.TrimSpace(line), "\t")
		if err := b.bringBack(ctx, op, p, file, dataName(listed(owner, name))); err != nil {
			return err
		}
	}
	return nil
}

// bringBack renames a data disk to the name that it was made with; in the datastore where it is, if that is one of the
// provider's. No error if it was brought back before.
func (b *machines) bringBack(ctx context.Context, op string, p *place, file, name string) error {
	var from object.DatastorePath
	if !from.FromString(file) {
		return nil
	}
	store := p.data
	for _, s := range p.dataStores() {
		if s.Name() == from.Datastore {
			store = s
		}
	}
	err := object.NewFileManager(p.vim).MakeDirectory(ctx, store.Path(dataDir), p.dc, false)
	if err != nil && !hasFault[types.FileAlreadyExists](err) {
		return err
	}
	_, err = b.run(ctx, op, p.vim, func() (types.ManagedObjectReference, error) {
		t, err := object.NewVirtualDiskManager(p.vim).MoveVirtualDisk(
			ctx, file, p.dc, store.Path(path.Join(dataDir, name)), p.dc, false,
		)
		if err != nil {
			return types.ManagedObjectReference{}, err
		}
		return t.Reference(), nil
	})
	if hasFault[types.FileNotFound](err) || hasFault[types.FileAlreadyExists](err) {
		return nil
	}
	return err
}
