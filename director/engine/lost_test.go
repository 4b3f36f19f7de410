package engine_test

import (
	"context"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/fence"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
)

// besideLost opens the installation's back end without the hosts that were declared lost.
type besideLost struct{ installation }

func (b besideLost) Backend(ctx context.Context, provider string) (hypervisor.Backend, error) {
	lost, err := b.db.LostHosts(ctx, provider)
	var names []string
	for _, h := range lost {
		names = append(names, h.Host)
	}
	return sim.Open(b.world).Without(names...), err
}

// moving are the installation's handlers with those that need to know of lost hosts.
func (l lab) moving(t *testing.T, s installation) map[string]plan.Handler {
	t.Helper()
	out := l.handlers(t, s)
	env := steps.Env{
		Installation: steps.Installation{Director: s.db.DirectorID(), Now: time.Now},
		Machines: steps.Machines{
			Ledger: s.db, Moves: s.db, Disks: s.db, Backends: besideLost{s}, Nodes: booted{s.world},
		},
		Clusters: steps.Clusters{Records: records{s.db}, Keys: steps.Keys{Secrets: s.db, Sealer: l.sealer}},
	}
	all := steps.Handlers(env)
	for _, kind := range []string{step.VMEnsure, step.VMBoot, step.VMMove, step.VMDelete} {
		out[kind] = all[kind]
	}
	return out
}

// moved plans the move of the first worker to the other host.
func (l lab) moved(t *testing.T, s installation, lost bool) (plan.Plan, string) {
	t.Helper()
	w := l.observe(t, s, "demo")
	w.Installed = &planner.Installed{Generation: 1, Cluster: *w.Cluster.Cluster}
	w.Cluster.Cluster.Workers[0].DataDisk = 1 << 30
	i := slices.IndexFunc(w.Machines, func(m director.Machine) bool { return m.Name == "demo-w-1" })
	host := w.Machines[i].Host
	r := plan.Request{
		Operation: plan.NodeReplace, Nodes: []string{"demo-w-1"}, Host: map[string]string{"h1": "h2", "h2": "h1"}[host],
	}
	w.All = []string{"h1", "h2"}
	if lost {
		r.LostHost, w.Lost, w.Down = host, map[string]bool{host: true}, map[string]string{host: "silence"}
	}
	content, err := planner.Node(w, r)
	return planOf(t, "p1", content, err), host
}

// comeBack brings the host back with all that runs there, and returns the end after two sweeps.
func (s installation) comeBack(t *testing.T, host string) []string {
	t.Helper()
	s.world.SetReachable(host, true)
	sweeps := fence.New(s.db.Store, besideLost{s}, s.db.DirectorID(), time.Now, slog.New(slog.DiscardHandler))
	for range 2 {
		if err := sweeps.Sweep(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	all, err := sim.Open(s.world).List(t.Context(), hypervisor.Filter{Director: s.db.DirectorID()})
	if err != nil {
		t.Fatal(err)
	}
	running := map[string]int{}
	for _, vm := range all {
		if vm.Power == hypervisor.PowerOn {
			running[vm.Name]++
		}
	}
	if diff := cmp.Diff(map[string]int{"demo-master-1": 1, "demo-w-1": 1, "demo-w-2": 1}, running); diff != "" {
		t.Errorf("VMs that run, by name (-want +got):\n%s", diff)
	}
	if left, err := s.db.LostHosts(t.Context(), ""); err != nil || len(left) > 0 {
		t.Errorf("lost are %+v, %v", left, err)
	}
	lines := s.lines(t)
	return slices.DeleteFunc(lines, func(l string) bool { return strings.HasPrefix(l, "disk ") })
}

// A director that dies at any write while a node leaves its host, lost or not, leaves what its successor brings to the
// same end. The old host comes back then, with a VM that was never off: never do two VMs run with one name.
func TestEveryCutOfAMoveComesToTheSameEnd(t *testing.T) {
	t.Parallel()
	for name, lost := range map[string]bool{"to another host": false, "from a lost host": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			l, s := newLab(t), newInstallation(t)
			e := runOn(t, s.db, s.db.DirectorID(), l.handlers(t, s), 8)
			beginReal(t, e, s, l.plan(t, s, "p0", plan.ClusterCreate, "demo"))
			await(t, e, s.db, "p0", ended)
			if err := e.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			p, host := l.moved(t, s, lost)
			if lost {
				s.world.SetReachable(host, false)
				err := s.db.Store.Update(t.Context(), func(tx *store.Tx) error {
					return tx.LoseHost(director.LostHost{
						Provider: "lab", Host: host, By: "ann", Plan: "p1", At: time.Now(),
					})
				})
				if err != nil {
					t.Fatal(err)
				}
			}
			f := &film{adapted: s.db, t: t, dir: t.TempDir(), installation: s, plan: "p1"}
			e = runOn(t, f, s.db.DirectorID(), l.moving(t, s), 1)
			beginReal(t, e, s, p)
			if got := await(t, e, s.db, "p1", ended); got.Status != plan.StatusDone {
				t.Fatalf("the plan is %s: %s", got.Status, got.Message)
			}
			if err := e.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
			want := s.comeBack(t, host)
			if len(f.frames) < 10 {
				t.Fatalf("%d frames are too few", len(f.frames))
			}
			for _, f := range f.frames {
				for _, back := range []bool{false, true} { // the host comes back before the plan continues
					name := f.name
					if back {
						name += " and the host is back"
					}
					world := f.world.Clone()
					t.Run(name, func(t *testing.T) {
						t.Parallel()
						s := installation{db: openStore(t, copyOf(t, f.db)), world: world}
						if back {
							s.world.SetReachable(host, true)
						}
						e := runOn(t, s.db, s.db.DirectorID(), l.moving(t, s), 8)
						if got := await(t, e, s.db, "p1", ended); got.Status != plan.StatusDone && !back {
							t.Fatalf("the plan is %s: %s", got.Status, got.Message)
						}
						got := s.comeBack(t, host)
						if !back {
							if diff := cmp.Diff(want, got); diff != "" {
								t.Errorf("another end (-want +got):\n%s", diff)
							}
						}
					})
				}
			}
		})
	}
}

// copyOf copies a database that nobody has open.
func copyOf(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	out := filepath.Join(t.TempDir(), "db")
	if err := os.WriteFile(out, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return out
}
