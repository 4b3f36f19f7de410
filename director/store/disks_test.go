package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
)

func TestKeptDisks(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) { testKeptDisks(t, open()) })
}

func testKeptDisks(t *testing.T, s *Store) {
	ctx := t.Context()
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	disk := director.KeptDisk{
		ID: "m1.kaas-data", Provider: "lab", Name: "kaas.d.m1.data.kaas-data.qcow2", Host: "h1", Machine: "m1",
		Serial: "kaas-data", Size: 1 << 30,
		ClusterUID: "u1", Cluster: "demo", Pool: "worker", Node: "demo-worker-1", Plan: "p1", Kept: at,
	}
	foreign := director.KeptDisk{
		ID: director.ForeignDiskID("lab", "/pv"), Provider: "lab", Name: "/pv", Cluster: "demo", Node: "demo-worker-1",
		Plan: "p1", Kept: at,
	}
	keep := func(list ...director.KeptDisk) {
		t.Helper()
		if err := s.KeepDisks(ctx, list); err != nil {
			t.Fatal(err)
		}
	}
	want := func(f DiskFilter, want ...director.KeptDisk) {
		t.Helper()
		got, err := s.KeptDisks(ctx, f)
		if len(want) == 0 {
			want = []director.KeptDisk{}
		}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("kept disks: %v (-want +got):\n%s", err, diff)
		}
	}
	keep(disk, foreign)
	later := disk
	later.Kept = at.Add(time.Hour)
	keep(later) // the step is tried again
	want(DiskFilter{}, foreign, disk)
	want(DiskFilter{Plan: "p2"})

	for range 2 {
		if err := s.TakeDisk(ctx, disk.ID, "m2"); err != nil {
			t.Fatal(err)
		}
	}
	held := disk
	held.Holder = "m2"
	want(DiskFilter{Holder: "m2"}, held)
	for id, kind := range map[string]director.Kind{
		disk.ID: director.KindConflict, foreign.ID: director.KindConflict, "m9.kaas-data": director.KindNotFound,
	} {
		if err := s.TakeDisk(ctx, id, "m3"); err == nil || director.KindOf(err) != kind {
			t.Errorf("TakeDisk of %s: %v, want %s", id, err, kind)
		}
	}
	later.Plan, later.Node = "p2", "demo-worker-2" // and left behind in turn
	keep(later)
	want(DiskFilter{ID: disk.ID}, later)

	if err := s.Update(ctx, func(tx *Tx) error { return tx.SetDiskHolder(disk.ID, director.DiskGoing) }); err != nil {
		t.Fatal(err)
	}
	if err := s.TakeDisk(ctx, disk.ID, "m3"); director.KindOf(err) != director.KindConflict {
		t.Errorf("TakeDisk of a disk that goes: %v", err)
	}
	for range 2 {
		if err := s.ForgetDisk(ctx, disk.ID); err != nil {
			t.Fatal(err)
		}
	}
	want(DiskFilter{}, foreign)
}
