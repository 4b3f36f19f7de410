package kill

import (
	"cmp"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/test/rig"
)

func cmpStrings(a, b string) int { return cmp.Compare(a, b) }

// inspect looks at everything that a director left which was stopped after its plans had ended.
func inspect(t *testing.T, r *rig.Rig, starts []time.Time) {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(r.State(), "director.db"), slog.New(slog.DiscardHandler))
	must(t, err)
	defer func() { must(t, db.Close()) }()
	ids, err := db.Plans(t.Context(), store.PlanFilter{})
	must(t, err)
	var all []plan.Event
	done, steps := 0, 0
	for _, id := range ids {
		p, state, err := db.Plan(t.Context(), id)
		must(t, err)
		events, err := db.Events(t.Context(), id, 0, 1_000_000)
		must(t, err)
		checkPlan(t, p, state, events)
		all = append(all, events...)
		if state.Status == plan.StatusDone {
			done, steps = done+1, steps+len(p.Steps)
		}
	}
	checkWorld(t, r, db)
	if left := r.Orphans(); len(left) > 0 {
		t.Errorf("processes were left behind: %v", left)
	}
	if left, _ := filepath.Glob(filepath.Join(r.State(), "ansible", "play-*")); len(left) > 0 {
		t.Errorf("directories of runs were left behind: %v", left)
	}
	interrupted := 0
	for _, e := range all {
		if e.Kind == plan.Interrupted {
			interrupted++
		}
	}
	times := resumed(t, all, starts)
	if len(times) == 0 && len(starts) > 5 {
		t.Error("no kill hit a running step: nothing was proved")
	}
	t.Logf(
		"%d plans done with %d steps, %d events, %d steps interrupted by %d kills", done, steps, len(all), interrupted,
		len(starts),
	)
	if n := len(times); n > 0 {
		t.Logf("from a restart to the first step, %d times: median %s, p95 %s, worst %s", n,
			times[n/2].Round(time.Millisecond), times[n*95/100].Round(time.Millisecond),
			times[n-1].Round(time.Millisecond))
	}
}

// checkPlan proves that the journal has no gaps, that the state is its fold, that every step ran once at a time and
// none again that was done.
func checkPlan(t *testing.T, p plan.Plan, state plan.State, events []plan.Event) {
	t.Helper()
	if !state.Status.Ended() && state.Status != plan.StatusPlanned {
		t.Errorf("plan %s (%s of %s) is %s: %s", p.ID, p.Operation, p.Cluster, state.Status, state.Message)
	}
	finished, running := map[string]bool{}, map[string]bool{}
	for i, e := range events {
		if e.Seq != int64(i+1) {
			t.Fatalf("plan %s: event %d has the number %d", p.ID, i+1, e.Seq)
		}
		switch e.Kind {
		case plan.Started:
			if finished[e.Step] {
				t.Errorf("plan %s: %s was done and ran again as attempt %d", p.ID, e.Step, e.Attempt)
			}
			if running[e.Step] {
				t.Errorf("plan %s: attempt %d of %s began beside another", p.ID, e.Attempt, e.Step)
			}
			running[e.Step] = true
		case plan.Noted:
		case plan.Succeeded:
			finished[e.Step], running[e.Step] = true, false
		default:
			running[e.Step] = false
		}
	}
	folded, err := plan.Fold(&p, events)
	must(t, err)
	micros := gocmp.Transformer("micros", func(at time.Time) int64 {
		if at.IsZero() {
			return 0
		}
		return at.UnixMicro()
	})
	if diff := gocmp.Diff(folded, state, micros); diff != "" {
		t.Errorf("plan %s: the state is not the fold of the journal (-fold +state):\n%s", p.ID, diff)
	}
}

// checkWorld compares the pretended world with the ledger.
func checkWorld(t *testing.T, r *rig.Rig, db *store.Store) {
	t.Helper()
	w := worldOf(t, r)
	if twins := w.Twins(); len(twins) > 0 {
		t.Errorf("twins: %v", twins)
	}
	machines, err := db.Machines(t.Context(), store.MachineFilter{})
	must(t, err)
	want, byCluster := []string{}, map[string]int{}
	for _, m := range machines {
		if m.State != director.MachinePresent {
			t.Errorf("machine %s is %s", m.Name, m.State)
		}
		byCluster[m.Cluster]++
		want = append(want, m.Name+" "+m.ID)
	}
	var got []string
	for _, line := range w.Inventory(db.DirectorID()) { // vm NAME DIRECTOR/MACHINE made=true on
		f := strings.Fields(line)
		if f[0] != "vm" {
			continue
		}
		if f[3] != "made=true" || f[4] != "on" {
			t.Errorf("half a VM: %s", line)
		}
		_, machine, _ := strings.Cut(f[2], "/")
		got = append(got, f[1]+" "+machine)
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := gocmp.Diff(want, got); diff != "" {
		t.Errorf("the world is not what the ledger says (-ledger +world):\n%s", diff)
	}
	for _, ref := range refs() {
		n := workers + 1
		if ref.Name == anchor {
			n = 1
		}
		if byCluster[ref.Name] != n {
			t.Errorf("%s has %d machines, want %d", ref, byCluster[ref.Name], n)
		}
	}
}

// resumed returns how long it took from each start that found interrupted steps until a step ran again, sorted. A start
// that was killed itself before that counts only if it had the time.
func resumed(t *testing.T, events []plan.Event, starts []time.Time) []time.Duration {
	t.Helper()
	slices.SortStableFunc(events, func(a, b plan.Event) int { return a.At.Compare(b.At) })
	var times []time.Duration
	for i, start := range starts {
		until := time.Now()
		if i+1 < len(starts) {
			until = starts[i+1]
		}
		var found bool
		var first time.Time
		for _, e := range events {
			if e.At.Before(start) || !e.At.Before(until) {
				continue
			}
			found = found || e.Kind == plan.Interrupted
			if e.Kind == plan.Started && found && first.IsZero() {
				first = e.At
			}
		}
		switch {
		case !found:
		case !first.IsZero():
			times = append(times, first.Sub(start))
		case until.Sub(start) > goingOn:
			t.Errorf("restart %d found interrupted steps and started none of them in %s", i+1, until.Sub(start))
		}
	}
	slices.Sort(times)
	for _, d := range times {
		if d > goingOn {
			t.Errorf("a restart took %s to continue, more than %s", d, goingOn)
		}
	}
	return times
}
