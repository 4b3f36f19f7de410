package hypervisortest

import (
	"slices"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// copied is the data disk of a case, which outlived its VM, with the stamp of a copy of it.
type copied struct {
	bundle
	copier  hypervisor.DiskCopier
	volumes hypervisor.Volumes
	spec    hypervisor.Spec
	to      director.Stamp
}

// serial is that of the disk.
const serial = director.DataDiskSerial

// detached makes a VM with a data disk and deletes it, so that the disk is kept.
func (b bundle) detached(name string) copied {
	b.Helper()
	c := copied{
		bundle: b, copier: capability[hypervisor.DiskCopier](b), volumes: capability[hypervisor.Volumes](b),
		spec: withData(b.spec(name)), to: b.spec("copy").Key,
	}
	c.spec.DataDisks = c.spec.DataDisks[:1]
	v := b.ready(b.b, c.spec)
	b.delete(v.ID, hypervisor.DeleteOptions{Owner: c.spec.Key})
	return c
}

// find returns the data disk of the stamp, and whether it is there.
func (c copied) find(owner director.Stamp) (hypervisor.VolumeInfo, bool) {
	c.Helper()
	all, err := c.volumes.ListVolumes(c.ctx, c.Director)
	if err != nil {
		c.Fatalf("ListVolumes: %v", err)
	}
	i := slices.IndexFunc(all, func(v hypervisor.VolumeInfo) bool { return v.Stamp == owner && v.Serial == serial })
	if i < 0 {
		return hypervisor.VolumeInfo{}, false
	}
	return all[i], true
}

// write writes the text to the disk of the stamp, where the subject can.
func (c copied) write(owner director.Stamp, text string) {
	c.Helper()
	if v, there := c.find(owner); there && c.WriteDisk != nil {
		c.WriteDisk(c.T, v, text)
	}
}

// holds fails the case if the disk of the stamp is missing, has another size than the original one, or holds another
// text, where the subject can read it.
func (c copied) holds(owner director.Stamp, want string) {
	c.Helper()
	v, there := c.find(owner)
	if !there || v.Size != c.spec.DataDisks[0].Size || v.VM != "" || v.Name == "" {
		c.Errorf("the data disk of %s: %+v, exists: %t", owner.Machine, v, there)
		return
	}
	if c.ReadDisk == nil {
		return
	}
	if got := c.ReadDisk(c.T, v); got != want {
		c.Errorf("the data disk of %s holds %q, want %q", owner.Machine, got, want)
	}
}

func (c copied) copy() {
	c.Helper()
	if err := c.copier.CopyDisk(c.ctx, c.spec.Key, serial, c.to); err != nil {
		c.Fatalf("CopyDisk: %v", err)
	}
}

func (c copied) restore() {
	c.Helper()
	if err := c.copier.RestoreDisk(c.ctx, c.spec.Key, serial, c.to); err != nil {
		c.Fatalf("RestoreDisk: %v", err)
	}
}

// drop deletes the disk of the stamp.
func (c copied) drop(owner director.Stamp) {
	c.Helper()
	if err := c.volumes.DeleteVolume(c.ctx, owner, serial); err != nil {
		c.Errorf("DeleteVolume: %v", err)
	}
}

func copiesLife(b bundle) {
	c := b.detached("copied")
	c.write(c.spec.Key, "before")
	c.copy()
	c.holds(c.to, "before")
	c.holds(c.spec.Key, "before")
	v := b.ready(b.b, c.spec) // as an upgrade does
	b.delete(v.ID, hypervisor.DeleteOptions{Owner: c.spec.Key})
	c.write(c.spec.Key, "after")
	c.copy() // whole already, so it stays
	c.holds(c.to, "before")
	c.holds(c.spec.Key, "after")
	for range 2 {
		c.restore()
		c.holds(c.spec.Key, "before")
		c.holds(c.to, "before")
	}
	c.drop(c.spec.Key)
	c.restore() // also of a disk that is gone
	c.holds(c.spec.Key, "before")
	v = b.ready(b.b, c.spec)
	heir := b.spec("heir")
	heir.DataDisks = []hypervisor.Disk{{Serial: serial, Size: c.spec.DataDisks[0].Size, Of: c.to}}
	second := b.ready(b.b, heir) // a copy is a data disk like others
	b.delete(second.ID, hypervisor.DeleteOptions{Owner: heir.Key})
	for range 2 {
		c.drop(c.to)
	}
	if left, there := c.find(c.to); there {
		b.Errorf("the copy was not deleted: %+v", left)
	}
	b.untouched(v)
	b.delete(v.ID, hypervisor.DeleteOptions{Owner: c.spec.Key, DataDisks: true})
	b.remains("after Delete")
}

func copiesInUse(b bundle) {
	c := b.detached("used")
	c.copy()
	other := b.spec("copy").Key
	v := b.ready(b.b, c.spec)
	b.wantKind(
		c.copier.CopyDisk(b.ctx, c.spec.Key, serial, other), director.KindConflict, "CopyDisk while the VM is on",
	)
	b.wantKind(
		c.copier.RestoreDisk(b.ctx, c.spec.Key, serial, c.to), director.KindConflict, "RestoreDisk while the VM is on",
	)
	if _, there := c.find(other); there {
		b.Error("a refused CopyDisk has left a copy")
	}
	b.untouched(v)
	if err := b.b.SetPower(b.ctx, v.ID, hypervisor.PowerOff); err != nil {
		b.Fatalf("SetPower: %v", err)
	}
	if err := c.copier.CopyDisk(b.ctx, c.spec.Key, serial, other); err != nil {
		b.Errorf("CopyDisk while the VM is off: %v", err)
	}
	b.wantKind(
		c.copier.RestoreDisk(b.ctx, c.spec.Key, serial, c.to), director.KindConflict, "RestoreDisk while a VM has it",
	)
	if got := b.ready(b.b, c.spec); got.ID != v.ID {
		b.Errorf("Ensure afterwards: %+v", got)
	}
	b.delete(v.ID, hypervisor.DeleteOptions{Owner: c.spec.Key, DataDisks: true})
	c.drop(c.to)
	c.drop(other)
	b.remains("after Delete")
}

func copiesRefused(b bundle) {
	c := b.detached("refused")
	none := b.spec("none").Key
	theirs := director.Stamp{Director: RandomID("d"), Machine: c.to.Machine}
	for about, try := range map[string]struct {
		err  error
		kind director.Kind
	}{
		"CopyDisk of nothing": {c.copier.CopyDisk(b.ctx, none, serial, c.to), director.KindNotFound},
		"CopyDisk of another serial": {
			c.copier.CopyDisk(b.ctx, c.spec.Key, "nothing", c.to), director.KindNotFound,
		},
		"CopyDisk to the disk itself": {
			c.copier.CopyDisk(b.ctx, c.spec.Key, serial, c.spec.Key), director.KindInvalid,
		},
		"CopyDisk for another director": {
			c.copier.CopyDisk(b.ctx, c.spec.Key, serial, theirs), director.KindInvalid,
		},
		"CopyDisk without a serial": {c.copier.CopyDisk(b.ctx, c.spec.Key, "", c.to), director.KindInvalid},
		"CopyDisk without a stamp": {
			c.copier.CopyDisk(b.ctx, director.Stamp{}, serial, c.to), director.KindInvalid,
		},
		"RestoreDisk without a copy": {
			c.copier.RestoreDisk(b.ctx, c.spec.Key, serial, c.to), director.KindNotFound,
		},
		"RestoreDisk from another director": {
			c.copier.RestoreDisk(b.ctx, c.spec.Key, serial, theirs), director.KindInvalid,
		},
	} {
		b.wantKind(try.err, try.kind, about)
	}
	if _, there := c.find(c.spec.Key); !there {
		b.Error("a refused RestoreDisk has deleted the disk")
	}
	c.drop(c.spec.Key)
	b.remains("after refused calls")
}

// copiesAfterCrash cuts the copy and its restoration off. What is not whole is never attached.
func copiesAfterCrash(b bundle) {
	capability[hypervisor.DiskCopier](b)
	if len(b.DiskCrashes) == 0 {
		b.Skip("the subject cannot cut a copy off")
	}
	for _, crash := range b.DiskCrashes {
		b.Run(crash.Name, func(t *testing.T) {
			b := b
			b.T = t
			c := b.detached("cut")
			c.write(c.spec.Key, "before")
			c.cutCopy(crash)
			c.holds(c.spec.Key, "before")
			err := c.copier.RestoreDisk(b.ctx, c.spec.Key, serial, c.to)
			kinds := []director.Kind{director.KindConflict, director.KindNotFound}
			if err == nil || !slices.Contains(kinds, director.KindOf(err)) {
				t.Errorf("RestoreDisk from half a copy: %v", err)
			}
			c.holds(c.spec.Key, "before")
			c.copy()
			c.holds(c.to, "before")
			c.write(c.spec.Key, "after")
			c.cutRestore(crash)

			swept := b.detached("swept") // and no call finishes it
			swept.cutCopy(crash)
			swept.drop(swept.to)
			swept.drop(swept.spec.Key)
			c.drop(c.to)
			b.remains("after DeleteVolume")
		})
	}
}

// cut returns a copier that the crash strikes.
func (c copied) cut(crash Crash) hypervisor.DiskCopier {
	c.Helper()
	x := c.open()
	crash.Arm(c.T, x)
	copier, _ := hypervisor.Capability[hypervisor.DiskCopier](x)
	return copier
}

func (c copied) cutCopy(crash Crash) {
	c.Helper()
	if err := c.cut(crash).CopyDisk(c.ctx, c.spec.Key, serial, c.to); err == nil {
		c.Fatal("CopyDisk was not cut off")
	}
}

// cutRestore cuts the restoration off. No VM gets the disk until the next call has written it to its end.
func (c copied) cutRestore(crash Crash) {
	c.Helper()
	if err := c.cut(crash).RestoreDisk(c.ctx, c.spec.Key, serial, c.to); err == nil {
		c.Fatal("RestoreDisk was not cut off")
	}
	_, err := c.b.Ensure(c.ctx, c.spec)
	c.wantKind(err, director.KindConflict, "Ensure with half a disk")
	if got := c.list(hypervisor.Filter{Director: c.Director}); len(got) > 0 {
		c.Errorf("a refused Ensure left %v", got)
	}
	c.restore()
	c.holds(c.spec.Key, "before")
	v := c.ready(c.b, c.spec)
	c.delete(v.ID, hypervisor.DeleteOptions{Owner: c.spec.Key, DataDisks: true})
}
