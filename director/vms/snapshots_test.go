package vms_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/store"
)

// upgrading adds a plan that has taken a snapshot of each machine.
func (l *lab) upgrading(t *testing.T, id string, machines ...director.Machine) {
	t.Helper()
	p := plan.Plan{ID: id, CreatedAt: time.Now(), Content: plan.Content{
		Operation: plan.ClusterUpgrade, Cluster: machines[0].Cluster,
	}}
	for _, m := range machines {
		params, err := json.Marshal(step.SnapshotParams{Machine: plan.SpecOf(m)})
		if err != nil {
			t.Fatal(err)
		}
		take, remove := step.SnapshotTake+"/"+m.Name, step.SnapshotDelete+"/"+m.Name
		p.Steps = append(
			p.Steps, plan.Step{ID: take, Kind: step.SnapshotTake, Params: params},
			plan.Step{ID: remove, Kind: step.SnapshotDelete, Needs: []string{take}, Params: params},
		)
	}
	p.Hash = plan.HashOf(p.Content)
	if err := l.Store.Update(t.Context(), func(tx *store.Tx) error { return tx.AddPlan(p) }); err != nil {
		t.Fatal(err)
	}
	l.event(t, id, "", plan.PlanStarted)
	for _, m := range machines {
		l.did(t, id, step.SnapshotTake+"/"+m.Name)
		l.snapshot(t, m, step.SnapshotName(id))
	}
}

func (l *lab) did(t *testing.T, id, step string) {
	t.Helper()
	l.event(t, id, step, plan.Started)
	l.event(t, id, step, plan.Succeeded)
}

func (l *lab) event(t *testing.T, id, step string, kind plan.EventKind) {
	t.Helper()
	if err := l.Store.Update(t.Context(), func(tx *store.Tx) error {
		_, s, err := tx.Plan(id)
		if err != nil {
			return err
		}
		return tx.Append(&s, plan.Event{Plan: id, Step: step, Kind: kind, At: time.Now()})
	}); err != nil {
		t.Fatal(err)
	}
}

func (l *lab) snapshot(t *testing.T, m director.Machine, name string) {
	t.Helper()
	owner := director.Stamp{Director: l.Director.ID, Machine: m.ID}
	if _, err := sim.Open(l.World).TakeSnapshot(
		t.Context(), l.VM(t, m).ID, owner, name, hypervisor.DefaultSnapshotGuard(),
	); err != nil {
		t.Fatal(err)
	}
}

// wantSnapshots drops snapshots and compares what each machine has then.
func (l *lab) wantSnapshots(t *testing.T, when string, want map[string][]string) {
	t.Helper()
	if err := l.DropSnapshots(t.Context()); err != nil {
		t.Errorf("%s: %v", when, err)
	}
	got := map[string][]string{}
	for name := range want {
		list, err := sim.Open(l.World).ListSnapshots(t.Context(), l.VM(t, l.Made[name]).ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, s := range list {
			got[name] = append(got[name], s.Name)
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s: (-want +got)\n%s", when, diff)
	}
}

// A snapshot of an upgrade goes when its plan is over and has left it, and not before. Those of people stay.
func TestSnapshotsThatUpgradesLeft(t *testing.T) {
	t.Parallel()
	l := openLab(t, 1, 2)
	one, two := l.Made["c000-w-1"], l.Made["c000-w-2"]
	if err := l.AddPlan(t.Context(), "p0", true, one, two); err != nil {
		t.Fatal(err)
	}
	for _, m := range []director.Machine{one, two} {
		l.MakeVM(t, m)
	}
	if err := l.EndPlan(t.Context(), "p0", plan.PlanDone); err != nil {
		t.Fatal(err)
	}
	l.snapshot(t, one, "by-hand")
	l.upgrading(t, "p1", one, two)
	l.did(t, "p1", step.SnapshotDelete+"/c000-w-2") // and the snapshot is another one's by now
	both := map[string][]string{"c000-w-1": {"by-hand", "before-upgrade-p1"}, "c000-w-2": {"before-upgrade-p1"}}
	l.wantSnapshots(t, "the plan runs", both)
	l.event(t, "p1", "", plan.PlanFailed)
	l.wantSnapshots(t, "the plan may go on", both)
	l.event(t, "p1", "", plan.PlanDiscarded)
	if err := l.AddPlan(t.Context(), "p2", true, one); err != nil {
		t.Fatal(err)
	}
	l.wantSnapshots(t, "another plan works on the cluster", both)
	if err := l.EndPlan(t.Context(), "p2", plan.PlanDone); err != nil {
		t.Fatal(err)
	}
	l.World.Inject(sim.Fault{Verb: sim.VerbSnapshot})
	if err := l.DropSnapshots(t.Context()); director.KindOf(err) != director.KindUnavailable {
		t.Errorf("a hypervisor that fails: %v", err)
	}
	left := map[string][]string{"c000-w-1": {"by-hand"}, "c000-w-2": {"before-upgrade-p1"}}
	l.wantSnapshots(t, "the plan is over", left)
	l.wantSnapshots(t, "again", left)
}
