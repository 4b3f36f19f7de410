package engine_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/engine"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/store/storetest"
)

// These tests run real processes on one PostgreSQL, kill them and let them stand still. Each handler writes a line to
// one file when it begins and one when it ends.

var quiet = slog.New(slog.DiscardHandler)

const processLease = 2 * time.Second

// beDirector is the process: an engine that works until its standard input ends.
func beDirector(instance string) int {
	ctx := context.Background()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	s, err := store.OpenPostgres(ctx, store.Postgres{URL: os.Getenv("KAAS_TEST_DATABASE")}, log)
	if err != nil {
		log.Error("opening", "err", err)
		return 1
	}
	note := func(r plan.Run, what string) {
		f, err := os.OpenFile(os.Getenv("KAAS_TEST_ACTS"), os.O_APPEND|os.O_WRONLY, 0)
		if err != nil {
			panic(err)
		}
		defer f.Close()
		// one write, so one line
		_, _ = fmt.Fprintf(f, "%d %s %d %s %s\n", time.Now().UnixNano(), r.Step.ID, r.Attempt, instance, what)
	}
	act := func(wait func(context.Context, plan.Run) error) plan.Handler {
		return plan.HandlerFunc(func(ctx context.Context, r plan.Run) error {
			note(r, "begin")
			err := wait(ctx, r)
			if err != nil {
				note(r, "ended "+context.Cause(ctx).Error())
			} else {
				note(r, "done")
			}
			return err
		})
	}
	pause := func(ctx context.Context, d time.Duration) error {
		select {
		case <-time.After(d):
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	e, err := engine.New(ctx, engine.Config{
		Director: s.DirectorID(), Instance: instance, Store: adapted{s}, Lease: processLease, Workers: 2, Log: log,
		Channel: store.Channel,
		Handlers: map[string]plan.Handler{
			"work": act(func(ctx context.Context, _ plan.Run) error { return pause(ctx, 150*time.Millisecond) }),
			"long": act(func(ctx context.Context, r plan.Run) error { // the first attempt only ends when it is told to
				if r.Attempt > 1 {
					return nil
				}
				return pause(ctx, time.Hour)
			}),
			// the first attempt ends well and late, whatever it is told
			"deaf": act(func(_ context.Context, r plan.Run) error {
				if r.Attempt > 1 {
					return nil
				}
				return pause(context.Background(), 2*processLease)
			}),
		},
	})
	if err == nil {
		err = e.Start(ctx)
	}
	if err != nil {
		log.Error("starting", "err", err)
		return 1
	}
	fmt.Println("ready")
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := e.Stop(ctx); err != nil {
		log.Error("stopping", "err", err)
		return 1
	}
	return 0
}

// fleet is several directors as processes.
type fleet struct {
	address, acts string
	store         adapted
	control       *engine.Engine // begins plans and runs nothing
	procs         map[string]*exec.Cmd
	said          map[string]string // file of what each said
}

func newFleet(t *testing.T, instances ...string) *fleet {
	t.Helper()
	f := &fleet{
		address: storetest.Postgres(t), acts: filepath.Join(t.TempDir(), "acts"), procs: map[string]*exec.Cmd{},
		said: map[string]string{},
	}
	f.store = openPostgres(t, f.address)
	if err := os.WriteFile(f.acts, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	var err error
	f.control,
		err = engine.New(t.Context(), engine.Config{
		Director: f.store.DirectorID(), Instance: "control", Store: f.store, Log: quiet,
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range instances {
		f.start(t, name)
	}
	return f
}

// start starts the process and returns when it works.
func (f *fleet) start(t *testing.T, name string) {
	t.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(
		os.Environ(), "KAAS_TEST_INSTANCE="+name, "KAAS_TEST_DATABASE="+f.address, "KAAS_TEST_ACTS="+f.acts,
	)
	f.said[name] = filepath.Join(t.TempDir(), "said")
	said, err := os.Create(f.said[name])
	if err != nil {
		t.Fatal(err)
	}
	defer said.Close()
	cmd.Stderr = said
	stdin, err1 := cmd.StdinPipe()
	stdout, err2 := cmd.StdoutPipe()
	if err1 != nil || err2 != nil {
		t.Fatal(err1, err2)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	f.procs[name] = cmd
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGCONT)
		_ = stdin.Close()
		_ = cmd.Wait()
		if t.Failed() {
			text, _ := os.ReadFile(said.Name())
			t.Logf("%s said:\n%s", name, text)
		}
	})
	if line, _ := bufio.NewReader(stdout).ReadString('\n'); line != "ready\n" {
		t.Fatalf("%s does not start", name)
	}
}

func (f *fleet) signal(t *testing.T, name string, sig syscall.Signal) {
	t.Helper()
	if err := f.procs[name].Process.Signal(sig); err != nil {
		t.Fatal(err)
	}
}

func (f *fleet) begin(t *testing.T, p plan.Plan) {
	t.Helper()
	addPlan(t, f.store, p)
	if err := f.control.Begin(t.Context(), p.ID, "admin", nil); err != nil {
		t.Fatal(err)
	}
}

func (f *fleet) status(t *testing.T, id string) plan.Status {
	t.Helper()
	_, st, err := f.store.Plan(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	return st.Status
}

// wait polls cond for at most d.
func wait(t *testing.T, d time.Duration, what string, cond func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), d)
	defer cancel()
	if !eventually(ctx, cond) {
		t.Fatalf("not within %s: %s", d, what)
	}
}

// attempt is one run of a handler, as it wrote it down.
type attempt struct {
	step, instance, end string // end is empty while it runs
	number              int
	from, to            int64
}

func (f *fleet) attempts(t *testing.T) []attempt {
	t.Helper()
	text, err := os.ReadFile(f.acts)
	if err != nil {
		t.Fatal(err)
	}
	var out []attempt
	for line := range strings.Lines(string(text)) {
		var a attempt
		var at int64
		var what string
		if _, err := fmt.Sscan(line, &at, &a.step, &a.number, &a.instance, &what); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if what == "begin" {
			a.from = at
			out = append(out, a)
			continue
		}
		for i := range out {
			if out[i].step == a.step && out[i].number == a.number {
				out[i].to, out[i].end = at, strings.TrimSpace(line[strings.Index(line, what):])
			}
		}
	}
	return out
}

func (f *fleet) find(t *testing.T, ok func(attempt) bool) (attempt, bool) {
	t.Helper()
	for _, a := range f.attempts(t) {
		if ok(a) {
			return a, true
		}
	}
	return attempt{}, false
}

// layers is a plan of n layers of three steps; each step waits for the whole layer before.
func layers(id string, n int) plan.Plan {
	p := demo(id)
	p.Steps = nil
	var before []string
	for i := range n {
		var layer []string
		for j := range 3 {
			step := plan.Step{ID: fmt.Sprintf("s%02d.%d", i, j), Kind: "work", Attempts: 3, Needs: before}
			p.Steps, layer = append(p.Steps, step), append(layer, step.ID)
		}
		before = layer
	}
	return p
}

// Three directors share a plan; the one that runs a step is killed in the middle of it. Another continues before 15 s
// are over, each step is done once, and none ran beside itself.
func TestKilledDirectorIsReplaced(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "one", "two", "three")
	p := layers("p1", 8)
	f.begin(t, p)
	var victim attempt
	wait(t, 60*time.Second, "a step in the middle of the plan", func() bool {
		var ok bool
		victim, ok = f.find(t, func(a attempt) bool { return a.step >= "s03" && a.end == "" })
		return ok
	})
	f.signal(t, victim.instance, syscall.SIGKILL)
	killed := time.Now()
	_ = f.procs[victim.instance].Wait()
	wait(t, 15*time.Second, "a peer begins what the dead director ran", func() bool {
		again, ok := f.find(t, func(a attempt) bool { return a.step == victim.step && a.number > victim.number })
		done, _ := f.find(t, func(a attempt) bool { return a.step == victim.step && a.end == "done" })
		return ok && again.instance != victim.instance || done.step != "" // the kill may have come just too late
	})
	t.Logf(
		"%s was taken over %s after the kill of %s, with a lease of %s", victim.step,
		time.Since(killed).Round(time.Millisecond), victim.instance, processLease,
	)
	wait(t, 60*time.Second, "the end of the plan", func() bool { return f.status(t, "p1") == plan.StatusDone })

	done, workers := map[string]int{}, map[string]bool{}
	all := f.attempts(t)
	for i, a := range all {
		workers[a.instance] = true
		if a.end == "done" {
			done[a.step]++
		}
		if a.end == "" {
			all[i].to = killed.UnixNano()
		}
	}
	for _, s := range p.Steps {
		if done[s.ID] != 1 {
			t.Errorf("%s was done %d times", s.ID, done[s.ID])
		}
	}
	for i, a := range all {
		for _, b := range all[:i] {
			if a.step == b.step && a.from < b.to && b.from < a.to {
				t.Errorf("%s ran beside itself: %+v %+v", a.step, a, b)
			}
		}
	}
	if len(workers) < 2 {
		t.Errorf("only %v worked", workers)
	}
}

// A director stands still for longer than its lease while a peer does its steps. When it wakes up its handlers are told
// to end, and what one of them says all the same is refused.
func TestDirectorThatStoodStillIsFenced(t *testing.T) {
	t.Parallel()
	f := newFleet(t, "sleeper")
	p := demo("p1")
	p.Steps = []plan.Step{{ID: "long", Kind: "long", Attempts: 1}, {ID: "deaf", Kind: "deaf", Attempts: 1}}
	f.begin(t, p)
	wait(t, 30*time.Second, "both steps run", func() bool { return len(f.attempts(t)) == 2 })
	f.signal(t, "sleeper", syscall.SIGSTOP)
	f.start(t, "peer")
	wait(t, 15*time.Second, "the peer does both", func() bool { return f.status(t, "p1") == plan.StatusDone })
	before, err := f.store.Events(t.Context(), "p1", 0, 1000)
	if err != nil {
		t.Fatal(err)
	}

	f.signal(t, "sleeper", syscall.SIGCONT)
	wait(t, 15*time.Second, "the sleeper's handlers end", func() bool {
		long, _ := f.find(t, func(a attempt) bool { return a.step == "long" && a.instance == "sleeper" && a.end != "" })
		deaf, _ := f.find(t, func(a attempt) bool {
			return a.step == "deaf" && a.instance == "sleeper" && a.end == "done"
		})
		return long.end == "ended the lease was lost" && deaf.end != ""
	})
	wait(t, 15*time.Second, "the late outcome is refused", func() bool {
		text, err := os.ReadFile(f.said["sleeper"])
		return err == nil && strings.Contains(string(text), "a late outcome was refused")
	})
	after, err := f.store.Events(t.Context(), "p1", 0, 1000)
	if err != nil || len(after) != len(before) {
		t.Errorf("the journal grew from %d to %d events, %v", len(before), len(after), err)
	}
	for _, ev := range after {
		if ev.Attempt == 1 && ev.Kind != plan.Started && ev.Kind != plan.Interrupted {
			t.Errorf("the first attempt left %+v", ev)
		}
	}

	// It is a full member again.
	f.signal(t, "peer", syscall.SIGKILL)
	_ = f.procs["peer"].Wait()
	f.begin(t, layers("p2", 1))
	wait(t, 30*time.Second, "the sleeper works again", func() bool { return f.status(t, "p2") == plan.StatusDone })
}
