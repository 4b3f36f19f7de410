package hypervisor

import (
	"context"
	"slices"
	"time"

	"github.com/director-kaas/kaas/director"
)

// Snapshot is the state of a VM's root disk at a moment, to go back to.
type Snapshot struct {
	Name    string
	Created time.Time
	Ours    bool // Snapshot took it for the VM's owner; others are only shown, and counted by the guard
}

// Snapshots is implemented by back ends that can keep the state of a VM and go back to it. Data disks are no part of
// it: they outlive their VM. All but ListSnapshots refuse a VM whose stamp is not owner with conflict.
type Snapshots interface {
	// TakeSnapshot keeps the state of the VM's disk, and not its memory. It is idempotent by name. Errors: not_found if
	// there is no such VM, and what the guard says.
	TakeSnapshot(ctx context.Context, id ID, owner director.Stamp, name string, g SnapshotGuard) (Snapshot, error)
	// ListSnapshots returns all snapshots of the VM, the oldest first. Errors: not_found if there is no such VM.
	ListSnapshots(ctx context.Context, id ID) ([]Snapshot, error)
	// RevertSnapshot reverts the disk to the snapshot. The VM is off then, and the snapshot stays. Errors: not_found if
	// there is no such VM or snapshot, conflict if the snapshot is not the director's.
	RevertSnapshot(ctx context.Context, id ID, owner director.Stamp, name string) error
	// DeleteSnapshot forgets the snapshot and keeps the state of the disk. No error if it is gone; conflict if it is
	// not the director's.
	DeleteSnapshot(ctx context.Context, id ID, owner director.Stamp, name string) error
}

// SnapshotGuard keeps snapshots from filling the storage: a disk with a snapshot grows with all that is written to it.
type SnapshotGuard struct {
	MaxAge time.Duration // no further snapshot while the VM has an older one
	Most   int           // snapshots that a VM may have
}

// DefaultSnapshotGuard is what VMware recommends at most, and little enough for everybody else.
func DefaultSnapshotGuard() SnapshotGuard { return SnapshotGuard{MaxAge: 72 * time.Hour, Most: 3} }

// Check returns why the VM may not have one more snapshot: conflict for one that is too old or for too many, exhausted
// if the storage could not hold all of the disk once more, which is how large a snapshot can become.
func (g SnapshotGuard) Check(op, vm string, have []Snapshot, now time.Time, free, disk int64) error {
	for _, s := range have {
		if age := now.Sub(s.Created); age > g.MaxAge {
			return director.Errorf(
				director.KindConflict, op, "the snapshot %s of %s is %d hours old, and %d are allowed", s.Name, vm,
				int(age.Hours()), int(g.MaxAge.Hours()),
			).
				WithHint("delete it first: it grows with all that the VM writes")
		}
	}
	if len(have) >= g.Most {
		return director.Errorf(
			director.KindConflict, op, "%s has %d snapshots, and %d are allowed", vm, len(have), g.Most,
		).
			WithHint("delete one of them first")
	}
	if free < disk {
		return director.Errorf(
			director.KindExhausted, op,
			"the storage of %s has %d MiB free, and a snapshot can grow to the %d MiB of its disk", vm, free>>20,
			disk>>20,
		).
			WithHint("free space in it first")
	}
	return nil
}

// FindSnapshot returns the snapshot of the name, and whether there is one. The director's own comes before others.
func FindSnapshot(have []Snapshot, name string) (Snapshot, bool) {
	for _, ours := range []bool{true, false} {
		if i := slices.IndexFunc(have, func(s Snapshot) bool { return s.Name == name && s.Ours == ours }); i >= 0 {
			return have[i], true
		}
	}
	return Snapshot{}, false
}

// ForeignSnapshot is the error for a snapshot that the director did not take.
func ForeignSnapshot(op, vm, name string) error {
	return director.Errorf(director.KindConflict, op, "the snapshot %s of %s is not the director's", name, vm).
		WithHint("it is left as it is; use the hypervisor's own tools")
}

// NoSnapshot is the error for a snapshot that is not there.
func NoSnapshot(op, vm, name string) error {
	return director.Errorf(director.KindNotFound, op, "%s has no snapshot %q", vm, name)
}
