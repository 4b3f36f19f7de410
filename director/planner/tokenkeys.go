package planner

import (
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
)

// TokenKeys returns the plan that gives every master of the cluster the director's present token keys, and the
// director's roles their rights. Nothing restarts. Errors: conflict for a cluster that is not installed.
func TokenKeys(w World, r plan.Request) (plan.Content, error) {
	const op = "planner.token_keys"
	name := w.Cluster.Metadata.Name
	if w.Installed == nil {
		return plan.Content{}, notInstalled(op, name)
	}
	d := w.draft(plan.ClusterTokenKeys)
	d.Request = r
	var masters, all []sized
	for _, m := range w.members() {
		if m.Role == director.RoleMaster {
			masters = append(masters, w.sized(m))
		}
	}
	for _, m := range w.alive() {
		all = append(all, w.sized(m))
	}
	if len(masters) == 0 {
		return plan.Content{}, conflict(op, "cluster "+name+" has no masters", "")
	}
	d.play(playbook{
		name: "cluster_users", subject: name,
		title: "Give the director's token keys to " + director.Count(len(masters), "master"), limit: names(masters),
		effects: []plan.Effect{
			{Verb: "change", Object: "node", Name: "all masters", Detail: "which tokens their API servers accept"},
			{Verb: "change", Object: "cluster", Name: name, Detail: "the rights of the director's roles"},
		}, estimate: time.Duration(len(masters)) * 20 * time.Second,
	}, nil, group{})
	d.concerns(masters...)
	d.Facts = encode(w.facts(all))
	d.Summary = "Let people log in to cluster " + name + " with their names of the director."
	return d.done(), nil
}
