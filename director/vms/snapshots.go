package vms

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/store"
)

// upgrades is who deletes a snapshot, in the audit trail.
const upgrades = "upgrades"

// DropSnapshots deletes the snapshots of VMs that plans have left which are over for good. Nothing goes back to them,
// and each grows with what its VM writes. A cluster that a plan works on is left for later. What could not be deleted
// is tried again by the next call. It can be cut off anywhere and repeated, by any number of directors.
func (s *Service) DropSnapshots(ctx context.Context) error {
	ids, err := s.store.PlansThatLeft(ctx, step.SnapshotTake, step.SnapshotDelete)
	if err != nil {
		return err
	}
	var errs []error
	for _, id := range ids {
		if _, done := s.dropped.Load(id); done {
			continue
		}
		done, err := s.dropSnapshotsOf(ctx, id)
		if done && err == nil {
			s.dropped.Store(id, true)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// dropSnapshotsOf deletes those of one plan. It reports whether there are none left.
func (s *Service) dropSnapshotsOf(ctx context.Context, id string) (bool, error) {
	p, state, err := s.store.Plan(ctx, id)
	if err != nil {
		return false, err
	}
	if holder, err := s.store.Holder(ctx, p.Cluster); err != nil || holder != "" {
		return false, err
	}
	left, err := snapshotsOf(p, state)
	if err != nil {
		return false, err
	}
	var errs []error
	for _, m := range left {
		errs = append(errs, s.dropSnapshot(ctx, m, step.SnapshotName(id)))
	}
	return true, errors.Join(errs...)
}

// snapshotsOf returns the machines of which the plan may have left a snapshot.
func snapshotsOf(p plan.Plan, state plan.State) (map[string]plan.MachineSpec, error) {
	left := map[string]plan.MachineSpec{}
	for _, kind := range []string{step.SnapshotTake, step.SnapshotDelete} {
		for _, st := range p.Steps {
			if st.Kind != kind {
				continue
			}
			var params step.SnapshotParams
			if err := json.Unmarshal(st.Params, &params); err != nil {
				return nil, director.Errorf(
					director.KindInternal, "vms.snapshots", "step %s of plan %s cannot be read: %w", st.ID, p.ID, err,
				)
			}
			switch now := state.Step(st.ID); {
			case now == nil:
			case kind == step.SnapshotTake && !now.StartedAt.IsZero():
				left[params.Machine.ID] = params.Machine
			case kind == step.SnapshotDelete && now.Status == plan.Done:
				delete(left, params.Machine.ID)
			}
		}
	}
	return left, nil
}

func (s *Service) dropSnapshot(ctx context.Context, m plan.MachineSpec, name string) error {
	b, err := s.backends.Backend(ctx, m.Provider)
	if director.KindOf(err) == director.KindNotFound {
		return nil // its document is gone, and what it has cannot be asked for
	}
	if err != nil {
		return err
	}
	can, ok := hypervisor.Capability[hypervisor.Snapshots](b)
	if !ok {
		return nil
	}
	vms, err := b.List(ctx, hypervisor.Filter{Director: s.director, Machine: m.ID})
	if err != nil {
		return err
	}
	for _, vm := range vms {
		have, err := can.ListSnapshots(ctx, vm.ID)
		if err != nil {
			return err
		}
		if found, there := hypervisor.FindSnapshot(have, name); !there || !found.Ours {
			continue
		}
		owner := director.Stamp{Director: s.director, Machine: m.ID}
		if err := can.DeleteSnapshot(ctx, vm.ID, owner, name); err != nil {
			return err
		}
		if err := s.store.Update(ctx, func(tx *store.Tx) error {
			return tx.Audit(s.now(), upgrades, "delete", "snapshot "+name+" of VM/"+string(vm.ID)+" ("+vm.Name+")")
		}); err != nil {
			return err
		}
	}
	return nil
}
