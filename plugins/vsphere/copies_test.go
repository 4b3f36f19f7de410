package vsphere

import (
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// A director dies at each call of a copy and of its restoration, in turn before the call and before its answer. What is
// half is known as such, and the next director finishes it.
func TestCopyDiesAtEveryCall(t *testing.T) {
	t.Parallel()
	f := newFixture(t).withImage(t)
	ctx, b := t.Context(), f.open(t)
	defer b.Close()
	s := f.spec()
	v, err := b.Ensure(ctx, s)
	if err == nil {
		err = b.Delete(ctx, v.ID, hypervisor.DeleteOptions{Owner: s.Key})
	}
	if err != nil {
		t.Fatal(err)
	}
	volume := func(owner director.Stamp) hypervisor.VolumeInfo {
		t.Helper()
		all, err := b.ListVolumes(ctx, s.Key.Director)
		if err != nil {
			t.Fatal(err)
		}
		for _, v := range all {
			if v.Stamp == owner {
				return v
			}
		}
		t.Fatalf("machine %s has no data disk", owner.Machine)
		return hypervisor.VolumeInfo{}
	}
	to, serial := director.Stamp{Director: s.Key.Director, Machine: "copy"}, director.DataDiskSerial
	copyOnce := func(b *Backend) error { return b.CopyDisk(ctx, s.Key, serial, to) }
	restore := func(b *Backend) error { return b.RestoreDisk(ctx, s.Key, serial, to) }
	// cutOff runs act with a director that dies at the call, and then with one that lives. It tells whether one died.
	cutOff := func(at int64, answered bool, act func(*Backend) error) bool {
		t.Helper()
		x := f.open(t)
		dying(x, at, answered)
		died := act(x) != nil
		_ = x.Close() // dead already
		if err := act(b); err != nil {
			t.Errorf("after a death at call %d (answered: %t): %v", at, answered, err)
		}
		return died
	}
	deaths := 0
	for at, died := int64(1), true; died; at++ {
		f.writeDisk(t, volume(s.Key), "before")
		first := cutOff(at, at%2 == 0, copyOnce)
		f.writeDisk(t, volume(s.Key), "after")
		second := cutOff(at, at%2 == 1, restore)
		for _, owner := range []director.Stamp{s.Key, to} {
			if got := f.readDisk(t, volume(owner)); got != "before" {
				t.Errorf("death at call %d: %s holds %q", at, owner.Machine, got)
			}
		}
		if err := b.DeleteVolume(ctx, to); err != nil {
			t.Errorf("DeleteVolume: %v", err)
		}
		if died = first || second; died {
			deaths++
		}
	}
	if deaths < 10 {
		t.Errorf("the director died at %d calls", deaths)
	}
	if v, err := b.Ensure(ctx, s); err != nil || v.Stamp != s.Key {
		t.Errorf("Ensure at the end: %+v, %v", v, err)
	}
}
