package kill

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/store/storetest"
	"github.com/director-kaas/kaas/director/wire"
	"github.com/director-kaas/kaas/test/rig"
)

func TestMain(m *testing.M) { os.Exit(storetest.Main(m)) }

// takenOver is how long a peer may take to continue with what a director left that is gone. It is the promise of
// docs/operate/high-availability.md.
const takenOver = 15 * time.Second

// fleet is two directors on one PostgreSQL.
type fleet struct {
	*rig.Fleet
	db  *store.Store
	api []*client.Client // of each, with one login
}

func newFleet(t *testing.T) *fleet {
	t.Helper()
	bin := binaries(t)
	server := storetest.Shared(t)
	address := server.Database(t)
	r, err := rig.NewFleet(
		bin, t.TempDir(), 2, server.TCP(address), storetest.Password,
		"{tasks: 5, latency: 150ms, jitter: 50ms, changed: 30}",
	)
	must(t, err)
	f := &fleet{Fleet: r}
	t.Cleanup(func() {
		for i, r := range f.Directors {
			if t.Failed() {
				t.Logf("the end of the log of director %d:\n%s", i+1, r.Tail())
			}
			_ = r.Signal(syscall.SIGCONT)
			_ = r.Stop()
		}
	})
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, f.Start(ctx))
	for _, r := range f.Directors {
		c, err := f.Directors[0].ClientAt(ctx, r.Listen) // a login is valid on every director
		must(t, err)
		t.Cleanup(c.Close)
		f.api = append(f.api, c)
	}
	base, err := f.Directors[0].Base(ctx, provider, map[string]string{
		"shared": "{provider: lab, cidr: 10.88.0.0/24, pool: {from: 10.88.0.10, to: 10.88.0.99}}",
	})
	must(t, err)
	_, err = f.api[0].Apply(ctx, []byte(base), "documents", false)
	must(t, err)
	f.db, err = store.OpenPostgres(ctx, store.Postgres{URL: address}, slog.New(slog.DiscardHandler))
	must(t, err)
	t.Cleanup(func() { must(t, f.db.Close()) })
	return f
}

// instance returns the id of the i-th director.
func (f *fleet) instance(t *testing.T, i int) string {
	t.Helper()
	id, err := f.Directors[i].Instance()
	must(t, err)
	return id
}

// make plans the creation of the cluster through the i-th director, and starts it there.
func (f *fleet) make(t *testing.T, i int, name string) string {
	t.Helper()
	_, err := f.api[i].Apply(t.Context(), []byte(rig.Cluster(name, "shared", workers)), name, false)
	must(t, err)
	p, err := f.api[i].MakePlan(t.Context(), name, plan.Request{Operation: plan.ClusterCreate})
	must(t, err)
	_, err = f.api[i].StartPlan(t.Context(), p.ID, p.Hash)
	must(t, err)
	return p.ID
}

// journal returns what is written of the plan.
func (f *fleet) journal(t *testing.T, id string) []plan.Event {
	t.Helper()
	events, err := f.db.Events(t.Context(), id, 0, 1_000_000)
	must(t, err)
	return events
}

// plays returns the steps of the plan that are playbooks: those that run a process.
func (f *fleet) plays(t *testing.T, id string) map[string]bool {
	t.Helper()
	p, _, err := f.db.Plan(t.Context(), id)
	must(t, err)
	out := map[string]bool{}
	for _, s := range p.Steps {
		out[s.ID] = s.Kind == step.Play
	}
	return out
}

// struck is a plan in the middle of which a director was struck.
type struck struct {
	id  string
	at  time.Time
	hit wire.Event                         // the start of the attempt that was hit
	end func(t *testing.T) (status string) // waits for the end of the plan
}

// mostClusters is how many clusters a test makes until the victim plays something: which director takes a step is
// chance, and on a busy machine one of them may take all.
const mostClusters = 5

// untilStruck has one cluster after another made, until a director could be struck meanwhile.
func untilStruck(t *testing.T, name string, try func(cluster string) (struck, bool)) struck {
	t.Helper()
	for n := range mostClusters {
		if s, ok := try(fmt.Sprintf("%s-%d", name, n+1)); ok {
			return s
		}
	}
	t.Fatalf("the director that is to be struck plays nothing of %d clusters", mostClusters)
	return struck{}
}

// makeAndStrike makes clusters through the i-th director until the victim could be struck, and returns their names.
func (f *fleet) makeAndStrike(
	t *testing.T, i int, name string, victim int, strike func() error,
) (s struck, made []string) {
	t.Helper()
	s = untilStruck(t, name, func(cluster string) (struck, bool) {
		made = append(made, cluster)
		return f.strike(t, f.make(t, i, cluster), 1-victim, victim, strike)
	})
	return s, made
}

// strike follows the plan through one director and strikes when the other, the victim, is in the middle of a playbook.
// It returns false if the plan came to its end, and the victim played nothing of it.
func (f *fleet) strike(t *testing.T, id string, through, victim int, strike func() error) (struck, bool) {
	t.Helper()
	of, plays := f.instance(t, victim), f.plays(t, id)
	out, done, ended := struck{id: id}, make(chan struct{}), make(chan string, 1)
	var once sync.Once
	go func() {
		status, err := f.api[through].Follow(t.Context(), id, 0, func(e wire.Event) (err error) {
			if e.Kind == string(plan.Started) && e.By == of && plays[e.Step] {
				once.Do(func() {
					await(t, "the playbook says something", func() bool {
						info, err := os.Stat(f.logFile(e))
						return err == nil && info.Size() > 0
					})
					err = strike()
					out.at, out.hit = time.Now(), e
					close(done)
				})
			}
			return err
		}, nil, nil)
		if err != nil {
			status = err.Error()
		}
		ended <- status
	}()
	select {
	case <-done:
	case <-time.After(2 * time.Minute):
		t.Fatal("the plan does not get there")
	case status := <-ended:
		if status != string(plan.StatusDone) {
			t.Fatalf("the plan is %s", status)
		}
		return struck{}, false
	}
	out.end = func(t *testing.T) string {
		t.Helper()
		select {
		case status := <-ended:
			return status
		case <-time.After(2 * time.Minute):
			t.Fatal("the plan does not end")
		}
		return ""
	}
	return out, true
}

// logFile is where the directors keep the log of an attempt.
func (f *fleet) logFile(e wire.Event) string {
	return filepath.Join(
		f.Dir, "shared", "runs", e.Plan, fmt.Sprintf("%s.%d.jsonl", strings.ReplaceAll(e.Step, "/", "_"), e.Attempt),
	)
}

// checkTakeover proves that the peer began the step anew soon enough, and that the journal has no step beside itself.
func (f *fleet) checkTakeover(t *testing.T, s struck, peer int) {
	t.Helper()
	p, state, err := f.db.Plan(t.Context(), s.id)
	must(t, err)
	events, hit := f.journal(t, s.id), s.hit
	checkPlan(t, p, state, events)
	var again plan.Event
	for _, e := range events {
		if e.Kind == plan.Started && e.Step == hit.Step && e.Attempt == hit.Attempt+1 {
			again = e
		}
	}
	switch took := again.At.Sub(s.at); {
	case again.By != f.instance(t, peer):
		t.Errorf("attempt %d of %s was made by %q, want the other director", hit.Attempt+1, hit.Step, again.By)
	case took > takenOver:
		t.Errorf("%s was taken over after %s, more than %s", hit.Step, took, takenOver)
	default:
		t.Logf("%s was taken over after %s", hit.Step, took.Round(time.Millisecond))
	}
}

// checkLogs reads the logs of the playbooks' attempts through the director, whoever ran them: that of the one that was
// hit, and of all that came to their end.
func (f *fleet) checkLogs(t *testing.T, s struck, through int) {
	t.Helper()
	id, hit := s.id, s.hit
	by, starter, plays := map[string]bool{}, map[string]string{}, f.plays(t, id)
	for _, e := range f.journal(t, id) {
		if e.Kind == plan.Started {
			starter[e.Step] = e.By
		}
		if !plays[e.Step] ||
			e.Kind != plan.Succeeded && (e.Kind != plan.Interrupted || e.Step != hit.Step || e.Attempt != hit.Attempt) {
			continue
		}
		log, err := f.api[through].StepLog(t.Context(), id, e.Step, e.Attempt, 0)
		must(t, err)
		text, err := io.ReadAll(log)
		if err != nil || log.Close() != nil || !strings.Contains(string(text), "{") {
			t.Errorf("attempt %d of %s, by %s, has the log %q, %v", e.Attempt, e.Step, starter[e.Step], text, err)
		}
		by[starter[e.Step]] = true
	}
	if len(by) < len(f.Directors) {
		t.Errorf("the playbooks were played by %v alone", by)
	}
}

// Two whole directors share a PostgreSQL and a pretended world. What is started through one is seen and followed
// through the other; the first is killed, or stands still, in the middle of a playbook, and the other continues.
func TestTwoDirectorsOnOneDatabase(t *testing.T) {
	t.Parallel()
	f := newFleet(t)

	first, made := f.makeAndStrike(t, 0, "one", 0, f.Directors[0].Kill)
	if status := first.end(t); status != string(plan.StatusDone) {
		t.Fatalf("the plan is %s", status)
	}
	f.checkTakeover(t, first, 1)
	f.checkLogs(t, first, 1)
	if left := f.Directors[0].Orphans(); len(left) > 0 {
		t.Errorf("of the dead director there run: %v", left)
	}

	// It comes back, and is killed no more: now it stands still.
	must(t, f.Directors[0].Start())
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	must(t, f.Directors[0].Ready(ctx))
	second, more := f.makeAndStrike(t, 1, "two", 0, func() error { return f.Directors[0].Signal(syscall.SIGSTOP) })
	id, hit := second.id, second.hit
	if status := second.end(t); status != string(plan.StatusDone) {
		t.Fatalf("the plan is %s", status)
	}
	f.checkTakeover(t, second, 1)
	if left := f.Directors[0].Orphans(); len(left) > 0 {
		t.Errorf("of the director that stands still there run: %v", left)
	}
	before := f.journal(t, id)
	must(t, f.Directors[0].Signal(syscall.SIGCONT))
	await(t, "the director that stood still ends what it ran", func() bool {
		text, err := os.ReadFile(f.Directors[0].LogFile())
		refused := fmt.Sprintf(" plan_id=%s step=%s attempt=%d outcome=", id, hit.Step, hit.Attempt)
		return err == nil && strings.Contains(string(text), refused) && len(f.Directors[0].Orphans()) == 0
	})
	if after := f.journal(t, id); len(after) != len(before) {
		t.Errorf("it wrote %d events all the same: %+v", len(after)-len(before), after[len(before):])
	}
	f.checkLogs(t, second, 0)

	// Where the directors do not have the logs in common, they fetch them from who has them.
	own := f.Directors[0].Seen("runs")
	must(t, errors.Join(os.Remove(own), os.Mkdir(own, 0o700)))
	log, err := f.api[0].StepLog(t.Context(), id, hit.Step, hit.Attempt+1, 0)
	must(t, err)
	text, err := io.ReadAll(log)
	if err = errors.Join(err, log.Close()); err != nil || !strings.Contains(string(text), "{") {
		t.Errorf("the log of the other director: %q, %v", text, err)
	}
	must(t, errors.Join(os.Remove(own), os.Symlink(filepath.Join(f.Dir, "shared", "runs"), own)))

	// It is a full member again.
	must(t, f.Directors[1].Stop())
	for _, name := range append(made, more...) {
		must(t, reach(t.Context(), f.api[0], name, "shared", plan.ClusterDelete))
	}
	must(t, f.Directors[0].Stop())
	if machines, err := f.db.Machines(t.Context(), store.MachineFilter{}); err != nil || len(machines) > 0 {
		t.Errorf("the ledger holds %v, %v", machines, err)
	}
	for _, line := range openWorld(t, filepath.Join(f.Dir, "shared", "worlds")).Inventory("") {
		if strings.HasPrefix(line, "vm ") {
			t.Errorf("a VM is left: %s", line)
		}
	}
}
