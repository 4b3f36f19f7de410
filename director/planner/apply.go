package planner

import (
	"fmt"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
)

// Apply returns the plan that brings the cluster to its document, whatever that takes: its creation, an upgrade, other
// numbers of nodes, or nothing. A plan without steps means that nothing is to be done. Errors: conflict if the document
// asks for what a running cluster cannot become, or for an upgrade and other numbers at once.
func Apply(w World, r plan.Request) (plan.Content, error) {
	if w.Installed == nil {
		c, err := Create(w)
		c.Request = r
		return c, err
	}
	if err := w.frozen(); err != nil {
		return plan.Content{}, err
	}
	upgrade := w.upgrades().outdated()
	diff, err := w.compare(r.Nodes)
	if err != nil {
		return plan.Content{}, err
	}
	scale := len(diff.add)+len(diff.remove) > 0
	back := 0 // nodes that were taken out for a time: they come back after an upgrade, at its release
	for _, m := range diff.add {
		if Out(m.Machine) {
			back++
		}
	}
	if len(r.AdoptDisks) > 0 && (len(upgrade) > 0 || !scale) {
		return plan.Content{}, conflict(
			"planner.apply",
			"this plan of cluster "+w.Cluster.Metadata.Name+" adds no node that could take over a disk",
			"upgrade first, then add the node with its disk",
		)
	}
	switch {
	case len(upgrade) > 0 && len(diff.add)-back+len(diff.remove) > 0 &&
		w.Installed.Cluster.Release != w.Cluster.Cluster.Release:
		return plan.Content{}, conflict("planner.apply", fmt.Sprintf(
			"the document of cluster %s asks for another release and for other nodes at once", w.Cluster.Metadata.Name,
		),
			"apply one after the other: the numbers first, then the release")
	case len(upgrade) > 0:
		return Upgrade(w, r)
	case scale:
		return Scale(w, r)
	}
	return w.follow(r, diff.keep), nil
}

// follow returns the plan for what changed besides the nodes that there are.
func (w World) follow(r plan.Request, keep []sized) plan.Content {
	d := w.draft("")
	d.Request = r
	if w.rediscovers() {
		d.Operation = plan.ClusterConsul
		return d.consul().consulPlan(keep, whatChanged)
	}
	if (outerRegistries{w}).differ() {
		d.Operation = plan.ClusterRegistries
		return d.registriesPlan(keep)
	}
	// what changed concerns later work alone, and is only written down
	if w.Installed.Generation != w.Cluster.Generation {
		d.Operation = plan.ClusterScale
		d.Summary = "Record the new document of cluster " + d.Cluster + ": no node is touched."
		masters := mastersOf(keep)
		d.record(w.params().clusterParams(w.endpoint(masters), keep))
		d.Facts = encode(w.facts(keep))
		return d.done()
	}
	d.Operation = plan.ClusterScale
	d.Summary = "Cluster " + d.Cluster + " is as its model says; nothing is to be done."
	return *d.Content
}

// frozen refuses what cannot be changed on a running cluster.
func (w World) frozen() error {
	was, is := w.Installed.Cluster, *w.Cluster.Cluster
	// These may differ: they are what plans bring about, or concern what is made from now on.
	is.Masters, is.Workers, is.Release, is.Image, is.Maintenance = was.Masters, was.Workers, was.Release, was.Image,
		was.Maintenance
	is.Project, is.Backup, is.Discovery, is.Certificates = was.Project, was.Backup, was.Discovery, was.Certificates
	is.Registries = was.Registries
	render := func(c model.Cluster) string {
		b, err := model.Encode(model.Document{Kind: model.KindCluster, Metadata: w.Cluster.Metadata, Cluster: &c})
		if err != nil {
			return err.Error()
		}
		return string(b)
	}
	if diff := model.Diff(render(was), render(is)); diff != "" {
		return conflict("planner.apply", "cluster "+w.Cluster.Metadata.Name+
			" runs, and this of its document cannot be changed on a running cluster:\n"+diff,
			"take the change back with apply; numbers and sizes of nodes, release, image, maintenance and "+
				"project can be changed")
	}
	if was.Masters.Count == 1 && is.Masters.Count != w.Cluster.Cluster.Masters.Count && !was.API.VIP.IsValid() {
		return &director.Error{
			Kind: director.KindConflict, Op: "planner.apply",
			Msg: "cluster " + w.Cluster.Metadata.Name +
				" was made without a virtual address, so it cannot have more masters",
			Hint:   "set spec.masters.count to 1 again; a cluster that is to grow is created with spec.api.vip",
			Fields: []director.Field{{Path: "spec.masters.count", Msg: "needs spec.api.vip from the creation on"}},
		}
	}
	return nil
}
