package sim

import (
	"context"
	"slices"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

var _ hypervisor.Snapshots = (*Backend)(nil)

// owned finds the VM and refuses another's.
func (b *Backend) owned(op string, id hypervisor.ID, owner director.Stamp) (*vm, error) {
	v, err := b.find(op, id)
	if err == nil && (v.Stamp != owner || owner == (director.Stamp{})) {
		return nil, director.Errorf(director.KindConflict, op, "the VM %s has another owner", v.Name).
			WithHint("it is left as it is")
	}
	return v, err
}

// TakeSnapshot implements hypervisor.Snapshots.
func (b *Backend) TakeSnapshot(
	ctx context.Context, id hypervisor.ID, owner director.Stamp, name string, g hypervisor.SnapshotGuard,
) (s hypervisor.Snapshot, err error) {
	err = b.do(ctx, VerbSnapshot, []string{string(id), owner.Machine}, func(op string, when When) error {
		w := b.w
		v, err := b.owned(op, id, owner)
		if err != nil {
			return err
		}
		if have, found := hypervisor.FindSnapshot(v.snapshots, name); found {
			s = have
			return nil
		}
		_, free := w.free(w.hosts[v.Host])
		if err := g.Check(op, v.Name, v.snapshots, time.Now(), free, v.spec.RootDisk); err != nil || when == Midway {
			return err
		}
		s = hypervisor.Snapshot{Name: name, Created: time.Now(), Ours: true}
		v.snapshots = append(v.snapshots, s)
		w.putVM(v)
		return nil
	})
	return s, err
}

// ListSnapshots implements hypervisor.Snapshots.
func (b *Backend) ListSnapshots(ctx context.Context, id hypervisor.ID) (list []hypervisor.Snapshot, err error) {
	err = b.do(ctx, VerbSnapshot, []string{string(id)}, func(op string, _ When) error {
		v, err := b.find(op, id)
		if err == nil {
			list = slices.Clone(v.snapshots)
		}
		return err
	})
	return list, err
}

// RevertSnapshot implements hypervisor.Snapshots. There is no disk whose contents would change.
func (b *Backend) RevertSnapshot(ctx context.Context, id hypervisor.ID, owner director.Stamp, name string) error {
	return b.do(ctx, VerbSnapshot, []string{string(id), owner.Machine}, func(op string, _ When) error {
		v, err := b.owned(op, id, owner)
		if err != nil {
			return err
		}
		if _, found := hypervisor.FindSnapshot(v.snapshots, name); !found {
			return hypervisor.NoSnapshot(op, v.Name, name)
		}
		b.w.power(v, hypervisor.PowerOff)
		return nil
	})
}

// DeleteSnapshot implements hypervisor.Snapshots.
func (b *Backend) DeleteSnapshot(ctx context.Context, id hypervisor.ID, owner director.Stamp, name string) error {
	return b.do(ctx, VerbSnapshot, []string{string(id), owner.Machine}, func(op string, when When) error {
		v, err := b.owned(op, id, owner)
		if err != nil || when == Midway {
			return err
		}
		v.snapshots = slices.DeleteFunc(slices.Clone(
			v.snapshots,
		), func(s hypervisor.Snapshot) bool { return s.Name == name })
		b.w.putVM(v)
		return nil
	})
}
