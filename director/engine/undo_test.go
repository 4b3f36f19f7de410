package engine_test

import (
	"context"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/engine"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
)

const (
	oldVersion = "v1.37.1"
	newVersion = "v1.38.0"
)

// at returns what the cluster's API, the hypervisor and the ledger say of the node, in one line.
func (s installation) at(t *testing.T, name string) string {
	t.Helper()
	machines, err := s.db.Machines(t.Context(), store.MachineFilter{})
	if err != nil {
		t.Fatal(err)
	}
	s.fleet.mu.Lock()
	defer s.fleet.mu.Unlock()
	n, there := s.fleet.nodes[name]
	if !there {
		return "no node"
	}
	ready := "NotReady"
	for _, m := range machines {
		if m.Name != name || m.Kubernetes != n.version || m.State != director.MachinePresent ||
			m.Image != s.fleet.disks[name] {
			continue
		}
		for _, vm := range s.world.Inventory(s.db.DirectorID()) {
			if strings.HasPrefix(vm, "vm "+name+" ") && strings.HasSuffix(vm, m.ID+" made=true on") {
				ready = "Ready"
			}
		}
	}
	if n.cordoned {
		ready += ",SchedulingDisabled"
	}
	return ready + " " + n.version
}

// recreated is the strategy in place without snapshots.
const recreated = "in_place, rolled back by a new VM"

// tries is every step of the second worker's upgrade by each strategy, and whether its failure puts the worker back.
var tries = map[string]map[string]bool{
	recreated: {
		"drain/demo-w-2": true, "upgrade/demo-w-2": true, "node.ready/demo-w-2": true, "uncordon/demo-w-2": false,
	},
	model.UpgradeInPlace: {
		"drain/demo-w-2": true, "upgrade/demo-w-2": true, "node.ready/demo-w-2": true, "uncordon/demo-w-2": false,
		"snapshot.take/demo-w-2": true, "snapshot.delete/demo-w-2": false,
	},
	model.UpgradeReconstitute: {
		"drain/demo-w-2": true, "delete/demo-w-2": true, "node.left/demo-w-2": true, "vm.remove/demo-w-2": true,
		"vm.ensure/demo-w-2": true,
		"vm.boot/demo-w-2":   true, "join/demo-w-2": true, "node.ready/demo-w-2": true,
	},
	model.UpgradeReplace: {
		"vm.ensure/demo-w-5": true, "vm.boot/demo-w-5": true, "join/demo-w-5": true, "node.ready/demo-w-5": true,
		"drain/demo-w-2":  true,
		"delete/demo-w-2": false, "node.left/demo-w-2": false, "vm.delete/demo-w-2": false,
	},
}

// Whatever step of a worker's upgrade fails, before its act or after it: the worker is Ready at the old version and
// takes pods, or, once it was through its gate, its upgrade can be ended. Its neighbours stay where they are, and
// another plan continues from there.
func TestAFailedWorkerIsPutBack(t *testing.T) {
	t.Parallel()
	for strategy, steps := range tries {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			y := newUpgradeLab(t, strategy)
			s := y.created(t)
			p := y.upgrade(t, s, "p1")
			for _, step := range p.Steps {
				if _, known := steps[step.ID]; !known && !step.Back() && strings.HasSuffix(step.Node, "-w-2") {
					t.Errorf("%s is not tried", step.ID)
				}
			}
			for step, back := range steps {
				for _, after := range []bool{false, true} {
					name := map[bool]string{false: "before ", true: "after "}[after] +
						strings.ReplaceAll(step, "/", " ")
					own := s.copy(t)
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						y.putBack(t, own, step, after, back)
					})
				}
			}
		})
	}
}

func (y upgradeLab) putBack(t *testing.T, s installation, step string, after, back bool) {
	t.Helper()
	p := y.upgrade(t, s, "p1")
	f := &failing{steps: map[string]bool{step: true}, after: after}
	e := runOn(t, s.db, s.db.DirectorID(), f.handlers(y.handlers(t, s)), 8)
	beginReal(t, e, s, p)
	got := await(t, e, s.db, "p1", func(s plan.State) bool { return s.Status.Ended() || s.Status == plan.StatusParked })
	checkJournal(t, s.db, p, got)
	if got.Status != plan.StatusFailed || !strings.Contains(got.Message, step+": test: the disk is broken") {
		t.Fatalf("the plan is %s: %s", got.Status, got.Message)
	}
	first := "demo-w-1"
	if y.strategy == model.UpgradeReplace {
		first = "demo-w-4"
	}
	for name, want := range map[string]string{first: "Ready " + newVersion, "demo-w-3": "Ready " + oldVersion} {
		if is := s.at(t, name); is != want {
			t.Errorf("the neighbour %s is %s, want %s", name, is, want)
		}
	}
	err := e.Retry(t.Context(), "p1", "", "admin")
	if !back {
		if strings.Contains(got.Message, "put back") || err != nil {
			t.Errorf("it cannot continue: %q, %v", got.Message, err)
		}
		await(t, e, s.db, "p1", ended) // it failed once more, or did not begin yet
		f.mend(step)
		_ = e.Retry(t.Context(), "p1", "", "admin")
		if got := await(t, e, s.db, "p1",
			inStatus(plan.StatusDone, plan.StatusCancelled)); got.Status != plan.StatusDone {
			t.Fatalf("the plan is %s: %s", got.Status, got.Message)
		}
		y.finished(t, s)
		return
	}
	if is := s.at(t, "demo-w-2"); is != "Ready "+oldVersion {
		t.Errorf("the worker is %s", is)
	}
	if is := s.at(t, "demo-w-5"); is != "no node" || len(s.world.Twins()) > 0 || s.world.Count() != 4 {
		t.Errorf("a successor is left: %s, %d VMs", is, s.world.Count())
	}
	if len(s.fleet.kept) > 0 {
		t.Errorf("snapshots are left: %v", s.fleet.kept)
	}
	want := "demo-w-2: rolled back, and in use; of the workers 1 run " + newVersion + ", 1 are not begun"
	if !strings.Contains(got.Message, want) ||
		!strings.HasSuffix(got.Hint, "then go on from there: directorctl plan demo") {
		t.Errorf("it says %q (%q), want %q", got.Message, got.Hint, want)
	}
	if director.KindOf(err) != director.KindConflict ||
		!strings.Contains(director.HintOf(err), "directorctl plan demo") {
		t.Errorf("a plan whose node was rolled back continues: %v", err)
	}
	if err := e.Skip(t.Context(), "p1", step, "why not", "admin"); director.KindOf(err) != director.KindConflict {
		t.Errorf("the failed step is left out: %v", err)
	}
	beginReal(t, e, s, y.upgrade(t, s, "p2"))
	if got := await(t, e, s.db, "p2", ended); got.Status != plan.StatusDone {
		t.Fatalf("the next plan is %s: %s", got.Status, got.Message)
	}
	y.finished(t, s)
}

// finished looks whether every node runs the new version, from the image that the strategy leads to.
func (y upgradeLab) finished(t *testing.T, s installation) {
	t.Helper()
	if n := s.world.Count(); n != 4 {
		t.Errorf("there are %d VMs", n)
	}
	if len(s.fleet.kept) > 0 {
		t.Errorf("snapshots are left: %v", s.fleet.kept)
	}
	for _, line := range s.fleet.view() {
		if !strings.Contains(line, newVersion+" cordoned=false") {
			t.Errorf("in the end: %s", line)
		}
	}
}

// gate is the step of the second worker that tells whether it is through.
func (y upgradeLab) gate() string {
	if y.strategy == model.UpgradeReplace {
		return "node.ready/demo-w-5"
	}
	return "node.ready/demo-w-2"
}

// A rollback step that fails asks a person, and continues when that person says so.
func TestAWayBackThatFailsParks(t *testing.T) {
	t.Parallel()
	for strategy := range tries {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			y := newUpgradeLab(t, strategy)
			gate := y.gate()
			if strategy == model.UpgradeReplace {
				gate = "drain/demo-w-2" // its way back is the longest
			}
			origin := y.created(t)
			p := y.upgrade(t, origin, "p1")
			tried := 0
			for _, step := range p.Steps {
				if !step.Back() || step.Node != "demo-w-2" {
					continue
				}
				tried++
				s := origin.copy(t)
				t.Run(strings.ReplaceAll(step.ID, "/", " "), func(t *testing.T) {
					t.Parallel()
					f := &failing{steps: map[string]bool{gate: true, step.ID: true}, after: true}
					e := runOn(t, s.db, s.db.DirectorID(), f.handlers(y.handlers(t, s)), 8)
					beginReal(t, e, s, y.upgrade(t, s, "p1"))
					parked := func(s plan.State) bool { return s.Status.Ended() || s.Status == plan.StatusParked }
					got := await(t, e, s.db, "p1", parked)
					if st := got.Step(step.ID); got.Status != plan.StatusParked || st.Status != plan.Parked ||
						!strings.HasPrefix(
							got.Message, step.ID+": demo-w-2 could not be rolled back: test: the disk is broken",
						) ||
						!strings.HasSuffix(got.Hint, "directorctl node replace demo demo-w-2") {
						t.Fatalf("the plan is %s: %s (%s)", got.Status, got.Message, got.Hint)
					}
					f.mend(step.ID)
					if err := e.Retry(t.Context(), "p1", "", "admin"); err != nil {
						t.Fatal(err)
					}
					got = await(t, e, s.db, "p1", parked)
					if is := s.at(
						t, "demo-w-2",
					); got.Status != plan.StatusFailed || is != "Ready "+oldVersion || s.world.Count() != 4 {
						t.Errorf(
							"the plan is %s: %s; the worker is %s, with %d VMs", got.Status, got.Message, is,
							s.world.Count(),
						)
					}
				})
			}
			if tried < 4 {
				t.Errorf("%d steps back were tried", tried)
			}
		})
	}
}

// A person takes back a plan that waits: the worker that is half way goes back, all others stay.
func TestUndoOfAnUpgradePutsBackWhatIsHalfWay(t *testing.T) {
	t.Parallel()
	for strategy := range tries {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			y := newUpgradeLab(t, strategy)
			s := y.created(t)
			asks := wrapped(y.handlers(t, s), func(h plan.Handler, ctx context.Context, r plan.Run) error {
				if r.Step.ID == y.gate() {
					return plan.Park(director.Errorf(director.KindConflict, "test", "it takes long"), "wait for it?")
				}
				return h.Run(ctx, r)
			})
			e := runOn(t, s.db, s.db.DirectorID(), asks, 8)
			beginReal(t, e, s, y.upgrade(t, s, "p1"))
			if got := await(
				t, e, s.db, "p1", inStatus(plan.StatusParked, plan.StatusFailed),
			); got.Status != plan.StatusParked {
				t.Fatalf("the plan is %s: %s", got.Status, got.Message)
			}
			if err := e.Undo(t.Context(), "p1", "admin"); err != nil {
				t.Fatal(err)
			}
			got := await(t, e, s.db, "p1", ended)
			if is := s.at(
				t, "demo-w-2",
			); got.Status != plan.StatusUndone || is != "Ready "+oldVersion || s.world.Count() != 4 {
				t.Errorf(
					"the plan is %s: %s; the worker is %s, with %d VMs", got.Status, got.Message, is, s.world.Count(),
				)
			}
			if is := s.at(t, "demo-master-1"); is != "Ready "+newVersion {
				t.Errorf("the master is %s", is)
			}
		})
	}
}

// A director that dies at any moment of a way back leaves what its successor brings to the same end; so does one whose
// every act is done twice.
func TestEveryCutOfAWayBackComesToTheSameEnd(t *testing.T) {
	t.Parallel()
	for strategy := range tries {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			y := newUpgradeLab(t, strategy)
			fails := map[string]bool{y.gate(): true}
			if strategy == model.UpgradeReplace {
				fails = map[string]bool{"drain/demo-w-2": true}
			}
			end := func(t *testing.T, s installation, e *engine.Engine) []string {
				t.Helper()
				got := await(t, e, s.db, "p1", func(s plan.State) bool {
					return s.Status.Ended() || s.Status == plan.StatusParked
				})
				if got.Status != plan.StatusFailed || !strings.Contains(got.Message, "rolled back") {
					t.Fatalf("the plan is %s: %s", got.Status, got.Message)
				}
				return append(s.end(t), s.fleet.view()...)
			}
			s := y.created(t)
			again := s.copy(t)
			fl := &film{adapted: s.db, t: t, dir: t.TempDir(), installation: s, plan: "p1"}
			e := runOn(t, fl, s.db.DirectorID(), (&failing{steps: fails, after: true}).handlers(y.handlers(t, s)), 1)
			beginReal(t, e, s, y.upgrade(t, s, "p1"))
			want := end(t, s, e)
			if err := e.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			t.Run("twice", func(t *testing.T) {
				t.Parallel()
				s := again
				twice := wrapped(y.handlers(t, s), func(h plan.Handler, ctx context.Context, r plan.Run) error {
					if err := h.Run(ctx, r); err != nil {
						return err
					}
					return h.Run(ctx, r)
				})
				e := runOn(t, s.db, s.db.DirectorID(), (&failing{steps: fails, after: true}).handlers(twice), 8)
				beginReal(t, e, s, y.upgrade(t, s, "p1"))
				if diff := cmp.Diff(want, end(t, s, e)); diff != "" {
					t.Errorf("another end (-want +got):\n%s", diff)
				}
			})
			events, err := s.db.Events(t.Context(), "p1", 0, 10000)
			if err != nil {
				t.Fatal(err)
			}
			failed := slices.IndexFunc(events, func(e plan.Event) bool { return e.Kind == plan.Aborted })
			// what is before it, is cut elsewhere
			frames := slices.DeleteFunc(fl.frames, func(f frame) bool { return f.seq < int64(failed) })
			if len(frames) < 15 {
				t.Fatalf("%d frames are too few", len(frames))
			}
			for _, f := range frames {
				s := installation{world: f.world, fleet: f.fleet}
				t.Run(f.name, func(t *testing.T) {
					t.Parallel()
					s.db = openStore(t, f.db)
					_, before, err := s.db.Plan(t.Context(), "p1")
					if err != nil {
						t.Fatal(err)
					}
					e := runOn(
						t, s.db, s.db.DirectorID(), (&failing{steps: fails, after: true}).handlers(y.handlers(t, s)), 8,
					)
					if diff := cmp.Diff(want, end(t, s, e)); diff != "" {
						t.Errorf("another end (-want +got):\n%s", diff)
					}
					_, after, err := s.db.Plan(t.Context(), "p1")
					if err != nil {
						t.Fatal(err)
					}
					for i, st := range before.Steps {
						if now := after.Steps[i]; st.Status == plan.Done && now.Attempt != st.Attempt {
							t.Errorf("%s was done and ran again", st.ID)
						}
					}
				})
			}
		})
	}
}
