package planner

import (
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// RotatePullPassword returns the plan that gives every member of the cluster another password for the director's
// registry. Both passwords are accepted until all members have the new one. Errors: conflict for a cluster that is not
// installed.
func RotatePullPassword(w World, r plan.Request) (plan.Content, error) {
	const op = "planner.rotate"
	name := w.Cluster.Metadata.Name
	if w.Installed == nil {
		return plan.Content{}, notInstalled(op, name)
	}
	d := w.draft(plan.ClusterRotatePull)
	d.Request = r
	var members, all []sized
	for _, m := range w.members() {
		members = append(members, w.sized(m))
	}
	for _, m := range w.alive() {
		all = append(all, w.sized(m))
	}
	if len(members) == 0 {
		return plan.Content{}, conflict(op, "cluster "+name+" has no members", "")
	}
	params := encode(step.PullParams{UID: w.Cluster.UID, Cluster: name})
	renewed := d.add(plan.Step{
		ID: step.PullRenew + "/" + name, Kind: step.PullRenew, Title: "Make another pull password", Params: params,
		Effects: []plan.Effect{
			{
				Verb: "create", Object: "registry", Name: "password of " + name,
				Detail: "valid together with the present one",
			},
		},
		Attempts: 3, Timeout: time.Minute, Estimate: time.Second,
	})
	given := d.play(playbook{
		name: "registry_trust", subject: name, limit: names(members),
		title: "Give the new pull password to " + director.Count(len(members), "node"),
		effects: []plan.Effect{
			{Verb: "change", Object: "node", Name: "all members", Detail: "what containerd shows to the registry"},
		}, estimate: 20 * time.Second,
	}, []string{renewed}, group{})
	d.add(plan.Step{
		ID: step.PullSettle + "/" + name, Kind: step.PullSettle, Title: "End the former pull password",
		Needs: []string{given}, Params: params,
		Effects: []plan.Effect{
			{Verb: "delete", Object: "registry", Name: "former password of " + name, Detail: "and pulls without one"},
		},
		Attempts: 3, Timeout: time.Minute, Estimate: time.Second,
	})
	d.concerns(members...)
	d.Facts = encode(w.facts(all))
	d.Summary = "Give the nodes of cluster " + name + " another password for the director's registry."
	return d.done(), nil
}
