package planner

import (
	"fmt"
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// A worker whose upgrade fails is put back to what it ran before, by steps that the plan has from the beginning.
// Masters are not: what a new API server or a new etcd has written an old one may not be able to read, and a second
// change to a quorum that is one member short is a person's decision.
//
// Whatever the strategy, the way back of a worker that was touched is to make its VM anew from the image that it was
// made from, with its data disk, and to join it at the version that it ran. Putting the old kubelet back would do where
// nothing but the kubelet has changed; but nobody knows what else a failed upgrade has left: a full disk, a runtime
// that hangs, a VM that does not answer. A new root disk is right whatever it was. A kubelet that is one minor behind
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

// way is what a worker is put back to.
type way struct {
	release Release // that it runs
	image   NodeImage
}

// wayOf returns what m is put back to, or why it cannot be.
func (w World) wayOf(m sized) (way, string) {
	out := way{release: Release{w.Cluster.Cluster.Release, *w.Release.Release, w.Bundle}}
	if m.Kubernetes != w.Release.Release.Kubernetes {
		var ok bool
		if out.release, ok = w.Releases[m.Kubernetes]; !ok {
			return way{}, "no Release document with a bundle is of " + m.Kubernetes
		}
	}
	var ok bool
	if out.image, ok = w.Images[m.Image]; !ok {
		return way{}, "no Image document is of " + m.Image
	}
	return out, ""
}

// ways returns what the workers are put back to if they fail, by name, and says what cannot be.
func (d *draft) ways(workers []sized) map[string]way {
	out := map[string]way{}
	if d.w.Cluster.Cluster.Maintenance.KeepFailed {
		return out
	}
	var reasons []string
	stuck := map[string][]string{}
	anew := 0
	for _, m := range workers {
		w, why := d.w.wayOf(m)
		if why == "" {
			out[m.Name] = w
			if d.strategy(m) == model.UpgradeInPlace {
				anew++
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
				"should the upgrade of %s fail, a person has to mend it: it cannot be put back by itself, since %s",
				strings.Join(stuck[why], ", "), why,
			),
		)
	}
	if anew > 0 {
		d.Approvals = append(
			d.Approvals,
			"should the upgrade of a worker fail, it makes its VM anew from the image that it was made from: what "+
				"is on its root disk is lost then",
		)
	}
	return out
}

// formerImages makes sure that the images that workers are put back to are there before anything is touched, and
// returns the steps.
func (d *draft) formerImages(workers []sized, ways map[string]way) []string {
	var out []string
	for _, m := range workers {
		way, ok := ways[m.Name]
		if !ok || d.strategy(m) == model.UpgradeReplace || d.w.before(way).image() == d.w.image() {
			continue
		}
		out = append(out, step.ImageEnsure+"/"+way.image.Document)
		if slices.ContainsFunc(d.Steps, func(s plan.Step) bool { return s.ID == out[len(out)-1] }) {
			continue
		}
		was := d.w
		d.w = d.w.before(way)
		d.imageEnsure()
		d.w = was
	}
	return unique(out)
}

// before returns the world in which the documents are of what the way leads to.
func (w World) before(to way) World {
	c := *w.Cluster.Cluster
	c.Release, c.Image = to.release.Name, to.image.Document
	w.Cluster.Cluster = &c
	w.Release.Release, w.Bundle = &to.release.Release, to.release.Bundle
	w.Image.Image = &to.image.Image
	return w
}

// putBack adds the way back of worker m after the steps of its upgrade, which begin at from. like is what its group has
// in common.
func (d *draft) putBack(m sized, masters []sized, to way, from int, like plan.Step) {
	var drained, touched []string
	for _, s := range d.Steps[from:] {
		switch {
		case s.Kind == step.NetworkEnsure: // of all nodes
		case s.Class() == "drain":
			drained = append(drained, s.ID)
		case s.Class() != "uncordon": // then it is through its gate
			touched = append(touched, s.ID)
		}
	}
	target := d.w.Release.Release.Kubernetes
	was := d.w
	d.w = d.w.before(to)
	defer func() { d.w = was }()
	like.Undoes = touched
	last := d.boot(m, []string{d.removeVM(m, nil, like)}, like)
	join := playbook{
		name: "rejoin_worker", id: "join", title: "Bring " + m.Name + " back at " + m.Kubernetes,
		limit: []string{m.Name}, vars: map[string]any{"acting_master": d.acting(m.Name)},
		estimate: joinTime, effects: []plan.Effect{{Verb: "create", Object: "api", Name: "node/" + m.Name}},
	}
	if m.Kubernetes != target {
		join.kubernetes = m.Kubernetes
	}
	last = d.play(join, []string{last}, like)
	last = d.ready(m, masters, d.w.image(), []string{last}, like)
	like.Undoes = append(drained, touched...)
	d.uncordon(m, []string{last}, like)
}

// takeBack adds the way back of a replacement after its steps, which begin at from: the old worker is used again, and
// its successor goes. Once the old one is being taken out there is no way back, and none is needed: its successor is
// through its gate and does the work.
func (d *draft) takeBack(m, fresh sized, r plan.Request, from int, like plan.Step) {
	var drained, joined, all []string
	for _, s := range d.Steps[from:] {
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
		like.Undoes = drained
		last = []string{d.drain(fresh, r.Drain, []string{d.uncordon(m, nil, like)}, like)}
	}
	like.Undoes = joined
	last = []string{d.play(playbook{
		name: "delete_worker", id: "delete", title: "Take " + fresh.Name + " out of the cluster",
		limit: []string{fresh.Name}, estimate: deleteTime,
		vars: map[string]any{
			"acting_master": d.acting(fresh.Name), "node_reachable": false, "delete_undrained": true,
		},
		effects: []plan.Effect{{Verb: "delete", Object: "api", Name: "node/" + fresh.Name}},
	}, last, like)}
	like.Undoes = all
	d.deleteVM(fresh, last, like)
}
