package engine_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/step"
)

// pretendCluster is a cluster as its own API shows it. Pretended playbooks change it as the real ones do, and refuse
// what those refuse.
type pretendCluster struct {
	mu    sync.Mutex
	nodes map[string]member
	disks map[string]string // image that the VM of a node was made from
	kept  map[string]string // version that the snapshot of a node's VM has
}

type member struct {
	version  string
	cordoned bool
}

func newPretendCluster() *pretendCluster {
	return &pretendCluster{nodes: map[string]member{}, disks: map[string]string{}, kept: map[string]string{}}
}

func (f *pretendCluster) clone() *pretendCluster {
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return &pretendCluster{nodes: maps.Clone(f.nodes), disks: maps.Clone(f.disks), kept: maps.Clone(f.kept)}
}

// view returns a line for each node, sorted.
func (f *pretendCluster) view() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var out []string
	for name, n := range f.nodes {
		out = append(out, fmt.Sprintf("%s %s cordoned=%t on %s", name, n.version, n.cordoned, f.disks[name]))
	}
	slices.Sort(out)
	return out
}

func (f *pretendCluster) play(r plan.Run) error {
	var p step.PlayParams
	facts, err := step.DecodeFacts(r.Plan.Content)
	if err == nil {
		err = json.Unmarshal(r.Step.Params, &p)
	}
	if err == nil && p.Kubernetes != "" {
		facts, err = facts.At(p.Kubernetes)
	}
	if err != nil {
		return plan.Abort(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, name := range p.Limit {
		n, there := f.nodes[name]
		kind, _, _ := strings.Cut(p.Playbook, "_")
		switch strings.TrimSuffix(kind, ".yml") {
		case "drain", "uncordon", "upgrade":
			if !there {
				return plan.Abort(
					director.Errorf(director.KindNotFound, "fleet", "%s: there is no node %s", p.Playbook, name),
				)
			}
			n.cordoned = kind == "drain" || kind == "upgrade" && n.cordoned
			if kind == "upgrade" {
				n.version = facts.Kubernetes
			}
			f.nodes[name] = n
		case "delete":
			if undrained, _ := p.Vars["delete_undrained"].(bool); there && !n.cordoned && !undrained {
				return plan.Abort(director.Errorf(director.KindConflict, "fleet", "%s was not drained", name))
			}
			delete(f.nodes, name)
		case "rejoin", "scale", "install/control", "install/workers":
			if f.disks[name] == "" {
				return plan.Abort(director.Errorf(director.KindNotFound, "fleet", "%s: %s has no VM", p.Playbook, name))
			}
			if n.version != facts.Kubernetes {
				n = member{version: facts.Kubernetes}
			}
			f.nodes[name] = n
		}
	}
	return nil
}

// handlers returns the lab's handlers with the fleet behind plays, VMs and the look at nodes.
func (f *pretendCluster) handlers(in map[string]plan.Handler) map[string]plan.Handler {
	out := maps.Clone(in)
	out[step.Play] = plan.HandlerFunc(func(_ context.Context, r plan.Run) error { return f.play(r) })
	disk := func(kind string, after func(step.VMParams)) {
		out[kind] = plan.HandlerFunc(func(ctx context.Context, r plan.Run) error {
			if err := in[kind].Run(ctx, r); err != nil {
				return err
			}
			var p step.VMParams
			if err := json.Unmarshal(r.Step.Params, &p); err != nil {
				return err
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			after(p)
			return nil
		})
	}
	disk(step.VMEnsure, func(p step.VMParams) {
		if f.disks[p.Machine.Name] == "" {
			f.disks[p.Machine.Name] = p.ImageName
		}
	})
	gone := func(p step.VMParams) { delete(f.disks, p.Machine.Name) }
	disk(step.VMRemove, gone)
	disk(step.VMDelete, gone)
	node := func(kind string, after func(name string)) {
		out[kind] = plan.HandlerFunc(func(ctx context.Context, r plan.Run) error {
			if err := in[kind].Run(ctx, r); err != nil {
				return err
			}
			f.mu.Lock()
			defer f.mu.Unlock()
			after(r.Step.Node)
			return nil
		})
	}
	node(step.SnapshotTake, func(name string) {
		if f.kept[name] == "" {
			f.kept[name] = f.nodes[name].version
		}
	})
	node(step.SnapshotRevert, func(name string) {
		f.nodes[name] = member{version: f.kept[name], cordoned: f.nodes[name].cordoned}
	})
	node(step.SnapshotDelete, func(name string) { delete(f.kept, name) })
	out[step.NodeReady] = plan.HandlerFunc(func(ctx context.Context, r plan.Run) error {
		var p step.NodeParams
		if err := json.Unmarshal(r.Step.Params, &p); err != nil {
			return err
		}
		f.mu.Lock()
		n, disk := f.nodes[p.Node], f.disks[p.Node]
		f.mu.Unlock()
		if n.version != p.Version || disk == "" || p.Image != "" && p.Image != disk {
			return plan.Abort(
				director.Errorf(
					director.KindConflict, "fleet", "%s runs %q on %q, not %s on %s", p.Node, n.version, disk,
					p.Version, p.Image,
				),
			)
		}
		return in[step.NodeReady].Run(ctx, r)
	})
	return out
}

// upgradeLab is a lab with a cluster of one master and three workers that is to be upgraded by the strategy.
type upgradeLab struct {
	lab
	strategy string
	next     model.Image
}

func newUpgradeLab(t *testing.T, strategy string) upgradeLab {
	t.Helper()
	text := []byte("the next node image")
	sum := sha256.Sum256(text)
	path := filepath.Join(t.TempDir(), "next.img")
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	return upgradeLab{
		newLab(t), strategy,
		model.Image{Source: path, SHA256: hex.EncodeToString(sum[:]), Format: "qcow2", Kubernetes: newVersion},
	}
}

func (y upgradeLab) observe(t *testing.T, s installation) planner.World {
	t.Helper()
	w := y.lab.observe(t, s, "demo")
	w.Cluster.Cluster.Workers[0].Count = 3
	w.Cluster.Cluster.Workers[0].DataDisk = model.GiB
	return w
}

func (y upgradeLab) upgrade(t *testing.T, s installation, id string) plan.Plan {
	t.Helper()
	w := y.observe(t, s)
	was := *w.Cluster.Cluster
	w.Installed = &planner.Installed{Generation: 1, Cluster: was}
	w.Release.Release = &model.Release{Bundle: "/next", Kubernetes: newVersion}
	w.Cluster.Cluster.Release, w.Cluster.Cluster.Maintenance.Strategy = "next", y.strategy
	switch y.strategy {
	case model.UpgradeInPlace:
	case recreated:
		w.Cluster.Cluster.Maintenance.Strategy = model.UpgradeInPlace
		w.Cluster.Cluster.Maintenance.Rollback = model.RollbackRecreate
	default:
		w.Cluster.Cluster.Image, w.Image.Image = "next", &y.next
	}
	content, err := planner.Upgrade(w, plan.Request{Operation: plan.ClusterUpgrade})
	return planOf(t, id, content, err)
}

// created returns a installation in which the cluster runs the old version.
func (y upgradeLab) created(t *testing.T) installation {
	t.Helper()
	s := newInstallation(t)
	s.fleet = newPretendCluster()
	e := runOn(t, s.db, s.db.DirectorID(), y.handlers(t, s), 8)
	content, err := planner.Create(y.observe(t, s))
	beginReal(t, e, s, planOf(t, "p0", content, err))
	if got := await(t, e, s.db, "p0", ended); got.Status != plan.StatusDone {
		t.Fatalf("the creation is %s: %s", got.Status, got.Message)
	}
	if err := e.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if got := s.fleet.view(); len(got) != 4 {
		t.Fatalf("the cluster has %v", got)
	}
	return s
}

// copy returns a installation as s is now.
func (s installation) copy(t *testing.T) installation {
	t.Helper()
	path := filepath.Join(t.TempDir(), "db")
	if _, err := s.db.SQL().Exec("VACUUM INTO ?", path); err != nil {
		t.Fatal(err)
	}
	return installation{db: openStore(t, path), world: s.world.Clone(), fleet: s.fleet.clone()}
}

func (y upgradeLab) handlers(t *testing.T, s installation) map[string]plan.Handler {
	t.Helper()
	return s.fleet.handlers(y.lab.handlers(t, s))
}

// failing lets the named steps of p1 fail for good, before their act or after it, until they are mended.
type failing struct {
	mu    sync.Mutex
	steps map[string]bool
	after bool
}

func (f *failing) mend(step string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.steps, step)
}

func (f *failing) handlers(in map[string]plan.Handler) map[string]plan.Handler {
	return wrapped(in, func(h plan.Handler, ctx context.Context, r plan.Run) error {
		f.mu.Lock()
		fails := f.steps[r.Step.ID] && r.Plan.ID == "p1"
		f.mu.Unlock()
		if fails && f.after {
			if err := h.Run(ctx, r); err != nil {
				return err
			}
		}
		if fails {
			return plan.Abort(director.Errorf(director.KindConflict, "test", "the disk is broken"))
		}
		return h.Run(ctx, r)
	})
}
