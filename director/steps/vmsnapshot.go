package steps

import (
	"context"
	"errors"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// kept is a VM whose root disk can be kept as it is.
type kept struct {
	hypervisor.Snapshots
	vm    hypervisor.VM
	owner director.Stamp
	name  string // of the plan's own snapshot
	power func(context.Context, hypervisor.Power) error
}

// kept returns the only VM of the machine. Errors: not_found if there is none, conflict if there are more; invalid if
// its provider takes no snapshots.
func (e vmSteps) kept(ctx context.Context, r plan.Run, p step.SnapshotParams) (kept, error) {
	m := p.Machine
	b, err := e.backend(ctx, m.Provider)
	if err != nil {
		return kept{}, err
	}
	can, ok := hypervisor.Capability[hypervisor.Snapshots](b)
	if !ok {
		return kept{}, director.Errorf(
			director.KindInvalid, "steps.snapshot", "provider %s takes no snapshots of VMs", m.Provider,
		).
			WithHint("set spec.maintenance.rollback of Cluster/%s to recreate, and plan again", m.Cluster)
	}
	vms, err := b.List(ctx, hypervisor.Filter{Director: e.Director, Machine: m.ID})
	if err != nil {
		return kept{}, err
	}
	if len(vms) != 1 {
		kind := director.KindConflict
		if len(vms) == 0 {
			kind = director.KindNotFound
		}
		return kept{}, director.Errorf(
			kind, "steps.snapshot", "provider %s has %d VMs of %s, and not one", m.Provider, len(vms), m.Name,
		).
			WithHint("compare the ledger with the provider: directorctl vms audit")
	}
	id := vms[0].ID
	return kept{can, vms[0], e.stamp(m.ID), step.SnapshotName(r.Plan.ID), func(
		ctx context.Context, to hypervisor.Power,
	) error {
		return b.SetPower(ctx, id, to)
	}}, nil
}

// snapshotTake keeps the root disk as it is. A snapshot of a former upgrade that was given up goes first: it would grow
// for ever. It is safe to repeat.
func (e vmSteps) snapshotTake(ctx context.Context, r plan.Run, p step.SnapshotParams) error {
	k, err := e.kept(ctx, r, p)
	if err != nil {
		return err
	}
	have, err := k.ListSnapshots(ctx, k.vm.ID)
	if err != nil {
		return err
	}
	for _, s := range have {
		if !s.Ours || s.Name == k.name || !strings.HasPrefix(s.Name, step.SnapshotPrefix) {
			continue
		}
		r.Note(ctx, "deleting the snapshot "+s.Name+" of a former plan")
		if err := k.DeleteSnapshot(ctx, k.vm.ID, k.owner, s.Name); err != nil {
			return err
		}
	}
	_, err = k.TakeSnapshot(ctx, k.vm.ID, k.owner, k.name, hypervisor.DefaultSnapshotGuard())
	if wrong, ok := errors.AsType[*director.Error](err); ok && wrong.Kind != director.KindUnavailable {
		instead := "set spec.maintenance.rollback of Cluster/" + p.Machine.Cluster + " to recreate, and plan again"
		if wrong.Hint != "" {
			instead = wrong.Hint + "; or " + instead
		}
		return wrong.WithHint("%s", instead)
	}
	return err
}

// snapshotRevert has the VM start with the root disk of the snapshot. It is safe to repeat: what was written since is
// lost each time.
func (e vmSteps) snapshotRevert(ctx context.Context, r plan.Run, p step.SnapshotParams) error {
	k, err := e.kept(ctx, r, p)
	if err != nil {
		return err
	}
	if err := k.RevertSnapshot(ctx, k.vm.ID, k.owner, k.name); err != nil {
		return err
	}
	return k.power(ctx, hypervisor.PowerOn)
}

// snapshotDelete forgets the snapshot and keeps the disk. The node is in use by then, so that a failure is a person's
// to see and nothing is rolled back for it.
func (e vmSteps) snapshotDelete(ctx context.Context, r plan.Run, p step.SnapshotParams) error {
	k, err := e.kept(ctx, r, p)
	if err == nil {
		err = k.DeleteSnapshot(ctx, k.vm.ID, k.owner, k.name)
	}
	switch {
	case director.KindOf(err) == director.KindNotFound:
		return nil // it went with its VM
	case err == nil || ctx.Err() != nil:
		return err
	}
	return plan.ParkLast(err, "the snapshot of "+p.Machine.Name+
		" grows with what the VM writes: see why it cannot be deleted, and retry the step")
}
