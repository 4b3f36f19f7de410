package hypervisortest

import (
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// A snapshot is taken once, gone back to, and forgotten.
func snapshotsLife(b bundle) {
	x := capability[hypervisor.Snapshots](b)
	s := withData(b.spec("snap"))
	v := b.ready(b.b, s)
	names := func() []string {
		b.Helper()
		list, err := x.ListSnapshots(b.ctx, v.ID)
		if err != nil {
			b.Fatalf("ListSnapshots: %v", err)
		}
		out := []string{}
		for _, one := range list {
			if !one.Ours || one.Created.IsZero() || time.Since(one.Created).Abs() > time.Hour {
				b.Errorf("a snapshot is %+v", one)
			}
			out = append(out, one.Name)
		}
		return out
	}
	guard := hypervisor.DefaultSnapshotGuard()
	first, err := x.TakeSnapshot(b.ctx, v.ID, s.Key, "before", guard)
	if err != nil || first.Name != "before" {
		b.Fatalf("TakeSnapshot: %+v, %v", first, err)
	}
	if again, err := x.TakeSnapshot(
		b.ctx, v.ID, s.Key, "before", guard,
	); err != nil || !again.Created.Equal(first.Created) {
		b.Errorf("TakeSnapshot once more: %+v, %v", again, err)
	}
	if _, err := x.TakeSnapshot(b.ctx, v.ID, s.Key, "after", guard); err != nil {
		b.Fatalf("TakeSnapshot: %v", err)
	}
	if diff := cmp.Diff([]string{"before", "after"}, names()); diff != "" {
		b.Errorf("snapshots (-want +got):\n%s", diff)
	}
	_, err = x.TakeSnapshot(b.ctx, v.ID, s.Key, "more", hypervisor.SnapshotGuard{MaxAge: guard.MaxAge, Most: 2})
	b.wantKind(err, director.KindConflict, "TakeSnapshot over the limit")
	_, err = x.TakeSnapshot(b.ctx, v.ID, s.Key, "more", hypervisor.SnapshotGuard{MaxAge: -time.Hour, Most: 9})
	b.wantKind(err, director.KindConflict, "TakeSnapshot while there is an old one")
	if err := x.RevertSnapshot(b.ctx, v.ID, s.Key, "before"); err != nil {
		b.Fatalf("RevertSnapshot: %v", err)
	}
	if got := b.get(v.ID); got.Power != hypervisor.PowerOff {
		b.Errorf("after RevertSnapshot: %+v", got)
	}
	if got := b.ready(b.b, s); got.ID != v.ID {
		b.Errorf("Ensure after RevertSnapshot: %+v", got)
	}
	for range 2 {
		if err := x.DeleteSnapshot(b.ctx, v.ID, s.Key, "after"); err != nil {
			b.Errorf("DeleteSnapshot: %v", err)
		}
	}
	if diff := cmp.Diff([]string{"before"}, names()); diff != "" {
		b.Errorf("snapshots (-want +got):\n%s", diff)
	}
	b.delete(v.ID, hypervisor.DeleteOptions{Owner: s.Key, DataDisks: true}) // with a snapshot
	b.remains("after Delete")
}

// Snapshots are for the VM's owner alone, and of what is there.
func snapshotsRefused(b bundle) {
	x := capability[hypervisor.Snapshots](b)
	s := b.spec("snap")
	v := b.ready(b.b, s)
	other := director.Stamp{Director: RandomID("d"), Machine: s.Key.Machine}
	guard := hypervisor.DefaultSnapshotGuard()
	_, err := x.TakeSnapshot(b.ctx, v.ID, other, "theirs", guard)
	b.wantKind(err, director.KindConflict, "TakeSnapshot of another's VM")
	b.wantKind(x.RevertSnapshot(b.ctx, v.ID, other, "theirs"), director.KindConflict, "RevertSnapshot of another's VM")
	b.wantKind(x.DeleteSnapshot(b.ctx, v.ID, other, "theirs"), director.KindConflict, "DeleteSnapshot of another's VM")
	b.wantKind(x.RevertSnapshot(b.ctx, v.ID, s.Key, "none"), director.KindNotFound, "RevertSnapshot to nothing")
	_, err = x.TakeSnapshot(b.ctx, "no-such-id", s.Key, "x", guard)
	b.wantKind(err, director.KindNotFound, "TakeSnapshot of no VM")
	_, err = x.ListSnapshots(b.ctx, "no-such-id")
	b.wantKind(err, director.KindNotFound, "ListSnapshots of no VM")
	b.untouched(v)
}
