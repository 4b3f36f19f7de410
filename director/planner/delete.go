package planner

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// Delete returns the plan that takes the cluster of w away with its VMs, addresses, secrets and document. Data disks
// are kept unless r says otherwise.
func Delete(w World, r plan.Request) (plan.Content, error) {
	c := w.Cluster.Cluster
	d := w.draft(plan.ClusterDelete)
	d.Request = plan.Request{Operation: plan.ClusterDelete, DeleteData: r.DeleteData}
	var gone []string
	for _, m := range w.alive() {
		s := w.sized(m)
		d.concerns(s)
		gone = append(gone, d.deleteVM(s, nil, group{}))
	}
	gone = d.deleteNetworks(d.consul().deregister(gone))
	d.add(plan.Step{
		ID: step.ClusterForget + "/" + d.Cluster, Kind: step.ClusterForget, Title: "Forget the cluster", Needs: gone,
		Params: encode(step.ClusterParams{
			UID: w.Cluster.UID, Name: d.Cluster, Generation: w.Cluster.Generation, Document: *c,
		}),
		Effects: []plan.Effect{
			{Verb: "delete", Object: "document", Name: "Cluster/" + d.Cluster},
			{Verb: "delete", Object: "secret", Name: d.Cluster},
		},
		Attempts: 3, Timeout: time.Minute, Estimate: time.Second,
	})
	d.sayWhatGoes()
	return d.done(), nil
}

// deleteNetworks deletes the networks that no other cluster uses, and returns what to wait for.
func (d *draft) deleteNetworks(gone []string) []string {
	w, c := d.w, d.w.Cluster.Cluster
	if len(w.Sharers) == 0 && len(w.Machines) > 0 { // a cluster that never had a machine never had its network made
		gone = []string{d.add(plan.Step{
			ID: step.NetworkDelete + "/" + c.Network, Kind: step.NetworkDelete, Title: "Delete network " + c.Network,
			Needs: gone,
			Params: encode(step.NetworkParams{
				Provider: c.Provider, Name: c.Network, UID: w.Network.UID, Network: *w.Network.Network,
			}),
			Effects:  []plan.Effect{{Verb: "delete", Object: "network", Name: c.Network}},
			Attempts: 5, Timeout: 2 * time.Minute, Estimate: 2 * time.Second,
		})}
	}
	var left []string
	for _, name := range slices.Sorted(maps.Keys(w.Underlays)) {
		u := w.Underlays[name]
		if len(u.Sharers) > 0 ||
			!slices.ContainsFunc(w.Machines, func(m director.Machine) bool { return m.On(name) != "" }) {
			continue
		}
		s := networkStep(step.NetworkDelete, "Delete network ", name, u.Stored, plan.Effect{
			Verb: "delete", Object: "network", Name: name,
		})
		s.Needs = gone
		left = append(left, d.add(s))
	}
	return append(gone, left...)
}

// sayWhatGoes writes what the deletion of the cluster destroys.
func (d *draft) sayWhatGoes() {
	d.Approvals = append(
		[]string{
			fmt.Sprintf(
				"it destroys cluster %s with %s and all data on their root disks", d.Cluster,
				director.Count(len(d.Machines), "VM"),
			),
		},
		d.Approvals...,
	)
	d.Summary = fmt.Sprintf(
		"Delete cluster %s: %s with root disks and addresses, its secrets and its document%s.", d.Cluster,
		director.Count(len(d.Machines), "VM"), d.dataDisks(),
	)
	for _, m := range d.w.alive() {
		if kept(m, nil) {
			d.Approvals = append(
				d.Approvals,
				fmt.Sprintf("%s is one of them, whose VM %s keeps outside of the cluster", m.Name, m.KeptBy),
			)
		}
	}
}
