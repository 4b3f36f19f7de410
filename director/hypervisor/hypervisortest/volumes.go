package hypervisortest

import (
	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

func deleteKeepsDisks(b bundle) {
	volumes := capability[hypervisor.Volumes](b)
	s := withData(b.spec("disks"))
	list := func() []hypervisor.VolumeInfo {
		b.Helper()
		got, err := volumes.ListVolumes(b.ctx, b.Director)
		if err != nil {
			b.Fatalf("ListVolumes: %v", err)
		}
		return got
	}
	v := b.ready(b.b, s)
	before := list()
	if len(before) != 2 {
		b.Fatalf("ListVolumes: %v, want 2", before)
	}
	for _, d := range before {
		if d.Stamp != s.Key || d.Name == "" || d.Host != "" && d.Host != v.Host ||
			d.Size != s.DataDisks[0].Size && d.Size != s.DataDisks[1].Size ||
			d.Serial == "" || d.VM != v.Name || d.Label != (hypervisor.DiskLabel{}) {
			b.Errorf("volume %+v of %+v", d, s.Key)
		}
	}
	label := hypervisor.DiskLabel{Cluster: "demo", Pool: "worker", Node: "demo-worker-1"}
	b.delete(v.ID, hypervisor.DeleteOptions{Owner: s.Key, Label: label})
	kept := list()
	if diff := cmp.Diff(before, kept, ofDisk); diff != "" {
		b.Errorf("Delete touched the data disks (-before +after):\n%s", diff)
	}
	for _, d := range kept {
		if d.VM != "" || d.Label != label {
			b.Errorf("kept volume %+v, want the label %+v and no VM", d, label)
		}
	}
	b.ready(b.b, s)
	if diff := cmp.Diff(before, list(), ofDisk); diff != "" {
		b.Errorf("Ensure did not take the data disks up again (-before +after):\n%s", diff)
	}
}

// ofDisk compares volumes by what they are, and not by who has them.
var ofDisk = cmp.FilterPath(
	func(p cmp.Path) bool { return p.Last().String() == ".VM" || p.Last().String() == ".Label" }, cmp.Ignore(),
)

// Disks that others have attached are told, and no deletion takes them along.
func deleteKeepsForeignDisks(b bundle) {
	teller := capability[hypervisor.DiskTeller](b)
	if b.Attach == nil {
		b.Skip("the subject cannot attach a disk by other means")
	}
	s := withData(b.spec("foreign"))
	v := b.ready(b.b, s)
	exists := b.Attach(b.T, v)
	got, err := teller.AttachedDisks(b.ctx, v.ID)
	if err != nil {
		b.Fatalf("AttachedDisks: %v", err)
	}
	ours, theirs := map[string]bool{}, 0
	for _, d := range got {
		if d.Stamp == s.Key {
			ours[d.Serial] = true
		} else if d.Stamp == (director.Stamp{}) && d.Name != "" {
			theirs++
		}
	}
	if diff := cmp.Diff(
		map[string]bool{"kaas-data": true, "more": true}, ours,
	); diff != "" || theirs != 1 || len(got) != 3 {
		b.Errorf("AttachedDisks: %+v; want its two data disks and the foreign one", got)
	}
	b.delete(v.ID, hypervisor.DeleteOptions{Owner: s.Key, DataDisks: true})
	if !exists() {
		b.Error("the foreign disk went with the VM")
	}
	_, err = teller.AttachedDisks(b.ctx, "no-such-id")
	b.wantKind(err, director.KindNotFound, "AttachedDisks of nothing")
}

// A VM takes over the disk that another machine left behind, and leaves it behind in turn.
func volumesTakenOver(b bundle) {
	volumes := capability[hypervisor.Volumes](b)
	old := withData(b.spec("old"))
	old.DataDisks = old.DataDisks[:1]
	v := b.ready(b.b, old)
	heir := b.spec("heir")
	heir.DataDisks = []hypervisor.Disk{{Serial: "kaas-data", Size: old.DataDisks[0].Size, Of: old.Key}}
	_, err := b.b.Ensure(b.ctx, heir)
	b.wantKind(err, director.KindConflict, "Ensure with a disk that a VM has")
	b.delete(v.ID, hypervisor.DeleteOptions{Owner: old.Key})

	v = b.ready(b.b, heir)
	want := []hypervisor.VolumeInfo{{Size: old.DataDisks[0].Size, Stamp: old.Key, Serial: "kaas-data", VM: heir.Name}}
	like := cmp.FilterPath(
		func(p cmp.Path) bool { return p.Last().String() == ".Name" || p.Last().String() == ".Host" }, cmp.Ignore(),
	)
	check := func(when string) {
		b.Helper()
		got, err := volumes.ListVolumes(b.ctx, b.Director)
		if diff := cmp.Diff(want, got, like); diff != "" || err != nil {
			b.Errorf("%s: ListVolumes: %v (-want +got):\n%s", when, err, diff)
		}
	}
	check("taken over")
	b.wantKind(
		volumes.DeleteVolume(b.ctx, old.Key, "kaas-data"), director.KindConflict,
		"DeleteVolume of a disk that was taken over",
	)
	second := b.spec("second")
	second.DataDisks = heir.DataDisks
	_, err = b.b.Ensure(b.ctx, second)
	b.wantKind(err, director.KindConflict, "Ensure with a disk that another VM took over")
	b.onlyOne(v)

	label := hypervisor.DiskLabel{Cluster: "demo", Pool: "worker", Node: heir.Name}
	b.delete(v.ID, hypervisor.DeleteOptions{Owner: heir.Key, DataDisks: true, Label: label})
	want[0].VM, want[0].Label = "", label
	check("left behind")
	v = b.ready(b.b, heir) // as when its VM is made again
	want[0].VM = heir.Name
	check("taken over again")
	b.delete(v.ID, hypervisor.DeleteOptions{Owner: heir.Key, Label: label})
	for range 2 {
		if err := volumes.DeleteVolume(b.ctx, old.Key, "kaas-data"); err != nil {
			b.Errorf("DeleteVolume: %v", err)
		}
	}
	b.remains("after DeleteVolume")
	b.refused(heir, director.KindNotFound) // and no empty disk in its place
}

func volumesDelete(b bundle) {
	volumes := capability[hypervisor.Volumes](b)
	s := withData(b.spec("volumes"))
	v := b.ready(b.b, s)
	b.wantKind(volumes.DeleteVolume(b.ctx, s.Key), director.KindConflict, "DeleteVolume in use")
	b.delete(v.ID, hypervisor.DeleteOptions{
		Owner: s.Key, Label: hypervisor.DiskLabel{Cluster: "demo", Pool: "worker", Node: "demo-worker-1"},
	})
	stranger := director.Stamp{Director: b.Director, Machine: RandomID("m")}
	if err := volumes.DeleteVolume(b.ctx, stranger); err != nil {
		b.Errorf("DeleteVolume of nothing: %v", err)
	}
	if got, err := volumes.ListVolumes(b.ctx, b.Director); err != nil || len(got) != 2 {
		b.Errorf("ListVolumes: %v, %v; want 2", got, err)
	}
	if err := volumes.DeleteVolume(b.ctx, s.Key, "more"); err != nil {
		b.Errorf("DeleteVolume of one disk: %v", err)
	}
	if got, err := volumes.ListVolumes(b.ctx, b.Director); err != nil || len(got) != 1 || got[0].Serial != "kaas-data" {
		b.Errorf("ListVolumes: %v, %v; want the other disk", got, err)
	}
	for range 2 {
		if err := volumes.DeleteVolume(b.ctx, s.Key); err != nil {
			b.Errorf("DeleteVolume: %v", err)
		}
	}
	b.remains("after DeleteVolume")
}
