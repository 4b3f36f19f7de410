package vsphere

import (
	"context"
	"slices"
	"strings"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// ListVolumes implements hypervisor.Volumes.
func (b *dataDisks) ListVolumes(ctx context.Context, directorID string) ([]hypervisor.VolumeInfo, error) {
	const op = "vsphere.list_volumes"
	p, err := b.place(ctx, op)
	if err != nil {
		return nil, err
	}
	found, err := b.disks(ctx, op, p, directorID+".*.vmdk")
	if err != nil {
		return nil, b.translate(ctx, op, "the data disks", err)
	}
	if len(found) == 0 {
		return nil, nil
	}
	users, err := listedUsers(ctx, p, found)
	if err != nil {
		return nil, b.translate(ctx, op, "the data disks", b.forget(err))
	}
	labels, err := b.labels(ctx, op, p, directorID+".")
	if err != nil {
		return nil, err
	}
	var rows []hypervisor.VolumeInfo
	for _, k := range found {
		rows = append(rows, hypervisor.VolumeInfo{
			Name: k.file, Size: k.size, Stamp: k.stamp, Serial: k.disk, VM: users[k.file].vm,
			Label: hypervisor.ParseDiskLabel(labels[k.file].text),
		})
	}
	return rows, nil
}

// DeleteVolume implements hypervisor.Volumes.
func (b *dataDisks) DeleteVolume(ctx context.Context, owner director.Stamp, serials ...string) error {
	const op = "vsphere.delete_volume"
	if err := director.Invalid(op, "the owner is wrong", hypervisor.ValidStamp("owner", owner)); err != nil {
		return err
	}
	return b.alone(ctx, op, machineKey(owner), func() error {
		p, err := b.place(ctx, op)
		if err != nil {
			return err
		}
		return b.translate(
			ctx, op, "the data disks of machine "+owner.Machine, b.forget(b.deleteKept(ctx, op, p, owner, serials...)),
		)
	})
}

// deleteKept removes the data disks of the stamp with those serials, or all without any, and then their labels and
// marks. Errors: conflict while a VM has one.
func (b *dataDisks) deleteKept(
	ctx context.Context, op string, p *place, owner director.Stamp, serials ...string,
) error {
	found, err := b.disks(ctx, op, p, owner.Director+"."+owner.Machine+".*.vmdk")
	if err != nil {
		return err
	}
	found = slices.DeleteFunc(found, func(k kept) bool { return len(serials) > 0 && !slices.Contains(serials, k.disk) })
	if err := b.deleteDisks(ctx, op, p, owner, found); err != nil {
		return err
	}
	labels, err := b.labels(ctx, op, p, owner.Director+"."+owner.Machine+".")
	if err != nil {
		return err
	}
	for _, l := range labels {
		if len(serials) == 0 || slices.Contains(serials, l.serial) {
			if err := b.deleteFile(ctx, op, p, l.file); err != nil {
				return err
			}
		}
	}
	marks, err := b.copying(ctx, op, p, owner)
	if err != nil {
		return err
	}
	for serial, files := range marks {
		if len(serials) > 0 && !slices.Contains(serials, serial) {
			continue
		}
		for _, file := range files {
			if err := b.deleteFile(ctx, op, p, file); err != nil {
				return err
			}
		}
	}
	return nil
}

func (b *dataDisks) deleteDisks(ctx context.Context, op string, p *place, owner director.Stamp, found []kept) error {
	if len(found) == 0 {
		return nil
	}
	users, err := diskUsers(ctx, p, found)
	if err != nil {
		return err
	}
	m, err := lookup(ctx, p, vmUUID(owner)) // vCenter may be late with the datastore's list of VMs
	if err != nil {
		return err
	}
	if m != nil && m.made() {
		users[found[0].file] = diskUser{m.name, m.on}
	}
	for _, k := range found {
		if user := users[k.file]; user.vm != "" {
			return diskUsed(op, user.vm, k)
		}
	}
	for _, k := range found {
		if err := b.deleteDisk(ctx, op, p, k.file); err != nil {
			return err
		}
	}
	return nil
}

func diskUsed(op, vm string, k kept) error {
	return director.Errorf(
		director.KindConflict, op, "the VM %s uses the data disk %s of machine %s", vm, k.file, k.stamp.Machine,
	).WithHint("delete the VM first, or detach the disk from it")
}

// diskUser is a VM that has a data disk.
type diskUser struct {
	vm string // name
	on bool
}

// listedUsers returns those of our VMs that have the disks, by file, as the VMs' settings list them. It reads no
// devices, which are long.
func listedUsers(ctx context.Context, p *place, disks []kept) (map[string]diskUser, error) {
	all, err := below(ctx, p.vim, p.root)
	if err != nil {
		return nil, err
	}
	has := map[string]diskUser{} // by the names of the disks' files
	for _, m := range all {
		if m.stamp() == (director.Stamp{}) || !m.made() {
			continue
		}
		for _, name := range strings.Fields(m.extra[keyDisks]) {
			has[dataName(listed(m.stamp(), name))] = diskUser{m.name, m.on}
		}
	}
	users := map[string]diskUser{}
	for _, k := range disks {
		if user := has[dataName(k.stamp, k.disk)]; user.vm != "" {
			users[k.file] = user
		}
	}
	return users, nil
}

// diskUsers returns the VMs that have the disks, by file. vCenter knows of each datastore which VMs have
// files in it.
func diskUsers(ctx context.Context, p *place, disks []kept) (map[string]diskUser, error) {
	spec := types.PropertyFilterSpec{
		PropSet: []types.PropertySpec{{
			Type: "VirtualMachine", PathSet: []string{"name", "config.hardware.device", "runtime.powerState"},
		}},
	}
	seen := map[types.ManagedObjectReference]bool{}
	for _, k := range disks {
		if ref := k.store.Reference(); !seen[ref] {
			seen[ref] = true
			spec.ObjectSet = append(spec.ObjectSet, types.ObjectSpec{
				Obj: ref, Skip: types.NewBool(true),
				SelectSet: []types.BaseSelectionSpec{&types.TraversalSpec{Type: "Datastore", Path: "vm"}},
			})
		}
	}
	found, err := retrieve(ctx, p.vim, spec)
	if err != nil {
		return nil, err
	}
	users, err := listedUsers(ctx, p, disks) // vCenter may be late with the datastore's list of VMs
	if err != nil {
		return nil, err
	}
	for _, o := range found {
		var vm mo.VirtualMachine
		if err := mo.LoadObjectContent([]types.ObjectContent{o}, &vm); err != nil || vm.Config == nil {
			continue // it is being made or goes
		}
		for _, d := range object.VirtualDeviceList(vm.Config.Hardware.Device) {
			if disk, ok := d.(*types.VirtualDisk); ok {
				off := vm.Runtime.PowerState == types.VirtualMachinePowerStatePoweredOff
				users[fileOf(disk)] = diskUser{vm.Name, !off}
			}
		}
	}
	return users, nil
}
