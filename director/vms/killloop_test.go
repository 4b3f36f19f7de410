package vms_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
	"github.com/director-kaas/kaas/director/ledger"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/servicetest"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/vms"
)

var errKilled = errors.New("the director was killed")

// life is what is left of one director's process: it dies before or after one of its calls to the ledger or the
// hypervisor. What it had asked for by then is done, and nothing after it.
type life struct{ left atomic.Int64 }

func (l *life) tick() error {
	if l.left.Add(-1) < 0 {
		return errKilled
	}
	return nil
}

func around[T any](l *life, act func() (T, error)) (T, error) {
	var zero T
	if err := l.tick(); err != nil {
		return zero, err
	}
	v, err := act()
	if dead := l.tick(); dead != nil {
		return zero, dead
	}
	return v, err
}

type mortalLedger struct {
	steps.Ledger
	life *life
}

func (m mortalLedger) IntendAgain(ctx context.Context, x director.Machine, now time.Time) error {
	_, err := around(m.life, func() (int, error) { return 0, m.Ledger.IntendAgain(ctx, x, now) })
	return err
}

func (m mortalLedger) SetMachine(ctx context.Context, id string, s director.MachineState, host, vm string) error {
	_, err := around(m.life, func() (int, error) { return 0, m.Ledger.SetMachine(ctx, id, s, host, vm) })
	return err
}

func (m mortalLedger) BuryMachine(ctx context.Context, id string, now time.Time) error {
	_, err := around(m.life, func() (int, error) { return 0, m.Ledger.BuryMachine(ctx, id, now) })
	return err
}

// mortalBackend is the connection of that process. late gets a creation that the hypervisor had taken and not begun
// when its director died.
type mortalBackend struct {
	hypervisor.Backend
	life *life
	late *[]hypervisor.Spec
}

func (m mortalBackend) Ensure(ctx context.Context, s hypervisor.Spec) (hypervisor.VM, error) {
	vm, err := around(m.life, func() (hypervisor.VM, error) {
		if m.life.left.Load() == 1 { // it dies waiting for the answer, and the hypervisor takes its time
			*m.late = append(*m.late, s)
			return hypervisor.VM{}, nil
		}
		return m.Backend.Ensure(ctx, s)
	})
	return vm, err
}

func (m mortalBackend) List(ctx context.Context, f hypervisor.Filter) ([]hypervisor.VM, error) {
	return around(m.life, func() ([]hypervisor.VM, error) { return m.Backend.List(ctx, f) })
}

func (m mortalBackend) Delete(ctx context.Context, id hypervisor.ID, o hypervisor.DeleteOptions) error {
	_, err := around(m.life, func() (int, error) { return 0, m.Backend.Delete(ctx, id, o) })
	return err
}

func (m mortalBackend) Unwrap() hypervisor.Backend { return m.Backend }

// try runs a step in a process that may die, and again in a new one, until it ends by itself. deaths is how often it
// may die.
func (l *lab) try(
	ctx context.Context, random *rand.Rand, kind string, m director.Machine, deaths int,
) (late []hypervisor.Spec, err error) {
	real := sim.Open(l.World)
	for {
		alive := &life{}
		alive.left.Store(1 << 30)
		if deaths > 0 {
			alive.left.Store(random.Int64N(9))
		}
		env := l.Env
		env.Ledger = mortalLedger{l.Store, alive}
		env.Backends = servicetest.Backend{B: mortalBackend{real, alive, &late}}
		err = l.Step(ctx, env, kind, m)
		switch {
		case errors.Is(err, errKilled) && deaths > 0:
			deaths--
		case director.KindOf(err) == director.KindUnavailable &&
			err != nil: // the hypervisor had a fault: the engine tries again
		case err != nil && plan.OutcomeOf(err).Kind == plan.NotReady: // half made: asked again
		default:
			return late, err
		}
	}
}

// killLoop is 1,000 creations by directors that die, and what is known of them.
type killLoop struct {
	*lab
	seed    uint64
	planted map[string]bool // names that strangers have

	mu      sync.Mutex
	nobodys map[string]bool // machines that may be found as orphans from now on
	counts  map[string]int  // machines, by what became of them
}

const loopClusters, loopWorkers = 100, 10

// 1,000 creations, each killed and cut off at random points, on a hypervisor with faults and with strangers of the same
// names, by directors whose database was set back in between. One sweep with the ledger's own means then leaves no
// orphan, no twin, no stranger touched. Audits run all the time, and none calls a VM an orphan that a plan is just
// making.
func TestKillLoop(t *testing.T) {
	t.Parallel()
	l := &killLoop{
		lab: openLab(t, loopClusters, loopWorkers), seed: uint64(time.Now().UnixNano()), planted: map[string]bool{},
		nobodys: map[string]bool{}, counts: map[string]int{},
	}
	t.Logf("seed %d", l.seed)
	l.World.SetAttempts(2)
	l.World.SetWeather(l.seed, map[sim.Verb]sim.Timing{
		sim.VerbEnsure: {Faults: 0.1}, sim.VerbDelete: {Faults: 0.1}, sim.VerbList: {Faults: 0.02},
	})
	l.plant(t)
	before := l.strangers()

	due := make(chan struct{}, loopClusters)
	var audits, creations sync.WaitGroup
	rounds := 0
	audits.Go(func() {
		for range due {
			l.auditOnce(t)
			rounds++
		}
	})
	work := make(chan int)
	for w := range 4 {
		random := rand.New(rand.NewPCG(l.seed, uint64(w)))
		creations.Go(func() {
			for i := range work {
				l.createCluster(t, random, i)
			}
		})
	}
	for i := range loopClusters {
		work <- i
		if i%5 == 0 {
			due <- struct{}{}
		}
	}
	close(work)
	creations.Wait()
	close(due)
	audits.Wait()

	t.Logf("%v; %d audits meanwhile; %d orphans", l.counts, rounds, len(l.orphans(t)))
	if len(l.orphans(t)) < 50 {
		t.Error("too few orphans to prove anything")
	}
	l.sweep(t)
	if got := l.orphans(t); len(got) > 0 {
		t.Errorf("orphans are left: %v", got)
	}
	twins := slices.DeleteFunc(l.World.Twins(), func(s string) bool { return strings.HasPrefix(s, "MAC  ") })
	if len(twins) > 0 {
		t.Errorf("twins: %v", twins)
	}
	if diff := cmp.Diff(before, l.strangers()); diff != "" {
		t.Errorf("strangers were touched:\n%s", diff)
	}
	l.agrees(t)
}

// plant makes a VM of others with the name of a node in each cluster: every other one is without a stamp, the rest are
// another director's.
func (l *killLoop) plant(t *testing.T) {
	t.Helper()
	other := sim.Open(l.World)
	for i := range loopClusters {
		name := fmt.Sprintf("c%03d-w-%d", i, i%loopWorkers+1)
		l.planted[name] = true
		if i%2 == 0 {
			l.World.AddStranger(name)
			continue
		}
		for made := false; !made; {
			_, err := other.Ensure(t.Context(), hypervisor.Spec{
				Key: director.Stamp{Director: "theirs", Machine: l.Made[name].ID}, Name: name, CPUs: 1, Memory: 1 << 30,
				Image: "node", RootDisk: 1 << 30,
				NICs: []hypervisor.NIC{{Network: "net", MAC: l.Made[name].MAC}},
				Seed: hypervisor.Seed{UserData: []byte("#cloud-config\n")},
			})
			vms, lerr := other.List(t.Context(), hypervisor.Filter{Director: "theirs", Machine: l.Made[name].ID})
			made = err == nil && lerr == nil && vms[0].Ready
		}
	}
}

// strangers lists the VMs that are not ours.
func (l *killLoop) strangers() []string {
	return slices.DeleteFunc(l.World.Inventory(""), func(s string) bool {
		return !strings.HasPrefix(s, "vm ") || strings.Contains(s, " "+l.Director.ID+"/")
	})
}

// nobody notes that the machine may be found as an orphan from now on.
func (l *killLoop) nobody(m director.Machine) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.nobodys[m.ID] = true
}

// auditOnce fails the test if an audit calls a VM an orphan that a plan is making.
func (l *killLoop) auditOnce(t *testing.T) {
	r, err := l.Audit(t.Context())
	if err != nil {
		t.Error(err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range r.Findings {
		if f.Kind == ledger.Orphan && !l.nobodys[f.Machine] {
			t.Errorf("an audit calls %s an orphan while a plan makes it", f.Name)
		}
	}
}

// createCluster has a plan make the VMs of the cluster with the number, and sets the database back to before the plan
// for those that are lost.
func (l *killLoop) createCluster(t *testing.T, random *rand.Rand, number int) {
	var machines []director.Machine
	for n := range loopWorkers {
		machines = append(machines, l.Made[fmt.Sprintf("c%03d-w-%d", number, n+1)])
	}
	id := fmt.Sprintf("p%d", number)
	if err := l.AddPlan(t.Context(), id, true, machines...); err != nil {
		t.Error(err)
		return
	}
	var lost []director.Machine
	for _, m := range machines {
		fate, err := l.create(t.Context(), random, m, l.planted[m.Name], l.nobody)
		if err != nil {
			t.Errorf("%s: %v", m.Name, err)
		}
		if fate == "lost" {
			lost = append(lost, m)
		}
		l.mu.Lock()
		l.counts[fate]++
		l.mu.Unlock()
	}
	if err := l.EndPlan(t.Context(), id, plan.PlanDone); err != nil {
		t.Error(err)
	}
	for _, m := range lost {
		l.nobody(m)
		if _, err := l.Store.SQL().ExecContext(t.Context(), "DELETE FROM machines WHERE id = ?", m.ID); err != nil {
			t.Error(err)
		}
	}
}

// create brings one VM about, or gives it up, with deaths on the way, and returns what became of it.
func (l *lab) create(
	ctx context.Context, random *rand.Rand, m director.Machine, taken bool, nobody func(director.Machine),
) (string, error) {
	late, err := l.try(ctx, random, step.VMEnsure, m, 1+random.IntN(3))
	if taken { // a stranger has its name
		if director.KindOf(err) != director.KindConflict || err == nil {
			return "", fmt.Errorf("a stranger's name was no conflict: %w", err)
		}
		_, err = l.try(ctx, random, step.VMDelete, m, random.IntN(3))
		return "refused", err
	}
	if err != nil {
		return "", err
	}
	switch random.IntN(10) {
	case 0, 1: // given up, with whatever the dead directors had asked for coming late
		if _, err := l.try(ctx, random, step.VMDelete, m, random.IntN(3)); err != nil {
			return "", err
		}
		for _, s := range late {
			nobody(m)
			_, err := sim.Open(l.World).Ensure(ctx, s)
			if err != nil && director.KindOf(err) != director.KindUnavailable {
				return "", err
			}
		}
		if len(late) > 0 {
			return "given up, and it came late", nil
		}
		return "given up", nil
	case 2:
		return "lost", nil
	}
	for _, s := range late { // what a dead director asked for meets what its successor made
		if _, err := sim.Open(l.World).Ensure(ctx, s); err != nil && director.KindOf(err) != director.KindUnavailable {
			return "", err
		}
	}
	return "made", nil
}

func (l *lab) orphans(t *testing.T) []ledger.Finding {
	t.Helper()
	for {
		r, err := l.Audit(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if r.Providers[0].Err != nil {
			continue // a fault
		}
		return slices.DeleteFunc(r.Findings, func(f ledger.Finding) bool { return f.Kind != ledger.Orphan })
	}
}

// sweep is the one sweep: every other orphan is adopted where it can be, and all others are reclaimed. Directors that
// die at it begin again.
func (l *lab) sweep(t *testing.T) {
	t.Helper()
	adopted, reclaimed := 0, 0
	for i, f := range l.orphans(t) {
		if i%2 == 0 && f.Cluster != "" {
			var err error
			for range 20 {
				if _, err = l.Adopt(
					t.Context(), "admin", "lab", string(f.VM), vms.Addresses{},
				); err == nil || director.KindOf(err) != director.KindUnavailable {
					break
				}
			}
			if err != nil {
				t.Errorf("adopting %s: %v", f.Name, err)
			}
			adopted++
			continue
		}
		var err error
		for range 20 {
			if _, err = l.Reclaim(
				t.Context(), "admin", "lab", string(f.VM), true,
			); err == nil || director.KindOf(err) != director.KindUnavailable {
				break
			}
		}
		if err != nil && director.KindOf(err) != director.KindNotFound { // done, and the answer was lost
			t.Errorf("reclaiming %s: %v", f.Name, err)
		}
		reclaimed++
	}
	t.Logf("%d adopted, %d reclaimed", adopted, reclaimed)
}

// agrees compares the world with the ledger, by means of neither.
func (l *lab) agrees(t *testing.T) {
	t.Helper()
	rows, err := l.Store.Machines(t.Context(), store.MachineFilter{})
	if err != nil {
		t.Fatal(err)
	}
	var want, got []string
	for _, m := range rows {
		want = append(want, m.Name+" "+m.ID)
	}
	for _, line := range l.World.Inventory(l.Director.ID) {
		if f := strings.Fields(line); f[0] == "vm" {
			got = append(got, f[1]+" "+strings.TrimPrefix(f[2], l.Director.ID+"/"))
		}
	}
	slices.Sort(want)
	slices.Sort(got)
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-ledger +world:\n%s", diff)
	}
}
