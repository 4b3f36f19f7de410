package steps

import (
	"context"
	"crypto/sha256"
	"encoding/hex"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// diskCopy is the copy of a machine's data disk that a plan makes.
type diskCopy struct {
	hypervisor.DiskCopier
	volumes   hypervisor.Volumes
	owner, to director.Stamp
}

func (c diskCopy) id() string { return director.DiskID(c.to.Machine, director.DataDiskSerial) }

// copyOf returns the plan's copy of the machine's data disk, whether it is made or not. Errors: invalid if the provider
// cannot copy disks.
func (e diskSteps) copyOf(ctx context.Context, r plan.Run, m plan.MachineSpec) (diskCopy, error) {
	b, err := e.backend(ctx, m.Provider)
	if err != nil {
		return diskCopy{}, err
	}
	copier, able := hypervisor.Capability[hypervisor.DiskCopier](b)
	volumes, lists := hypervisor.Capability[hypervisor.Volumes](b)
	if !able || !lists {
		return diskCopy{}, director.Errorf(
			director.KindInvalid, "steps.copy", "provider %s makes no copies of data disks", m.Provider,
		)
	}
	sum := sha256.Sum256([]byte(r.Plan.ID + "/" + m.ID))
	return diskCopy{copier, volumes, e.stamp(m.ID), e.stamp("c" + hex.EncodeToString(sum[:8]))}, nil
}

// copyMake copies the data disk of the machine, whose VM is gone. The copy is written down before it is made.
func (e diskSteps) copyMake(ctx context.Context, r plan.Run, p step.CopyParams) error {
	m := p.Machine
	c, err := e.copyOf(ctx, r, m)
	if err != nil {
		return err
	}
	if e.Disks != nil {
		if err := e.Disks.KeepDisks(ctx, []director.KeptDisk{{
			ID: c.id(), Provider: m.Provider, Host: m.Host, Machine: c.to.Machine, Serial: director.DataDiskSerial,
			Size: int64(p.Size), ClusterUID: m.ClusterUID, Cluster: m.Cluster, Pool: m.Pool, Node: m.Name,
			Plan: r.Plan.ID, Kept: e.Now(), CopyOf: director.DiskID(m.ID, director.DataDiskSerial),
		}}); err != nil {
			return err
		}
	}
	r.Note(ctx, "copying the data disk to "+c.id())
	return c.CopyDisk(ctx, c.owner, director.DataDiskSerial, c.to)
}

// copyRestore gives the data disk the content of the plan's copy again. The machine has no VM then. It is safe to
// repeat until the machine has one: what was written since the copy is lost each time.
func (e diskSteps) copyRestore(ctx context.Context, r plan.Run, p step.CopyParams) error {
	c, err := e.copyOf(ctx, r, p.Machine)
	if err != nil {
		return err
	}
	r.Note(ctx, "restoring the data disk from "+c.id())
	return c.RestoreDisk(ctx, c.owner, director.DataDiskSerial, c.to)
}

// copyDelete deletes the plan's copy, which may not be there. What it was made for is done by then, so that a failure
// is a person's to see and nothing goes back for it.
func (e diskSteps) copyDelete(ctx context.Context, r plan.Run, p step.CopyParams) error {
	c, err := e.copyOf(ctx, r, p.Machine)
	if err == nil {
		err = c.volumes.DeleteVolume(ctx, c.to, director.DataDiskSerial)
	}
	if err == nil && e.Disks != nil {
		err = e.Disks.ForgetDisk(ctx, c.id())
	}
	if err == nil || ctx.Err() != nil {
		return err
	}
	return plan.ParkLast(err, "the copy of the data disk of "+p.Machine.Name+
		" takes space: see why it cannot be deleted, and retry the step")
}
