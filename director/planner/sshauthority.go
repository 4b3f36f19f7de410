package planner

import (
	"fmt"
	"time"

	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// RotateSSHAuthority returns the plan that gives the cluster another authority for those who log in to its nodes: all
// nodes trust both, then the director logs in by the next one, and the former is taken from all nodes. A rotation that
// stopped half way is finished, with the authority that it made. Errors: conflict for a cluster that is not installed,
// that waits for an upgrade, or of which a node is away: the director could not log in to it any more.
func RotateSSHAuthority(w World, r plan.Request) (plan.Content, error) {
	const op = "planner.rotate_ssh_authority"
	_, all, err := w.rotatable(op)
	if err == nil {
		err = w.upgrades().upgraded(op)
	}
	if err != nil {
		return plan.Content{}, err
	}
	name := w.Cluster.Metadata.Name
	for _, m := range w.alive() {
		if !w.up(m.Name) {
			return plan.Content{}, conflict(
				op, "node "+m.Name+" is not ready: the director could not log in to it after the change",
				"repair it: directorctl node repair "+name,
			)
		}
	}
	d := w.draft(plan.ClusterSSHAuthority)
	d.Request = r
	key, begun := w.SSHAuthorities.next()
	var needs []string
	if !begun {
		needs = d.keys().sshAuthority(step.SigningAdd, "Make the SSH authority "+key, key, needs)
	}
	needs = d.backups().saveDirector("add", "has "+key, needs)
	needs = d.keys().giveSSHAuthorities("trust", "Have all nodes trust "+key, all, needs)
	needs = d.keys().sshAuthority(step.SigningUse, "Log in by "+key, key, needs)
	needs = d.backups().saveDirector("use", "logs in by "+key, needs)
	needs = d.keys().giveSSHAuthorities("login", "Log in to all nodes by "+key, all, needs)
	needs = d.keys().sshAuthority(step.SigningDrop, "Forget the former SSH authority", "", needs)
	d.keys().giveSSHAuthorities("forget", "Have all nodes trust "+key+" alone", all, needs)
	d.warn("inventories that were exported before the change open no node after it; export them again")
	d.concerns(all...)
	d.Facts = encode(w.facts(all))
	d.Summary = fmt.Sprintf("Give cluster %s another SSH authority, %s.", name, key)
	if begun {
		d.Summary = fmt.Sprintf("Finish the change of cluster %s to the SSH authority %s.", name, key)
	}
	return d.done(), nil
}

func (d keyDraft) sshAuthority(do step.SigningVerb, title, key string, needs []string) []string {
	return []string{d.add(plan.Step{
		ID: step.SSHAuthority + "/" + string(do), Kind: step.SSHAuthority, Title: title, Needs: needs,
		Params: encode(step.SigningParams{UID: d.w.Cluster.UID, Cluster: d.Cluster, Do: do, Key: key}),
		Effects: []plan.Effect{{
			Verb: "change", Object: "secret", Name: "SSH authorities of " + d.Cluster, Detail: "in the director",
		}},
		Attempts: 3, Timeout: time.Minute, Estimate: time.Second,
	})}
}

// giveSSHAuthorities gives all nodes the authorities that the director has then. Nothing restarts, so they need no
// order.
func (d keyDraft) giveSSHAuthorities(id, title string, nodes []sized, needs []string) []string {
	return []string{d.play(playbook{
		name: "ssh_authority", id: "ssh_" + id, subject: d.Cluster, title: title, limit: names(nodes),
		estimate: 20 * time.Second,
		effects: []plan.Effect{{
			Verb: "change", Object: "file", Name: "all nodes", Detail: "which SSH authorities they trust",
		}},
	}, needs, group{})}
}
