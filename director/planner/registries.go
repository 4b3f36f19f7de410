package planner

import (
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// Registry is an outer registry with the revision of its credentials; 0 if it has none, or if they are not there.
type Registry struct {
	model.Stored
	Revision int64
}

// outerRegistries are the outer registries that nodes of the cluster are told of.
type outerRegistries struct{ World }

// list is what nodes are told of outer registries. A drill pulls from none.
func (w outerRegistries) list() []step.Registry {
	if _, drill := director.DrillOf(w.Cluster.UID); drill {
		return nil
	}
	var out []step.Registry
	for _, r := range w.Registries {
		out = append(out, step.Registry{Name: r.Metadata.Name, Spec: *r.Registry, Revision: r.Revision})
	}
	slices.SortFunc(out, func(a, b step.Registry) int { return strings.Compare(a.Name, b.Name) })
	return out
}

// told is the digest of what the nodes were told of.
func (w outerRegistries) told() string {
	if w.Installed == nil {
		return ""
	}
	return w.Installed.Registries
}

// differ tells whether nodes are to be told of other registries than they were.
func (w outerRegistries) differ() bool { return step.DigestOf(w.list()) != w.told() }

// recordedIn is what is recorded of a cluster whose nodes the plan has told.
func (w outerRegistries) recordedIn(p step.ClusterParams) step.ClusterParams {
	p.Registries = step.DigestOf(w.list())
	return p
}

// tellRegistries tells the nodes of a cluster that runs of its registries if these are others, and returns the last
// steps. Nodes that the plan prepares are told then.
func (d *draft) tellRegistries(needs []string) []string {
	for _, r := range d.w.Registries {
		if account := r.Registry.Credentials; account != "" && r.Revision == 0 {
			d.warn("Registry/" + r.Metadata.Name + " names credentials " + account + ", and there are none: " +
				"set them before the start, with directorctl provider credentials set " + account)
		}
	}
	if d.w.Installed == nil || !(outerRegistries{d.w}).differ() {
		return needs
	}
	return d.playMembers(playbook{
		name: "registry_trust", subject: d.Cluster, title: "Tell the nodes of the outer registries",
		effects: []plan.Effect{{
			Verb: "change", Object: "file", Name: d.Cluster,
			Detail: "where containerd pulls images of other hosts from",
		}},
		estimate: 20 * time.Second,
	}, "it is told of the outer registries when it rejoins", needs)
}

// registriesPlan is the plan for the outer registries alone.
func (d *draft) registriesPlan(machines []sized) plan.Content {
	w := d.w
	needs := d.tellRegistries(nil)
	params := w.params().clusterParams(w.endpoint(mastersOf(machines)), machines)
	d.record(outerRegistries{w}.recordedIn(params), needs...)
	d.Facts = encode(w.facts(machines))
	d.Summary = "Tell the nodes of cluster " + d.Cluster +
		" of the outer registries of the documents: no pod is touched."
	return d.done()
}
