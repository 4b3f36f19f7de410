package steps

import (
	"context"
	"slices"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/cloudinit"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// Disks is the ledger of disks that outlive their VMs.
type Disks interface {
	// Machine returns the row of the machine, also a tombstone.
	Machine(ctx context.Context, id string) (director.Machine, bool, error)
	// KeepDisks writes the disks down, before their VM goes.
	KeepDisks(ctx context.Context, disks []director.KeptDisk) error
	// TakeDisk gives a kept disk to the machine; conflict if another has it.
	TakeDisk(ctx context.Context, id, machine string) error
	// DisksOf lists the disks that the machine took over.
	DisksOf(ctx context.Context, machine string) ([]director.KeptDisk, error)
	// ForgetDisk takes a disk off the list that was deleted.
	ForgetDisk(ctx context.Context, id string) error
}

// diskSteps do what concerns the disks of VMs: those that outlive them, and their copies.
type diskSteps struct {
	Installation
	Machines
}

func (e vmSteps) disk() diskSteps { return diskSteps{e.Installation, e.Machines} }

// takeDisk makes the kept disk that the plan names the machine's, before a VM is made with it.
func (e diskSteps) takeDisk(ctx context.Context, p step.VMParams) error {
	if p.TakeDisk == "" || e.Disks == nil {
		return nil
	}
	return e.Disks.TakeDisk(ctx, p.TakeDisk, p.Machine.ID)
}

// taken are the disks that the machine took over.
func (e diskSteps) taken(ctx context.Context, machine string) ([]director.KeptDisk, error) {
	if e.Disks == nil {
		return nil, nil
	}
	return e.Disks.DisksOf(ctx, machine)
}

// dataDisks are the data disks of the machine: its own, or in its place the one that it took over.
func (e diskSteps) dataDisks(ctx context.Context, p step.VMParams) ([]hypervisor.Disk, error) {
	taken, err := e.taken(ctx, p.Machine.ID)
	if err != nil {
		return nil, err
	}
	var out []hypervisor.Disk
	for _, d := range taken {
		out = append(out, hypervisor.Disk{Serial: d.Serial, Size: max(d.Size, 1), Of: e.stamp(d.Machine)})
	}
	if len(out) == 0 && p.DataDisk > 0 {
		out = append(out, hypervisor.Disk{Serial: director.DataDiskSerial, Size: int64(p.DataDisk)})
	}
	return out, nil
}

// guestDisk is how the guest finds its data disk.
func (e diskSteps) guestDisk(p step.VMParams, disks []hypervisor.Disk) *cloudinit.DataDisk {
	i := slices.IndexFunc(disks, func(d hypervisor.Disk) bool { return d.Serial == director.DataDiskSerial })
	if i < 0 {
		return nil
	}
	owner := disks[i].Owner(e.stamp(p.Machine.ID))
	return &cloudinit.DataDisk{
		Serial: director.DataDiskSerial, WWN: hypervisor.DiskWWN(owner, director.DataDiskSerial), Mount: DataDiskMount,
		Persist: p.Persist,
	}
}

// mountDisk mounts the data disk of a VM that was told nothing about it at boot.
func (e diskSteps) mountDisk(ctx context.Context, r plan.Run, p step.VMParams, key string) error {
	disks, err := e.dataDisks(ctx, p)
	if err != nil {
		return err
	}
	disk := e.guestDisk(p, disks)
	if disk == nil {
		return nil
	}
	r.Note(ctx, "mounting the data disk")
	return e.Nodes.Script(ctx, p.Machine.Row(), key, disk.Script())
}

// member tells whether the machine is a node of its cluster.
func (e diskSteps) member(ctx context.Context, machine string) (bool, error) {
	if e.Disks == nil {
		return false, nil
	}
	m, _, err := e.Disks.Machine(ctx, machine)
	return m.Kubernetes != "", err
}

// outliving are the disks that outlive the machine's VMs: those that others have attached, and if the machine goes for
// good its data disks too, whether it has a VM or not.
func (e diskSteps) outliving(
	ctx context.Context, r plan.Run, b hypervisor.Backend, vms []hypervisor.VM, p step.VMParams, forGood bool,
) ([]director.KeptDisk, error) {
	m := p.Machine
	kept := director.KeptDisk{
		Provider: m.Provider, ClusterUID: m.ClusterUID, Cluster: m.Cluster, Pool: m.Pool, Node: m.Name, Kept: e.Now(),
	}
	if r.Plan != nil {
		kept.Plan = r.Plan.ID
	}
	out, err := e.foreignDisks(ctx, b, vms, kept)
	if err != nil || !forGood {
		return out, err
	}
	taken, err := e.taken(ctx, m.ID)
	if err != nil {
		return nil, err
	}
	for _, d := range taken { // also one that the hypervisor does not show: the audit says so then
		d.ClusterUID, d.Cluster, d.Pool, d.Node, d.Plan, d.Kept, d.Holder = kept.ClusterUID, kept.Cluster, kept.Pool,
			kept.Node, kept.Plan, kept.Kept, ""
		out = append(out, d)
	}
	volumes, ok := hypervisor.Capability[hypervisor.Volumes](b)
	if !ok {
		return out, nil
	}
	all, err := volumes.ListVolumes(ctx, e.Director)
	if err != nil {
		return nil, err
	}
	for _, v := range all {
		elsewhere := v.VM != "" && !slices.ContainsFunc(vms, func(vm hypervisor.VM) bool { return vm.Name == v.VM })
		if v.Stamp != e.stamp(m.ID) || elsewhere {
			continue
		}
		d := kept
		d.ID, d.Name, d.Host, d.Size, d.Machine, d.Serial = director.DiskID(m.ID, v.Serial), v.Name, v.Host, v.Size,
			m.ID, v.Serial
		out = append(out, d)
	}
	return out, nil
}

// foreignDisks are the disks of the VMs that the director did not make, each described like kept.
func (e diskSteps) foreignDisks(
	ctx context.Context, b hypervisor.Backend, vms []hypervisor.VM, kept director.KeptDisk,
) ([]director.KeptDisk, error) {
	teller, ok := hypervisor.Capability[hypervisor.DiskTeller](b)
	if !ok {
		return nil, nil
	}
	var out []director.KeptDisk
	for _, vm := range vms {
		attached, err := teller.AttachedDisks(ctx, vm.ID)
		if director.KindOf(err) == director.KindNotFound && err != nil {
			continue // it went meanwhile
		}
		if err != nil {
			return nil, err
		}
		for _, a := range attached {
			if a.Stamp.Director == e.Director {
				continue
			}
			d := kept
			d.ID, d.Name, d.Size, d.Host = director.ForeignDiskID(kept.Provider, a.Name), a.Name, a.Size, vm.Host
			out = append(out, d)
		}
	}
	return out, nil
}

// dropDisks deletes those of the disks that the plan names, and tells which are kept.
func (e diskSteps) dropDisks(
	ctx context.Context, r plan.Run, b hypervisor.Backend, p step.VMParams, left []director.KeptDisk,
) error {
	volumes, able := hypervisor.Capability[hypervisor.Volumes](b)
	for _, d := range left {
		if !able || d.Foreign() || !slices.Contains(p.DeleteData, d.ID) {
			r.Note(ctx, "keeping disk "+d.ID+" of "+d.Node)
			continue
		}
		r.Note(ctx, "deleting disk "+d.ID+" of "+d.Node)
		if err := volumes.DeleteVolume(ctx, e.stamp(d.Machine), d.Serial); err != nil {
			return err
		}
	}
	for _, id := range p.DeleteData {
		if e.Disks == nil {
			return nil
		}
		if err := e.Disks.ForgetDisk(ctx, id); err != nil {
			return err
		}
	}
	return nil
}
