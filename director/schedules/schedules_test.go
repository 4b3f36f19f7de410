package schedules_test

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/disks"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/schedule"
	"github.com/director-kaas/kaas/director/schedules"
	"github.com/director-kaas/kaas/director/servicetest"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/vms"
)

// scheduling is the operations of a director whose jobs see the real store and an in-memory hypervisor.
// running is the schedules of a director with a scheduler.
type running struct {
	*schedules.Service
	store     *store.Store
	scheduler *schedule.Scheduler
}

func scheduling(t *testing.T) (*running, hypervisor.Backend) {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "director.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	b := sim.Open(sim.NewWorld(sim.Host{Name: "host1"}))
	backends := servicetest.Backend{B: b}
	ledger := vms.New(vms.Config{
		Store: db, Backends: backends, Clusters: steps.Clusters{}, Director: db.DirectorID(), Now: time.Now,
		Disks: disks.New(db, backends, db.DirectorID(), time.Now),
	})
	scheduler := schedule.New(schedule.Config{Store: db, Jobs: []schedule.Job{schedule.DriftJob(ledger)}})
	s := &running{schedules.New(db, scheduler, time.Now), db, scheduler}
	t.Cleanup(func() {
		if err := s.scheduler.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return s, b
}

const driftDocuments = `apiVersion: kaas/v1
kind: Provider
metadata: {name: lab}
spec: {type: libvirt, libvirt: {hosts: [{name: host1, uri: "qemu:///system"}]}}
---
apiVersion: kaas/v1
kind: Schedule
metadata: {name: drift}
spec: {cron: "@daily", job: {name: drift}}
`

func (s *running) drift(t *testing.T) string {
	t.Helper()
	if _, err := s.Run(t.Context(), "admin", "drift"); err != nil {
		t.Fatal(err)
	}
	s.scheduler.Wait()
	v, err := s.Get(t.Context(), "drift", 1)
	if err != nil || len(v.Runs) != 1 || v.Runs[0].Status != director.RunDone {
		t.Fatalf("got %+v, %v", v.Runs, err)
	}
	return v.Runs[0].Message
}

// The drift check over the real ledger and a back end, and clusters that a plan works on.
func TestDriftOfTheLedger(t *testing.T) {
	t.Parallel()
	s, b := scheduling(t)
	servicetest.Put(t, s.store, driftDocuments)
	ghost := director.Machine{
		ID: "m1", ClusterUID: "u1", Cluster: "demo", Name: "demo-master-1", Provider: "lab", Network: "n",
		Address: "10.0.0.2", Host: "host1", CPUs: 2,
	}
	if err := s.store.Update(t.Context(), func(tx *store.Tx) error {
		return tx.IntendMachine(ghost, time.Now())
	}); err != nil {
		t.Fatal(err)
	}
	if got, want := s.drift(t), "no drift: the ledger agrees with 0 VMs on 1 provider"; got != want {
		t.Errorf("got %q, want %q", got, want) // what is only intended need not be there
	}
	if err := s.store.SetMachine(t.Context(), "m1", director.MachinePresent, "", ""); err != nil {
		t.Fatal(err)
	}
	want := "1 difference over 0 VMs on 1 provider:\nghost: machine demo-master-1 of cluster demo is in the ledger, " +
		"and lab/host1 does not have it\n" +
		"what to do about each: directorctl vms audit"
	if diff := cmp.Diff(want, s.drift(t)); diff != "" {
		t.Error(diff)
	}
	p := plan.Plan{ID: "p1", CreatedAt: time.Now(), Content: plan.Content{Cluster: "demo", Facts: []byte("{}")}}
	if err := s.store.Update(t.Context(), func(tx *store.Tx) error {
		if err := tx.AddPlan(p); err != nil {
			return err
		}
		state := plan.NewState(&p)
		return tx.Append(&state, plan.Event{Plan: "p1", Kind: plan.PlanStarted})
	}); err != nil {
		t.Fatal(err)
	}
	want = "no drift: the ledger agrees with 0 VMs on 1 provider\nleft out, because a plan works on them: 1 cluster " +
		"(demo)"
	if diff := cmp.Diff(want, s.drift(t)); diff != "" {
		t.Error(diff)
	}
	if vms, err := b.List(t.Context(), hypervisor.Filter{Director: s.store.DirectorID()}); err != nil || len(vms) != 0 {
		t.Errorf("the check made something: %v, %v", vms, err)
	}
}

func TestSuspendKeepsTheRestOfTheDocument(t *testing.T) {
	t.Parallel()
	s, _ := scheduling(t)
	servicetest.Put(t, s.store, driftDocuments)
	for i, suspend := range []bool{true, true, false} {
		v, err := s.Suspend(t.Context(), "admin", "drift", suspend)
		if err != nil || v.Document.Schedule.Suspend != suspend || v.Document.Schedule.Cron != "@daily" ||
			v.Next.IsZero() != suspend {
			t.Fatalf("%d: %+v, next %s, %v", i, v.Document.Schedule, v.Next, err)
		}
	}
	d, err := s.store.Document(t.Context(), model.Ref{Kind: model.KindSchedule, Name: "drift"})
	if err != nil || d.Generation != 3 {
		t.Errorf("generation %d, want 3: saying it twice changes nothing (%v)", d.Generation, err)
	}
	if _, err := s.Suspend(t.Context(), "admin", "none", true); director.KindOf(err) != director.KindNotFound {
		t.Errorf("got %v", err)
	}
	if _, err := s.Run(t.Context(), "admin", "none"); director.KindOf(err) != director.KindNotFound {
		t.Errorf("got %v", err)
	}
}
