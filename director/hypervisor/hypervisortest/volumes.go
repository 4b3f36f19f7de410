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
		if d.Stamp != s.Key || d.Name == "" || d.Host != "" && d.Host != v.Host || d.Size != 16<<20 && d.Size != 8<<20 {
			b.Errorf("volume %+v of %+v", d, s.Key)
		}
	}
	b.delete(v.ID, hypervisor.DeleteOptions{Owner: s.Key})
	if diff := cmp.Diff(before, list()); diff != "" {
		b.Errorf("Delete touched the data disks (-before +after):\n%s", diff)
	}
	b.ready(b.b, s)
	if diff := cmp.Diff(before, list()); diff != "" {
		b.Errorf("Ensure did not take the data disks up again (-before +after):\n%s", diff)
	}
}

func volumesDelete(b bundle) {
	volumes := capability[hypervisor.Volumes](b)
	s := withData(b.spec("volumes"))
	v := b.ready(b.b, s)
	b.wantKind(volumes.DeleteVolume(b.ctx, s.Key), director.KindConflict, "DeleteVolume in use")
	b.delete(v.ID, hypervisor.DeleteOptions{Owner: s.Key})
	stranger := director.Stamp{Director: b.Director, Machine: RandomID("m")}
	if err := volumes.DeleteVolume(b.ctx, stranger); err != nil {
		b.Errorf("DeleteVolume of nothing: %v", err)
	}
	if got, err := volumes.ListVolumes(b.ctx, b.Director); err != nil || len(got) != 2 {
		b.Errorf("ListVolumes: %v, %v; want 2", got, err)
	}
	for range 2 {
		if err := volumes.DeleteVolume(b.ctx, s.Key); err != nil {
			b.Errorf("DeleteVolume: %v", err)
		}
	}
	b.remains("after DeleteVolume")
}
