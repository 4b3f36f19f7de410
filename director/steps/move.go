package steps

import (
	"context"
	"slices"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// Moves is the ledger of lost hosts, and of machines that are on other hosts since.
type Moves interface {
	LostHosts(ctx context.Context, provider string) ([]director.LostHost, error)
	// LoseMachine makes the row the tombstone of a machine that was given up with its host.
	LoseMachine(ctx context.Context, id string, now time.Time) error
	// MoveMachine makes the row a tombstone, of one that was given up if lost, and reserves its successor in the same
	// moment.
	MoveMachine(ctx context.Context, id string, lost bool, next director.Machine, now time.Time) error
}

// hostLost reports whether the machine's host was declared lost.
func (e vmSteps) hostLost(ctx context.Context, m plan.MachineSpec) (bool, error) {
	if e.Moves == nil || m.Host == "" {
		return false, nil
	}
	lost, err := e.Moves.LostHosts(ctx, m.Provider)
	return slices.ContainsFunc(lost, func(h director.LostHost) bool { return h.Host == m.Host }), err
}

// onLostHost refuses work on a VM whose host was declared lost: it is unknown whether it runs.
func (e vmSteps) onLostHost(ctx context.Context, m plan.MachineSpec) error {
	lost, err := e.hostLost(ctx, m)
	if err != nil || !lost {
		return err
	}
	return director.Errorf(
		director.KindConflict, "steps.lost_host", "%s is on host %s, which was declared lost", m.Name, m.Host,
	).
		WithHint(
			"discard this plan, and make the node on another host: directorctl node replace %s %s", m.Cluster, m.Name,
		)
}

// vmMove deletes the VM, or gives it up with its lost host, and puts its successor in its place in the ledger. A host
// that has come back since the plan was made is no reason to leave its VM: it is deleted then.
func (e vmSteps) vmMove(ctx context.Context, r plan.Run, p step.MoveParams) error {
	if e.Moves == nil || e.Disks == nil {
		return director.Errorf(director.KindInternal, "steps.move", "this director moves no machines")
	}
	if next, there, err := e.Disks.Machine(ctx, p.Next.ID); err != nil || there && next.Deleted.IsZero() {
		return err
	}
	lost, err := e.hostLost(ctx, p.Machine)
	if err != nil {
		return err
	}
	if lost && !p.Lost {
		return director.Errorf(
			director.KindConflict, "steps.move", "host %s was declared lost since the plan was made", p.Machine.Host,
		).
			WithHint(
				"discard this plan and plan again: directorctl node replace %s %s", p.Machine.Cluster, p.Machine.Name,
			)
	}
	move := func() error { return e.Moves.MoveMachine(ctx, p.Machine.ID, lost, p.Next.Row(), e.Now()) }
	if lost {
		return e.giveUp(ctx, r, p.VMParams, move)
	}
	if err := e.unmakeVM(ctx, r, p.VMParams, true); err != nil {
		return err
	}
	return move()
}

// giveUp leaves the VM with its lost host: record writes down in the ledger that it never runs again. Conflict if it
// shows a sign of life.
func (e vmSteps) giveUp(ctx context.Context, r plan.Run, p step.VMParams, record func() error) error {
	if row, there, err := e.Disks.Machine(ctx, p.Machine.ID); err != nil || there && !row.Deleted.IsZero() {
		if err == nil {
			err = record()
		}
		return err
	}
	if alive, err := e.Nodes.Answers(ctx, p.Machine.Row()); err != nil {
		return err
	} else if alive {
		return director.Errorf(
			director.KindConflict, "steps.give_up", "%s answers at %s, so host %s is not off", p.Machine.Name,
			p.Machine.Address, p.Machine.Host,
		).
			WithHint(
				"switch the host off or cut it off from the network of the node, and retry the plan; or discard it, " +
					"and bring the host back",
			)
	}
	disks, err := e.disksOnLostHost(ctx, r, p)
	if err != nil {
		return err
	}
	if err := e.Disks.KeepDisks(ctx, disks); err != nil {
		return err
	}
	r.Note(ctx, "VM "+p.Machine.Name+" was given up with host "+p.Machine.Host)
	return record()
}

// disksOnLostHost are the data disks of a machine whose host was lost. The machine holds them until it was seen to be
// off: it may write to them.
func (e vmSteps) disksOnLostHost(ctx context.Context, r plan.Run, p step.VMParams) ([]director.KeptDisk, error) {
	m := p.Machine
	kept := director.KeptDisk{
		Provider: m.Provider, ClusterUID: m.ClusterUID, Cluster: m.Cluster, Pool: m.Pool, Node: m.Name, Kept: e.Now(),
		Holder: m.ID,
	}
	if r.Plan != nil {
		kept.Plan = r.Plan.ID
	}
	out, err := e.disk().taken(ctx, m.ID)
	if err != nil {
		return nil, err
	}
	for i := range out {
		d := &out[i]
		d.ClusterUID, d.Cluster, d.Pool, d.Node, d.Plan, d.Kept = kept.ClusterUID, kept.Cluster, kept.Pool, kept.Node,
			kept.Plan, kept.Kept
	}
	b, err := e.backend(ctx, m.Provider)
	if err != nil {
		return nil, err
	}
	if volumes, ok := hypervisor.Capability[hypervisor.Volumes](b); ok { // those that every host reaches
		all, err := volumes.ListVolumes(ctx, e.Director)
		if err != nil {
			return nil, err
		}
		for _, v := range all {
			if v.Stamp == e.stamp(m.ID) {
				d := kept
				d.ID, d.Name, d.Host, d.Size, d.Machine, d.Serial = director.DiskID(m.ID, v.Serial), v.Name, v.Host,
					v.Size, m.ID, v.Serial
				out = append(out, d)
			}
		}
	}
	if len(out) == 0 && p.DataDisk > 0 {
		d := kept
		d.ID, d.Host, d.Size, d.Machine, d.Serial = director.DiskID(m.ID, director.DataDiskSerial), m.Host,
			int64(p.DataDisk), m.ID, director.DataDiskSerial
		out = append(out, d)
	}
	return out, nil
}
