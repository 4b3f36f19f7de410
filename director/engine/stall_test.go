package engine_test

import (
	"context"
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/ansible"
	"github.com/director-kaas/kaas/director/engine"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
	"github.com/director-kaas/kaas/director/inventory"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store/storetest"
)

// stalling is the store of a director that can stand still: as long as the gate is closed, nothing of its engine gets
// through. Time continues by ahead.
type stalling struct {
	adapted
	gate  *sync.RWMutex
	ahead *atomic.Int64
}

func (s stalling) open() func() {
	s.gate.RLock()
	return s.gate.RUnlock
}

func (s stalling) now() time.Time { return time.Now().Add(time.Duration(s.ahead.Load())) }

func (s stalling) Clock(ctx context.Context) (time.Time, error) {
	defer s.open()()
	there, err := s.adapted.Clock(ctx)
	return there.Add(time.Duration(s.ahead.Load())), err
}

func (s stalling) Update(ctx context.Context, fn func(engine.Tx) error) error {
	defer s.open()()
	return s.adapted.Update(ctx, fn)
}

func (s stalling) Renew(ctx context.Context, owner string, until time.Time) (held, stop []plan.StepRef, err error) {
	defer s.open()()
	return s.adapted.Renew(ctx, owner, until)
}

// playing is an ansible-playbook that tells its process and waits until it may continue. It runs the playbook, which is
// a script here.
const playing = `#!/bin/bash
n=0
emit() { n=$((n + 1)); printf '{"n":%d,%s\n' "$n" "${1#\{}" >>"$KAAS_EVENTS"; }
for playbook; do :; done
step=${playbook%.yml}
emit '{"type":"play_start","play":"P"}'
echo $$ >"$step.new" && mv "$step.new" "$step.pid"
while [ ! -e "$step.go" ]; do sleep 0.02; done
emit '{"type":"stats","stats":{"h1":{"ok":1}}}'
`

// A director stands still for 1 to 12 seconds while a play runs. A play bears half a lease of silence and ends itself
// then; a director that could not renew its leases gives its steps up after three quarters; a peer takes them after a
// whole one. None of it ends the plan. All times are a fifth of the usual ones, and the stalls take no time: the clocks
// are put forward.
func TestStallsDuringAPlayNeverEndAPlan(t *testing.T) {
	t.Parallel()
	const scale = 5
	lease, silence := engine.DefaultLease/scale, engine.DefaultLease/2/scale
	address := storetest.Postgres(t)
	db, l, dir := openPostgres(t, address), newLab(t), t.TempDir()
	s := installation{db: db, world: sim.NewWorld()}

	var stalls []time.Duration
	for d := time.Second; d <= 12*time.Second; d += time.Second / 2 {
		stalls = append(stalls, d/scale)
	}
	p := stallPlan(t, l.plan(t, s, "p1", plan.ClusterCreate, "demo"), dir, len(stalls))
	addPlan(t, db, p)
	addAuthorities(t, l, db)
	binary := filepath.Join(dir, "ansible-playbook")
	if err := os.WriteFile(binary, []byte(playing), 0o700); err != nil {
		t.Fatal(err)
	}

	var ahead atomic.Int64
	gates := map[string]*sync.RWMutex{"one": {}, "two": {}}
	var mu sync.Mutex
	at := map[string]string{} // where a step ran last
	var one *engine.Engine
	for name, gate := range gates {
		one = startStalling(t, stallDirector{
			lab: l, db: db, address: address, name: name, dir: dir, binary: binary, lease: lease,
			gate: gate, ahead: &ahead, ran: func(id string) {
				mu.Lock()
				at[id] = name
				mu.Unlock()
			},
		})
	}
	if err := one.Begin(t.Context(), "p1", "admin", nil); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	status := func() plan.State {
		_, st, err := db.Plan(t.Context(), "p1")
		if err != nil {
			t.Fatal(err)
		}
		return st
	}
	for i, stall := range stalls {
		base := filepath.Join(dir, fmt.Sprintf("stall-%02d", i))
		var pid int
		eventually(ctx, func() bool {
			text, err := os.ReadFile(base + ".pid")
			if err == nil {
				pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
			}
			return err == nil || status().Status != plan.StatusRunning
		})
		if pid == 0 {
			st := status()
			t.Fatalf("before the stall of %s the plan is %s: %s", stall*scale, st.Status, st.Message)
		}
		mu.Lock()
		gate := gates[at[p.Steps[i].ID]]
		mu.Unlock()
		gate.Lock()
		ahead.Add(int64(stall))
		if stall >= silence {
			_ = syscall.Kill(pid, syscall.SIGKILL) // as its callback plugin does
		}
		gate.Unlock()
		if err := os.WriteFile(base+".go", nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if !eventually(ctx, func() bool { return status().Status != plan.StatusRunning }) ||
		status().Status != plan.StatusDone {
		st := status()
		t.Fatalf("the plan is %s: %s", st.Status, st.Message)
	}
	checkJournal(t, db, p, status())
}

// stallPlan turns p into a plan of so many plays, one after the other, each with a playbook of its own in dir.
func stallPlan(t *testing.T, p plan.Plan, dir string, plays int) plan.Plan {
	t.Helper()
	p.Steps, p.Windows = nil, nil
	for i := range plays {
		name := fmt.Sprintf("stall-%02d", i)
		if err := os.WriteFile(filepath.Join(dir, name+".yml"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		params, err := json.Marshal(step.PlayParams{Playbook: name + ".yml"})
		if err != nil {
			t.Fatal(err)
		}
		s := plan.Step{ID: "play/" + name, Kind: step.Play, Params: params, Attempts: 1, Timeout: time.Hour}
		if i > 0 {
			s.Needs = []string{p.Steps[i-1].ID}
		}
		p.Steps = append(p.Steps, s)
	}
	facts, err := step.DecodeFacts(p.Content)
	if err != nil {
		t.Fatal(err)
	}
	facts.Tags = map[string]string{}
	for _, v := range inventory.Variables() {
		if image, ok := strings.CutSuffix(v.Name, "_image_tag"); ok {
			facts.Tags[image] = "v1"
		}
	}
	if p.Facts, err = json.Marshal(facts); err != nil {
		t.Fatal(err)
	}
	p.Hash = plan.HashOf(p.Content)
	return p
}

// addAuthorities stores the authorities of the cluster, as the step before a play does.
func addAuthorities(t *testing.T, l lab, db adapted) {
	t.Helper()
	authorities, err := pki.NewCluster("demo")
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := authorities.Seal(l.sealer, "u-demo", steps.SecretPKI)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := db.AddSecret(t.Context(), "u-demo", steps.SecretPKI, sealed); err != nil {
		t.Fatal(err)
	}
}

// stallDirector is one of the directors whose clock is put forward.
type stallDirector struct {
	lab       lab
	db        adapted
	address   string // of the database
	name, dir string
	binary    string // instead of ansible-playbook
	lease     time.Duration
	gate      *sync.RWMutex
	ahead     *atomic.Int64
	ran       func(id string) // is told of each step
}

func startStalling(t *testing.T, d stallDirector) *engine.Engine {
	t.Helper()
	runner, err := ansible.New(ansible.Config{Binary: d.binary, StateDir: filepath.Join(d.dir, d.name)})
	if err != nil {
		t.Fatal(err)
	}
	st := stalling{adapted: openPostgres(t, d.address), gate: d.gate, ahead: d.ahead}
	env := steps.Env{
		Installation: steps.Installation{Director: d.db.DirectorID(), Now: st.now},
		Machines:     steps.Machines{Ledger: d.db},
		Clusters:     steps.Clusters{Records: records{d.db}, Keys: steps.Keys{Secrets: d.db, Sealer: d.lab.sealer}},
		Playbooks: steps.Playbooks{
			Player: runner, Trees: func(string) (string, error) { return d.dir, nil },
			LogPath: func(_, step string, attempt int) string {
				return filepath.Join(d.dir, d.name+strconv.Itoa(attempt)+filepath.Base(step))
			},
		},
	}
	e, err := engine.New(t.Context(), engine.Config{
		Director: d.db.DirectorID(), Instance: d.name, Store: st, Lease: d.lease, Now: st.now,
		Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
		Handlers: wrapped(steps.Handlers(env), func(h plan.Handler, ctx context.Context, r plan.Run) error {
			d.ran(r.Step.ID)
			return h.Run(ctx, r)
		}),
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := e.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return e
}
