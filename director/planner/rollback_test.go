package planner

import (
	"encoding/json"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// former lets w have the documents of what its members run, and of the image that their VMs were made from.
func former(w *World) {
	w.Releases, w.Images = map[string]Release{}, map[string]NodeImage{}
	old := model.Image{SHA256: strings.Repeat("ab", 32), Kubernetes: "v1.37.1", Format: "qcow2", Source: "/images/old"}
	for i := range w.Machines {
		m := &w.Machines[i]
		m.Image = old.NameOnProviders("old")
		w.Releases[m.Kubernetes] = Release{
			Name:    "r-" + m.Kubernetes,
			Release: model.Release{Kubernetes: m.Kubernetes, Bundle: "/bundles/" + m.Kubernetes},
			Bundle: Bundle{
				Digest: "d-" + m.Kubernetes, ImageTags: map[string]string{"pause": "v1"},
				Programs: map[string]string{"kubelet": "s-" + m.Kubernetes},
			},
		}
		w.Images[m.Image] = NodeImage{Document: "old", Image: old}
	}
}

// backOf returns the rollback steps of a plan by what they undo, each as "id <- needs: undoes".
func backOf(c plan.Content) []string {
	var out []string
	for _, s := range c.Steps {
		if s.Back() {
			out = append(out, s.ID+" <- "+strings.Join(s.Needs, " ")+": "+strings.Join(s.Undoes, " "))
		}
	}
	return out
}

func TestAWorkerThatFailsItsUpgradeHasAWayBack(t *testing.T) {
	t.Parallel()
	const name = "demo-worker-1"
	upgraded := "upgrade/" + name + " node.ready/" + name
	remade := "delete/" + name + " node.left/" + name + " vm.remove/" + name + " vm.ensure/" + name + " vm.boot/" +
		name + " join/" + name + " node.ready/" + name
	anew := func(touched string) []string {
		return []string{
			"vm.remove-undo/" + name + " <- : " + touched,
			"vm.ensure-undo/" + name + " <- vm.remove-undo/" + name + ": " + touched,
			"vm.boot-undo/" + name + " <- vm.ensure-undo/" + name + ": " + touched,
			"join-undo/" + name + " <- vm.boot-undo/" + name + ": " + touched,
			"node.ready-undo/" + name + " <- join-undo/" + name + ": " + touched,
			"uncordon-undo/" + name + " <- node.ready-undo/" + name + ": drain/" + name + " " + touched,
		}
	}
	const fresh = "demo-worker-2"
	joined := "join/" + fresh + " node.ready/" + fresh + " drain/" + name
	for strategy, want := range map[string][]string{
		model.UpgradeInPlace:      anew(upgraded),
		model.UpgradeReconstitute: anew(remade),
		model.UpgradeReplace: {
			"uncordon-undo/" + name + " <- : drain/" + name,
			"drain-undo/" + fresh + " <- uncordon-undo/" + name + ": drain/" + name,
			"delete-undo/" + fresh + " <- drain-undo/" + fresh + ": " + joined,
			"vm.delete-undo/" + fresh + " <- delete-undo/" + fresh + ": vm.ensure/" + fresh + " vm.boot/" + fresh +
				" " + joined,
		},
	} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			w := running(t, 3, 1, v)
			former(&w)
			release(&w, "v1.38.0")
			w.Cluster.Cluster.Maintenance.Strategy = strategy
			w.Cluster.Cluster.Maintenance.Rollback = model.RollbackRecreate
			c, err := Apply(w, plan.Request{})
			ids(t, c, err)
			if diff := cmp.Diff(want, backOf(c)); diff != "" {
				t.Error(diff)
			}
			for _, s := range c.Steps {
				if s.Back() && (s.Node != name || s.Window != "workers" || s.Safety != safeBack || s.Keep) {
					t.Errorf("%s is not of its node's group, or does not say what holds: %+v", s.ID, s)
				}
				if strings.Contains(s.ID, "master") && (s.Back() || s.Kind == step.VMEnsure && !s.Keep) {
					t.Errorf("%s takes a master back", s.ID)
				}
			}
			ensured := slices.ContainsFunc(c.Steps, func(s plan.Step) bool { return s.ID == "image.ensure/old" })
			if ensured != (strategy != model.UpgradeReplace) {
				t.Errorf("the former image is brought before anything is touched: %t", ensured)
			}
			said := slices.ContainsFunc(c.Approvals, func(a string) bool {
				return strings.HasPrefix(a, "should the upgrade of a worker fail")
			})
			if said != (strategy == model.UpgradeInPlace) || len(c.Warnings) > 0 {
				t.Errorf("it asks for %v and warns of %v", c.Approvals, c.Warnings)
			}
		})
	}
}

// The worker needs no documents of what it ran before.
func TestAWorkerGoesBackToItsSnapshot(t *testing.T) {
	t.Parallel()
	const name = "demo-worker-1"
	w := running(t, 3, 1, v)
	release(&w, "v1.38.0")
	w.Cluster.Cluster.Maintenance.Rollback = model.RollbackSnapshot
	c, err := Apply(w, plan.Request{})
	all := ids(t, c, err)
	at := func(id string) int { return slices.Index(all, id+"/"+name) }
	if take := at(step.SnapshotTake); take < at("drain") || take > at("upgrade") ||
		at(step.SnapshotDelete) < at("uncordon") {
		t.Errorf("the snapshot is not there during the upgrade alone: %v", all)
	}
	touched := "upgrade/" + name + " node.ready/" + name
	everything := "drain/" + name + " snapshot.take/" + name + " " + touched
	want := []string{
		"snapshot.revert-undo/" + name + " <- : " + touched,
		"vm.boot-undo/" + name + " <- snapshot.revert-undo/" + name + ": " + touched,
		"node.ready-undo/" + name + " <- vm.boot-undo/" + name + ": " + touched,
		"uncordon-undo/" + name + " <- node.ready-undo/" + name + ": " + everything,
		"snapshot.delete-undo/" + name + " <- uncordon-undo/" + name + ": " + everything,
	}
	if diff := cmp.Diff(want, backOf(c)); diff != "" {
		t.Error(diff)
	}
	for _, s := range c.Steps {
		var ready step.NodeParams
		if s.ID == "node.ready-undo/"+name &&
			(json.Unmarshal(s.Params, &ready) != nil || ready.Version != v || ready.Image != "") {
			t.Errorf("it waits for %+v", ready)
		}
		if strings.HasPrefix(s.Kind, "snapshot.") && s.Node != name {
			t.Errorf("%s is not of the worker", s.ID)
		}
	}
	if len(c.Warnings)+len(c.Approvals) > 0 {
		t.Errorf("it asks for %v and warns of %v", c.Approvals, c.Warnings)
	}
}

func TestTheWayBackLeadsToWhatTheWorkerRan(t *testing.T) {
	t.Parallel()
	w := running(t, 3, 2, v)
	former(&w)
	release(&w, "v1.38.0")
	w.Cluster.Cluster.Maintenance.Strategy = model.UpgradeReconstitute
	c, err := Apply(w, plan.Request{})
	ids(t, c, err)
	params := func(id string, into any) {
		t.Helper()
		i := slices.IndexFunc(c.Steps, func(s plan.Step) bool { return s.ID == id })
		if i < 0 {
			t.Fatalf("there is no %s", id)
		}
		if err := json.Unmarshal(c.Steps[i].Params, into); err != nil {
			t.Fatal(err)
		}
	}
	var there, back step.VMParams
	params("vm.ensure/demo-worker-2", &there)
	params("vm.ensure-undo/demo-worker-2", &back)
	if back.ImageName != "old-abababababab" || there.ImageName == back.ImageName ||
		back.Machine.ID != there.Machine.ID || back.DataDisk != there.DataDisk {
		t.Errorf(
			"the VM is recreated from %s as %s; forward from %s as %s", back.ImageName, back.Machine.ID,
			there.ImageName, there.Machine.ID,
		)
	}
	var ready step.NodeParams
	params("node.ready-undo/demo-worker-2", &ready)
	if ready.Version != v || ready.Image != "old-abababababab" || ready.State != director.MachinePresent {
		t.Errorf("it waits for %+v", ready)
	}
	var join step.PlayParams
	params("join-undo/demo-worker-2", &join)
	facts, err := step.DecodeFacts(c)
	if err != nil {
		t.Fatal(err)
	}
	old, err := facts.At(join.Kubernetes)
	if err != nil || join.Playbook != "rejoin_worker.yml" || old.Kubernetes != v || old.Digest != "d-"+v ||
		old.Programs["kubelet"] != "s-"+v || facts.Kubernetes != "v1.38.0" {
		t.Errorf("it joins by %+v with %+v: %v", join, old, err)
	}
	var was step.VMParams // the plan itself is not moved by its rollback
	params("vm.ensure/demo-worker-1", &was)
	if was.ImageName != there.ImageName {
		t.Errorf("one worker is made from %s, the next from %s", was.ImageName, there.ImageName)
	}
}

// A new node image of the same release has a rollback too: at the same version.
func TestAnImageUpgradeHasAWayBack(t *testing.T) {
	t.Parallel()
	w := running(t, 1, 1, v)
	former(&w)
	delete(w.Releases, v) // the document's own
	w.Cluster.Cluster.Maintenance.Strategy = model.UpgradeReconstitute
	w.Release.Release = &model.Release{Kubernetes: v, Bundle: "/b"}
	w.Machines[0].Image = w.image()
	c, err := Upgrade(w, plan.Request{})
	ids(t, c, err)
	if n := len(backOf(c)); n != 6 {
		t.Errorf("%d steps back, want 6", n)
	}
}

func TestAMissingRollbackIsSaid(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*World)
		want   string
	}{
		"no release": {
			func(w *World) { w.Releases = nil },
			"should the upgrade of demo-worker-1, demo-worker-2 fail, a person has to mend it: it cannot be rolled " +
				"back by itself, since no Release document with a bundle is of v1.37.1",
		},
		"no image":   {func(w *World) { w.Images = nil }, "since no Image document is of old-abababababab"},
		"not wanted": {func(w *World) { w.Cluster.Cluster.Maintenance.KeepFailed = true }, ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := running(t, 1, 2, v)
			former(&w)
			release(&w, "v1.38.0")
			w.Cluster.Cluster.Maintenance.Rollback = model.RollbackRecreate
			tt.change(&w)
			c, err := Apply(w, plan.Request{})
			ids(t, c, err)
			if got := strings.Join(c.Warnings, "\n"); tt.want == "" && got != "" || !strings.Contains(got, tt.want) {
				t.Errorf("it warns of %q, want %q", got, tt.want)
			}
			if got := backOf(c); len(got) > 0 {
				t.Errorf("it has a rollback: %v", got)
			}
		})
	}
}

// A replaced master is gone when the next ones and the workers are worked on: what is done on the cluster is done on
// one that is there.
func TestWorkGoesThroughMastersThatAreThere(t *testing.T) {
	t.Parallel()
	w := running(t, 3, 1, v)
	release(&w, "v1.38.0")
	w.Cluster.Cluster.Maintenance.Strategy = model.UpgradeReplace
	w.Cluster.Cluster.API.VIP = netip.MustParseAddr("10.88.0.5")
	c, err := Apply(w, plan.Request{})
	ids(t, c, err)
	gone := map[string]bool{}
	for _, s := range c.Steps {
		if s.Kind == step.VMDelete {
			gone[strings.TrimPrefix(s.ID, "vm.delete/")] = true
			continue
		}
		var p step.PlayParams
		if s.Kind == step.Play {
			if err := json.Unmarshal(s.Params, &p); err != nil {
				t.Fatal(err)
			}
		}
		if master, _ := p.Vars["acting_master"].(string); gone[master] {
			t.Errorf("%s works through %s, which is gone by then", s.ID, master)
		}
	}
	if len(gone) != 4 {
		t.Errorf("%v are replaced, want 3 masters and a worker", gone)
	}
}
