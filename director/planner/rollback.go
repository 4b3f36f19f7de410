package planner

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// The plan of an upgrade rolls a worker that fails back to what it ran before, by steps that it has from the beginning.
// It does not roll masters back: an old etcd or API server may not be able to read what a new one has written, and a
// second change to a quorum that is one member short is a person's decision.
//
// A worker that was upgraded in place goes back to a snapshot of its root disk, unless the document wants it recreated.
// Every other worker that was touched is recreated: the VM is made from the image that it was made from before, gets
// its data disk, and joins at the version that it ran. Installing the old kubelet again would do where nothing but the
// kubelet has changed. But a failed upgrade may have left anything: a full disk, a runtime that hangs, a VM that does
// not answer. The root disk of before is right in each case, and so is a new one. A kubelet that is one minor behind
// its masters is within Kubernetes' skew policy.

// Release is a release with what its bundle holds.
type Release struct {
	Name string
	model.Release
	Bundle Bundle
}

// NodeImage is an image with the name of its document.
type NodeImage struct {
	Document string
	model.Image
}

// rollback is what a worker is rolled back to: a snapshot of its root disk, or a VM made of the image at the release.
type rollback struct {
	snapshot bool
	release  Release
	image    NodeImage
}

// rollbackOf returns what m is rolled back to, or why it cannot be.
func (w worldUpgrades) rollbackOf(m sized) (rollback, string) {
	out := rollback{release: Release{w.Cluster.Cluster.Release, *w.Release.Release, w.Bundle}}
	if m.Kubernetes != w.Release.Release.Kubernetes {
		var ok bool
		if out.release, ok = w.Releases[m.Kubernetes]; !ok {
			return rollback{}, "no Release document with a bundle is of " + m.Kubernetes
		}
	}
	var ok bool
	if out.image, ok = w.Images[m.Image]; !ok {
		return rollback{}, "no Image document is of " + m.Image
	}
	return out, ""
}

// rollbacks returns what the workers are rolled back to if they fail, by name. It warns of those that cannot be.
func (d upgradeDraft) rollbacks(workers []sized) map[string]rollback {
	out := map[string]rollback{}
	if d.w.Cluster.Cluster.Maintenance.KeepFailed {
		return out
	}
	var reasons []string
	stuck := map[string][]string{}
	recreated := 0
	for _, m := range workers {
		if d.bySnapshot(m) {
			out[m.Name] = rollback{snapshot: true}
			continue
		}
		to, why := d.w.upgrades().rollbackOf(m)
		if why == "" {
			out[m.Name] = to
			if d.strategy(m) == model.UpgradeInPlace {
				recreated++
			}
			continue
		}
		if stuck[why] == nil {
			reasons = append(reasons, why)
		}
		stuck[why] = append(stuck[why], m.Name)
	}
	for _, why := range reasons {
		d.warn(
			fmt.Sprintf(
				"should the upgrade of %s fail, a person has to mend it: it cannot be rolled back by itself, since %s",
				strings.Join(stuck[why], ", "), why,
			),
		)
	}
	if recreated > 0 {
		d.Approvals = append(
			d.Approvals,
			"should the upgrade of a worker fail, it recreates its VM from the image that it was made from: what "+
				"is on its root disk is lost then",
		)
	}
	return out
}

// bySnapshot reports whether a snapshot is what worker m is rolled back to.
func (d upgradeDraft) bySnapshot(m sized) bool {
	return d.strategy(m) == model.UpgradeInPlace &&
		d.w.Cluster.Cluster.Maintenance.Rollback != model.RollbackRecreate
}

// formerImages brings the images that workers are rolled back to before anything is touched, and returns the steps.
func (d upgradeDraft) formerImages(workers []sized, rollbacks map[string]rollback) []string {
	var out []string
	for _, m := range workers {
		to, ok := rollbacks[m.Name]
		if !ok || to.snapshot || d.strategy(m) == model.UpgradeReplace {
			continue
		}
		former := d.in(d.w.upgrades().rolledBack(to))
		if former.w.image() == d.w.image() {
			continue
		}
		id := step.ImageEnsure + "/" + to.image.Document
		if !slices.ContainsFunc(d.Steps, func(s plan.Step) bool { return s.ID == id }) {
			former.imageEnsure()
		}
		out = append(out, id)
	}
	return unique(out)
}

// rolledBack returns the world in which the cluster's document asks for what the rollback leads to.
func (w worldUpgrades) rolledBack(to rollback) World {
	c := *w.Cluster.Cluster
	c.Release, c.Image = to.release.Name, to.image.Document
	w.Cluster.Cluster = &c
	w.Release.Release, w.Bundle = &to.release.Release, to.release.Bundle
	w.Image.Image = &to.image.Image
	return w.World
}

// toUndo returns the ids of what an upgrade of a worker does, from the step with the index on: what leaves its VM as it
// is, and what does not. It leaves out what comes after the gate.
func (d upgradeDraft) toUndo(first int) (drained, touched []string) {
	for _, s := range d.Steps[first:] {
		switch {
		case s.Kind == step.NetworkEnsure: // of all nodes
		case s.Class() == "drain", s.Kind == step.SnapshotTake:
			drained = append(drained, s.ID)
		case s.Class() != "uncordon" && s.Kind != step.SnapshotDelete: // then it is through its gate
			touched = append(touched, s.ID)
		}
	}
	return drained, touched
}

// snapshot adds a step of the kind that takes, reverts or deletes the snapshot of the plan.
func (d upgradeDraft) snapshot(kind string, m sized, needs []string, in group) string {
	titles := map[string]string{
		step.SnapshotTake: "Take a snapshot of ", step.SnapshotRevert: "Revert to the snapshot of ",
		step.SnapshotDelete: "Delete the snapshot of ",
	}
	effects := map[string]plan.Effect{
		step.SnapshotTake: {
			Verb: "create", Object: "volume", Name: m.Name + " snapshot",
			Detail: "of the root disk; deleted when the worker is ready",
		},
		step.SnapshotRevert: {
			Verb: "change", Object: "volume", Name: m.Name + " root", Detail: "as it was before the upgrade",
		},
		step.SnapshotDelete: {Verb: "delete", Object: "volume", Name: m.Name + " snapshot"},
	}
	s := in.step(kind, m.Name, titles[kind]+m.Name)
	s.Needs, s.Params = needs, encode(step.SnapshotParams{Machine: plan.SpecOf(m.Machine)})
	s.Effects = []plan.Effect{effects[kind]}
	s.Attempts, s.Timeout, s.Estimate = 5, 30*time.Minute, 5*time.Second
	return d.add(s)
}

// revert adds the steps that bring worker m back to its snapshot after those of its upgrade, of which the first has the
// given index.
func (d upgradeDraft) revert(m sized, masters []sized, first int, in group) {
	drained, touched := d.toUndo(first)
	w := d.w
	release := *w.Release.Release
	release.Kubernetes = m.Kubernetes
	w.Release.Release = &release
	former := d.in(w)
	in.undoes = touched
	last := d.snapshot(step.SnapshotRevert, m, nil, in)
	last = former.booted(m, encode(w.params().vmParams(m)), []string{last}, in)
	last = former.ready(m, masters, "", []string{last}, in)
	in.undoes = append(slices.Clone(drained), touched...)
	last = former.uncordon(m, []string{last}, in)
	d.snapshot(step.SnapshotDelete, m, []string{last}, in)
}

// rollBack adds the steps that recreate worker m as it was after those of its upgrade, of which the first has the
// given index.
func (d upgradeDraft) rollBack(m sized, masters []sized, to rollback, first int, in group) {
	drained, touched := d.toUndo(first)
	former := d.in(d.w.upgrades().rolledBack(to))
	in.undoes = touched
	last := former.boot(m, []string{former.removeVM(m, nil, in)}, in)
	join := playbook{
		name: "rejoin_worker", id: "join", title: "Bring " + m.Name + " back at " + m.Kubernetes,
		limit: []string{m.Name}, vars: map[string]any{"acting_master": d.acting(m.Name)},
		estimate: joinTime, effects: []plan.Effect{{Verb: "create", Object: "api", Name: "node/" + m.Name}},
	}
	if m.Kubernetes != d.w.Release.Release.Kubernetes {
		join.kubernetes = m.Kubernetes
	}
	last = former.play(join, []string{last}, in)
	last = former.ready(m, masters, former.w.image(), []string{last}, in)
	in.undoes = append(drained, touched...)
	former.uncordon(m, []string{last}, in)
}

// rollBackSwap adds the steps that roll a replacement back after its own, of which the first has the given index: the
// old worker is used again, and its successor goes. Nothing rolls back once the old one is being taken out: its
// successor is through its gate by then, and does the work.
func (d upgradeDraft) rollBackSwap(m, successor sized, r plan.Request, first int, in group) {
	var drained, joined, all []string
	for _, s := range d.Steps[first:] {
		class := s.Class()
		if class == "delete" {
			break
		}
		if s.Kind == step.NetworkEnsure { // of all nodes
			continue
		}
		all = append(all, s.ID)
		switch class {
		case "drain":
			drained = append(drained, s.ID)
			joined = append(joined, s.ID)
		case "join", step.NodeReady:
			joined = append(joined, s.ID)
		}
	}
	var last []string
	if len(drained) > 0 { // by then the successor was ready, and pods may run there
		in.undoes = drained
		last = []string{d.drain(successor, r.Drain, []string{d.uncordon(m, nil, in)}, in)}
	}
	in.undoes = joined
	last = []string{d.play(playbook{
		name: "delete_worker", id: "delete", title: "Take " + successor.Name + " out of the cluster",
		limit: []string{successor.Name}, estimate: deleteTime,
		vars: map[string]any{
			"acting_master": d.acting(successor.Name), "node_reachable": false, "delete_undrained": true,
		},
		effects: []plan.Effect{{Verb: "delete", Object: "api", Name: "node/" + successor.Name}},
	}, last, in)}
	in.undoes = all
	d.deleteVM(successor, last, in)
}
