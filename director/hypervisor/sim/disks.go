package sim

import (
	"cmp"
	"context"
	"slices"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

func (k diskKey) name() string { return k.stamp.Machine + "." + k.serial }

// AttachedDisks implements hypervisor.DiskTeller.
func (b *Backend) AttachedDisks(ctx context.Context, id hypervisor.ID) ([]hypervisor.AttachedDisk, error) {
	var out []hypervisor.AttachedDisk
	err := b.do(ctx, VerbListVolumes, []string{string(id)}, func(op string, _ When) error {
		v, err := b.find(op, id)
		if err != nil {
			return err
		}
		out = slices.Clone(v.foreign)
		for _, k := range v.disks() {
			if d := b.w.disks[k]; d != nil {
				out = append(out, hypervisor.AttachedDisk{
					Name: k.name(), Size: d.size, Stamp: k.stamp, Serial: k.serial,
				})
			}
		}
		return nil
	})
	slices.SortFunc(out, func(x, y hypervisor.AttachedDisk) int { return cmp.Compare(x.Name, y.Name) })
	return out, err
}

// AttachForeign attaches a disk to the VM that is not the director's, as a person or a storage driver would. It panics
// if the world's file cannot be written.
func (w *World) AttachForeign(id hypervisor.ID, name string, size int64) {
	const op = "sim.attach"
	if err := w.enter(op); err != nil {
		panic(err)
	}
	defer w.leave()
	if v := w.vms[id]; v != nil {
		v.foreign = append(slices.Clone(v.foreign), hypervisor.AttachedDisk{Name: name, Size: size})
		w.putVM(v)
	}
	if err := w.journal.flush(op); err != nil {
		panic(err)
	}
}

// HasForeign tells whether a disk that AttachForeign attached still exists, with its VM or without.
func (w *World) HasForeign(name string) bool {
	defer w.look()()
	return w.foreign[name]
}

// disks are the data disks of the VM, those that it took over included.
func (v *vm) disks() []diskKey {
	var keys []diskKey
	for _, d := range v.spec.DataDisks {
		keys = append(keys, diskKey{d.Owner(v.spec.Key), d.Serial})
	}
	return keys
}

// diskUser returns a VM other than but that has one of the owner's disks with those serials, or any of them without
// serials.
func (w *things) diskUser(owner director.Stamp, serials []string, but *vm) *vm {
	for _, v := range w.vms {
		if v == but {
			continue
		}
		if v.Stamp == owner && len(serials) == 0 {
			return v
		}
		for _, k := range v.disks() {
			if k.stamp == owner && w.disks[k] != nil && (len(serials) == 0 || slices.Contains(serials, k.serial)) {
				return v
			}
		}
	}
	return nil
}

func inUse(op string, v *vm) error {
	return director.Errorf(director.KindConflict, op, "the VM %s uses the data disks", v.Name)
}

// takeable tells what keeps the VM from the disks that it is to take over.
func (w *things) takeable(op string, s hypervisor.Spec) error {
	for _, d := range s.DataDisks {
		if d.Of == (director.Stamp{}) {
			continue
		}
		if w.disks[diskKey{d.Of, d.Serial}] == nil {
			return director.Errorf(
				director.KindNotFound, op, "the data disk %s of machine %s does not exist", d.Serial, d.Of.Machine,
			)
		}
		if user := w.diskUser(d.Of, []string{d.Serial}, w.byStamp(s.Key)); user != nil {
			return inUse(op, user)
		}
	}
	return nil
}

// label labels the disks of the VM that Delete keeps.
func (w *things) label(v *vm, o hypervisor.DeleteOptions) {
	if o.Label == (hypervisor.DiskLabel{}) {
		return
	}
	for _, k := range v.disks() {
		if d := w.disks[k]; d != nil && (!o.DataDisks || k.stamp != o.Owner) {
			labelled := *d
			labelled.label = o.Label
			w.putDisk(k, &labelled)
		}
	}
}
