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

// issueTimeout is how long an outer authority may take, with several requests to its server.
const issueTimeout = 3 * time.Minute

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
	a := authorityRotation{draft: d, which: which, masters: masters}
	if which == "cluster" {
		a.workers = d.keys().reachableWorkers()
	}
	needs := a.clocks()
	key, begun := w.Authorities[which].next()
	if !begun {
		needs = a.issued(key, needs)
	}
	needs = a.backups().saveDirector("add", "has "+key, needs)
	needs = a.stage("trust", "Have %s trust "+key, needs)
	since := needs[0]
	needs = a.agreed(step.AuthorityUse, "See that pods trust "+key+" before it signs", key, since, needs)
	needs = a.change(step.AuthorityUse, "Choose "+key+" to sign with", key, "", needs)
	needs = a.backups().saveDirector("use", "signs with "+key, needs)
	needs = a.stage("sign", "Have "+key+" sign the certificates of %s", needs)
	needs = a.unused(needs)
	needs = a.agreed(step.AuthorityDrop, "Ask whether the former authority may go", key, since, needs)
	needs = a.change(step.AuthorityDrop, "Forget the former "+which+" authority", "", "", needs)
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
	begun := len(w.Authorities[which].Keys) > 1
	// One that waits, waits for what has begun.
	if runs, _ := w.Behind(); runs != "" && (!begun || w.upgrades().halfUpgraded()) {
		return w.upgrades().upgraded(op)
	}
	return w.settled(op, which)
}

// settled refuses a cluster that is in the middle of the change of an authority other than the named one.
func (w World) settled(op, apart string) error {
	name := w.Cluster.Metadata.Name
	for _, operation := range AuthorityOperations() {
		if other := purposes[operation]; other != apart && len(w.Authorities[other].Keys) > 1 {
			return conflict(
				op, fmt.Sprintf("cluster %s is in the middle of the change of its %s authority", name, other),
				fmt.Sprintf("finish it first: directorctl rotate %s-ca %s", other, name),
			)
		}
	}
	return nil
}

// reachableWorkers returns the workers that can be given another authority now, and warns of the others.
func (d keyDraft) reachableWorkers() (workers []sized) {
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

// clocks compares the clocks of all nodes before anything is made: a change that stops half way at the one whose clock
// is off would hold up the cluster's upgrades.
func (a authorityRotation) clocks() []string {
	return []string{a.play(playbook{
		name: "clocks", subject: a.Cluster, title: "Compare the clocks of the nodes",
		limit: names(slices.Concat(a.masters, a.workers)), estimate: 5 * time.Second,
		effects: []plan.Effect{{Verb: "read", Object: "node", Name: "all", Detail: "its clock"}},
	}, nil, group{})}
}

// issued has the next authority made, or issued.
func (a authorityRotation) issued(key string, needs []string) []string {
	title := "Make " + key + " of the " + a.which + " authority"
	issuer := a.w.Cluster.Cluster.Certificates.Issuer(a.which)
	if issuer != "" {
		title = "Have CertificateAuthority/" + issuer + " issue " + key + " of the " + a.which + " authority"
	}
	return a.change(step.AuthorityAdd, title, key, issuer, needs)
}

func (a authorityRotation) change(do step.AuthorityVerb, title, key, issuer string, needs []string) []string {
	timeout := time.Minute
	if issuer != "" {
		timeout = issueTimeout
	}
	id := step.AuthorityChange + "/" + string(do)
	if len(a.w.EndedAuthorities) > 1 { // of several in one plan
		id += "-" + a.which
	}
	return []string{a.add(plan.Step{
		ID: id, Kind: step.AuthorityChange, Title: title, Needs: needs,
		Params: encode(step.AuthorityParams{
			UID: a.w.Cluster.UID, Cluster: a.Cluster, Authority: a.which, Do: do, Name: key, Issuer: issuer,
		}),
		Effects: []plan.Effect{{
			Verb: "change", Object: "secret", Name: a.which + " authorities of " + a.Cluster,
			Detail: "in the director",
		}},
		Attempts: 3, Timeout: timeout, Estimate: time.Second,
	})}
}

// agreed has a person agree to what would hurt pods and people that still rely on the former authority. Those of etcd
// and of the front proxy are known to the control plane alone, which the plan looks at itself.
func (a authorityRotation) agreed(do step.AuthorityVerb, title, key, since string, needs []string) []string {
	if a.which != "cluster" {
		return needs
	}
	return []string{a.add(plan.Step{
		ID: step.AuthorityAgree + "/" + string(do), Kind: step.AuthorityAgree, Title: title, Needs: needs,
		Params: encode(step.AgreeParams{
			UID: a.w.Cluster.UID, Cluster: a.Cluster, Endpoint: a.w.endpoint(a.masters), Authority: a.which,
			Name: key, Do: do, Since: since, Away: a.away(),
		}),
		Attempts: 5, Timeout: 2 * time.Minute, Estimate: time.Second,
	})}
}

// away returns the workers that the rotation leaves out.
func (a authorityRotation) away() (names []string) {
	for _, m := range a.w.members() {
		if m.Role == director.RoleWorker && !a.w.up(m.Name) {
			names = append(names, m.Name)
		}
	}
	return names
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
		"Kubernetes 1.36, have to be restarted before the authority signs: the plan names those that were not, and " +
		"waits; those of kube-system are restarted")
	a.warn("the plan waits once more before the former authority goes, after it has seen that nothing uses it")
}
