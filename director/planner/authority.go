package planner

import (
	"fmt"
	"slices"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// purposes is which authority an operation changes.
var purposes = map[plan.Operation]string{
	plan.ClusterCA: "cluster", plan.ClusterEtcdCA: "etcd", plan.ClusterFrontProxyCA: "front-proxy",
}

// AuthorityOperations returns the operations that RotateAuthority plans.
func AuthorityOperations() []plan.Operation {
	return []plan.Operation{plan.ClusterCA, plan.ClusterEtcdCA, plan.ClusterFrontProxyCA}
}

// RotateAuthority returns the plan that gives the cluster another certificate authority for the purpose of the
// operation, in three stages: all nodes trust both, then the new one signs every certificate, and then no node trusts
// the former one, once nothing uses it. Masters go one by one behind gates, workers in a window. A rotation that
// stopped half way is finished, with the authority that it made. Errors: conflict for a cluster that is not installed,
// that waits for an upgrade, of which a master is away, or that is in the middle of the rotation of another authority.
func RotateAuthority(w World, r plan.Request) (plan.Content, error) {
	const op = "planner.rotate_authority"
	which := purposes[r.Operation]
	masters, all, err := w.rotatable(op)
	if err != nil {
		return plan.Content{}, err
	}
	if err := w.oneAuthority(op, which); err != nil {
		return plan.Content{}, err
	}
	name := w.Cluster.Metadata.Name
	d := w.draft(r.Operation)
	d.Request = r
	var needs []string
	a := authorityRotation{draft: d, which: which, masters: masters}
	if which == "cluster" {
		a.workers = d.reachableWorkers()
	}
	key, begun := w.Authorities[which].next()
	if !begun {
		needs = a.change(step.AuthorityAdd, "Make "+key+" of the "+which+" authority", key, needs)
	}
	needs = a.stage("trust", "Have %s trust "+key, needs)
	needs = a.change(step.AuthorityUse, "Choose "+key+" to sign with", key, needs)
	needs = a.stage("sign", "Have "+key+" sign the certificates of %s", needs)
	needs = a.unused(needs)
	needs = a.change(step.AuthorityDrop, "Forget the former "+which+" authority", "", needs)
	a.stage("refuse", "Have %s trust "+key+" alone", needs)
	a.warnings()
	d.concerns(slices.Concat(masters, a.workers)...)
	d.Facts = encode(w.facts(all))
	d.Summary = fmt.Sprintf("Give cluster %s another %s authority, %s.", name, which, key)
	if begun {
		d.Summary = fmt.Sprintf("Finish the change of cluster %s to the %s authority %s.", name, which, key)
	}
	return d.done(), nil
}

// oneAuthority refuses what must not meet the rotation of an authority: an upgrade, and the rotation of another one.
func (w World) oneAuthority(op, which string) error {
	name := w.Cluster.Metadata.Name
	if err := w.upgraded(op); err != nil {
		return err
	}
	for _, operation := range AuthorityOperations() {
		if other := purposes[operation]; other != which && len(w.Authorities[other].Keys) > 1 {
			return conflict(
				op, fmt.Sprintf("cluster %s is in the middle of the change of its %s authority", name, other),
				fmt.Sprintf("finish it first: directorctl rotate %s-ca %s", other, name),
			)
		}
	}
	return nil
}

// reachableWorkers returns the workers that can be given another authority now, and warns of the others.
func (d *draft) reachableWorkers() (workers []sized) {
	for _, m := range d.w.members() {
		switch {
		case m.Role != director.RoleWorker:
		case d.w.up(m.Name):
			workers = append(workers, d.w.sized(m))
		default:
			d.warn(fmt.Sprintf(
				"%s is not ready and is left out: it comes back with the former authority; have it join again then: "+
					"directorctl node rejoin %s %s", m.Name, d.Cluster, m.Name,
			))
		}
	}
	return workers
}

// authorityRotation adds the steps of one rotation.
type authorityRotation struct {
	*draft
	which   string
	masters []sized
	workers []sized // none unless they have certificates of the authority
}

func (a authorityRotation) change(do step.AuthorityVerb, title, key string, needs []string) []string {
	return []string{a.add(plan.Step{
		ID: step.AuthorityChange + "/" + string(do), Kind: step.AuthorityChange, Title: title, Needs: needs,
		Params: encode(step.AuthorityParams{
			UID: a.w.Cluster.UID, Cluster: a.Cluster, Authority: a.which, Do: do, Name: key,
		}),
		Effects: []plan.Effect{{
			Verb: "change", Object: "secret", Name: a.which + " authorities of " + a.Cluster,
			Detail: "in the director",
		}},
		Attempts: 3, Timeout: time.Minute, Estimate: time.Second,
	})}
}

// stage brings the nodes to the authorities that the director has then: the masters one after another, then the workers
// in a window, and what pods trust last. It returns the last steps.
func (a authorityRotation) stage(id, title string, needs []string) []string {
	needs = slices.Clone(needs)
	for _, m := range a.masters {
		needs = []string{a.give(id, title, m, needs, group{})}
	}
	if a.which != "cluster" {
		return needs
	}
	var given []string
	for _, m := range a.workers {
		given = append(given, a.give(id, title, m, needs, group{window: a.windowOf("workers-" + id)}))
	}
	if len(given) > 0 {
		needs = given
	}
	return []string{a.published(id, needs)}
}

// published gives pods what the nodes trust. Those that read it only at their start need that once: before another
// authority signs.
func (a authorityRotation) published(id string, needs []string) string {
	p := playbook{
		name: "authorities_published", id: "authorities_published_" + id, subject: a.Cluster,
		title: "Give pods what the nodes trust", limit: names(a.masters), estimate: 30 * time.Second,
		vars: map[string]any{"authorities_pods": id == "trust"},
		effects: []plan.Effect{
			{Verb: "change", Object: "configmap", Name: "cluster-info", Detail: "the authorities that it names"},
		},
	}
	if id == "trust" {
		p.estimate = 2 * time.Minute
		p.effects = append(p.effects, plan.Effect{
			Verb: "restart", Object: "pod", Name: "kube-system", Detail: "pods that may not read the file again",
		})
	}
	return a.play(p, needs, group{})
}

func (a authorityRotation) give(id, title string, m sized, needs []string, in group) string {
	p := playbook{
		name: "rotate_ca", id: "rotate_ca_" + id, title: fmt.Sprintf(title, m.Name), limit: []string{m.Name},
		estimate: 30 * time.Second, vars: map[string]any{
			"acting_master":                 a.acting(m.Name),
			"membership_kubernetes_version": m.Kubernetes, "rotate_certs_kubernetes_version": m.Kubernetes,
		},
		effects: []plan.Effect{{
			Verb: "change", Object: "file", Name: m.Name,
			Detail: "the authorities that it trusts, and certificates of another than the one that signs",
		}},
	}
	if m.Role == director.RoleMaster {
		p.estimate = time.Minute
		p.effects = append(p.effects, plan.Effect{
			Verb: "restart", Object: "api", Name: "node/" + m.Name,
			Detail: "etcd and the control plane, no pod of yours",
		})
	}
	return a.play(p, needs, in)
}

func (a authorityRotation) unused(needs []string) []string {
	return []string{a.play(playbook{
		name: "authorities_unused", subject: a.Cluster, title: "See that nothing uses the former authority",
		limit: names(slices.Concat(a.masters, a.workers)), estimate: 10 * time.Minute,
		vars: map[string]any{"rotate_ca_purpose": a.which},
		effects: []plan.Effect{{
			Verb: "read", Object: "node", Name: "all", Detail: "who signed which certificate, and the audit log",
		}},
	}, needs, group{})}
}

func (a authorityRotation) warnings() {
	if a.which != "cluster" {
		return
	}
	a.warn("kubeconfigs that were given out before do not trust API servers once the new authority signs, and " +
		"end with the former one: give out others when all nodes trust both; the plan waits for a person while " +
		"the audit log shows one in use that was used before, and names the user")
	a.warn("pods of yours that read kube-root-ca.crt only at their start, such as those with clients older than " +
		"Kubernetes 1.36, have to be restarted before the authority signs; those of kube-system are restarted")
}
