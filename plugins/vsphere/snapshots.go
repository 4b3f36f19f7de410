package vsphere

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// ourSnapshot begins the description of snapshots that the director took. Names are not unique in vCenter, and people
// take snapshots too.
const ourSnapshot = "Taken by director "

// taken is a snapshot as vCenter has it.
type taken struct {
	hypervisor.Snapshot
	ref types.ManagedObjectReference
}

// snapshotsOf returns the machine's snapshots, the oldest first.
func snapshotsOf(ctx context.Context, p *place, m *machine) ([]taken, error) {
	found, err := retrieve(ctx, p.vim, types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{Obj: m.ref}},
		PropSet:   []types.PropertySpec{{Type: "VirtualMachine", PathSet: []string{"snapshot.rootSnapshotList"}}},
	})
	if err != nil {
		return nil, err
	}
	var all []taken
	var walk func([]types.VirtualMachineSnapshotTree)
	walk = func(tree []types.VirtualMachineSnapshotTree) {
		for _, s := range tree {
			all = append(all, taken{
				hypervisor.Snapshot{
					Name: s.Name, Created: s.CreateTime, Ours: strings.HasPrefix(s.Description, ourSnapshot),
				},
				s.Snapshot,
			})
			walk(s.ChildSnapshotList)
		}
	}
	for _, o := range found {
		for _, v := range o.PropSet {
			if tree, ok := v.Val.(types.ArrayOfVirtualMachineSnapshotTree); ok {
				walk(tree.VirtualMachineSnapshotTree)
			}
		}
	}
	slices.SortStableFunc(all, func(x, y taken) int { return x.Created.Compare(y.Created) })
	return all, nil
}

func plainSnapshots(all []taken) []hypervisor.Snapshot {
	var out []hypervisor.Snapshot
	for _, s := range all {
		out = append(out, s.Snapshot)
	}
	return out
}

// find returns the snapshot of the name, one of ours before another's, or nil.
func findTaken(all []taken, name string) *taken {
	s, found := hypervisor.FindSnapshot(plainSnapshots(all), name)
	if !found {
		return nil
	}
	i := slices.IndexFunc(all, func(x taken) bool { return x.Snapshot == s })
	return &all[i]
}

// owned runs act with the VM and its snapshots, alone on the machine. Errors: not_found, conflict if the VM has another
// owner.
func (b *machines) owned(
	ctx context.Context, op string, id hypervisor.ID, owner director.Stamp,
	act func(p *place, m *machine, have []taken) error,
) error {
	return b.alone(ctx, op, machineKey(owner), func() error {
		p, m, err := b.get(ctx, op, id)
		if err != nil {
			return err
		}
		if m.stamp() != owner || owner == (director.Stamp{}) {
			return director.Errorf(
				director.KindConflict, op, "the VM %s has another owner (%s/%s)", m.name, m.stamp().Director,
				m.stamp().Machine,
			).
				WithHint("it is left as it is")
		}
		have, err := snapshotsOf(ctx, p, m)
		if err == nil {
			err = act(p, m, have)
		}
		return b.translate(ctx, op, "VM "+m.name, b.forget(err))
	})
}

// TakeSnapshot implements hypervisor.Snapshots.
func (b *machines) TakeSnapshot(
	ctx context.Context, id hypervisor.ID, owner director.Stamp, name string, g hypervisor.SnapshotGuard,
) (s hypervisor.Snapshot, err error) {
	const op = "vsphere.take_snapshot"
	if name == "" || len(name) > mostName {
		return s, director.Invalid(op, "the snapshot cannot be taken", []director.Field{
			{Path: "name", Msg: "is empty or too long"},
		})
	}
	err = b.owned(ctx, op, id, owner, func(p *place, m *machine, have []taken) error {
		if old := findTaken(have, name); old != nil && old.Ours {
			s = old.Snapshot
			return nil
		}
		free, disk, err := b.growth(ctx, op, p, m)
		if err != nil {
			return err
		}
		if err := g.Check(op, m.name, plainSnapshots(have), time.Now(), free, disk); err != nil {
			return err
		}
		_, err = b.run(ctx, op, p.vim, func() (types.ManagedObjectReference, error) {
			res, err := methods.CreateSnapshot_Task(ctx, p.vim, &types.CreateSnapshot_Task{
				This: m.ref, Name: name, Description: ourSnapshot + owner.Director + ".",
			})
			if err != nil {
				return types.ManagedObjectReference{}, err
			}
			return res.Returnval, nil
		})
		if err != nil {
			return err
		}
		if have, err = snapshotsOf(ctx, p, m); err != nil {
			return err
		}
		made := findTaken(have, name)
		if made == nil {
			return director.Errorf(
				director.KindUnavailable, op, "the snapshot %s of %s was taken and is gone", name, m.name,
			)
		}
		s = made.Snapshot
		return nil
	})
	return s, err
}

// growth returns what is free in the datastore of the machine's root disk, and how large that disk can become.
func (b *machines) growth(ctx context.Context, op string, p *place, m *machine) (free, disk int64, err error) {
	root, err := rootDisk(ctx, p, m)
	if err != nil {
		return 0, 0, err
	}
	space, err := b.stores(ctx, op, p)
	if err != nil {
		return 0, 0, err
	}
	for _, d := range append(p.dataStores(), p.images) {
		if strings.HasPrefix(fileOf(root), "["+d.Name()+"] ") {
			return space[d.Reference()].free, root.CapacityInBytes, nil
		}
	}
	return 0, root.CapacityInBytes, director.Errorf(
		director.KindInvalid, op, "the disk of %s is %s, in none of the provider's datastores", m.name, fileOf(root),
	).
		WithHint("add its datastore to spec.vsphere.datastores, or move the VM")
}

// ListSnapshots implements hypervisor.Snapshots.
func (b *machines) ListSnapshots(ctx context.Context, id hypervisor.ID) ([]hypervisor.Snapshot, error) {
	const op = "vsphere.list_snapshots"
	p, m, err := b.get(ctx, op, id)
	if err != nil {
		return nil, err
	}
	all, err := snapshotsOf(ctx, p, m)
	return plainSnapshots(all), b.translate(ctx, op, "VM "+m.name, b.forget(err))
}

// RevertSnapshot implements hypervisor.Snapshots. The VM is switched off first: what it is on would have no disk under
// it any more.
func (b *machines) RevertSnapshot(ctx context.Context, id hypervisor.ID, owner director.Stamp, name string) error {
	const op = "vsphere.revert_snapshot"
	return b.owned(ctx, op, id, owner, func(p *place, m *machine, have []taken) error {
		s := findTaken(have, name)
		switch {
		case s == nil:
			return hypervisor.NoSnapshot(op, m.name, name)
		case !s.Ours:
			return hypervisor.ForeignSnapshot(op, m.name, name)
		}
		if err := b.power(ctx, op, p, m.ref, false); err != nil {
			return err
		}
		_, err := b.run(ctx, op, p.vim, func() (types.ManagedObjectReference, error) {
			res, err := methods.RevertToSnapshot_Task(ctx, p.vim, &types.RevertToSnapshot_Task{
				This: s.ref, SuppressPowerOn: new(true),
			})
			if err != nil {
				return types.ManagedObjectReference{}, err
			}
			return res.Returnval, nil
		})
		return err
	})
}

// DeleteSnapshot implements hypervisor.Snapshots.
func (b *machines) DeleteSnapshot(ctx context.Context, id hypervisor.ID, owner director.Stamp, name string) error {
	const op = "vsphere.delete_snapshot"
	return b.owned(ctx, op, id, owner, func(p *place, m *machine, have []taken) error {
		s := findTaken(have, name)
		if s == nil {
			return nil
		}
		if !s.Ours {
			return hypervisor.ForeignSnapshot(op, m.name, name)
		}
		_, err := b.run(ctx, op, p.vim, func() (types.ManagedObjectReference, error) {
			res, err := methods.RemoveSnapshot_Task(ctx, p.vim, &types.RemoveSnapshot_Task{
				This: s.ref, Consolidate: new(true),
			})
			if err != nil {
				return types.ManagedObjectReference{}, err
			}
			return res.Returnval, nil
		})
		return err
	})
}
