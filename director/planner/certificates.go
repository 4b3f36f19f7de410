package planner

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// certificateLife is how long certificates of nodes are good for, unless the cluster says otherwise.
const certificateLife = 365 * 24 * time.Hour

// keyDraft plan changes of keys, certificates and authorities.
type keyDraft struct{ *draft }

func (d *draft) keys() keyDraft { return keyDraft{d} }

// RotateCertificates returns the plan that renews the certificates of members: masters one by one behind gates, and
// then workers in a window. A member whose certificates are known to end later is left out, so planning again resumes a
// rotation that stopped half way. Errors: conflict for a cluster that is not installed; and unless the request is cold,
// for one whose API does not answer, or that is in the middle of an upgrade or of the change of an authority.
func RotateCertificates(w World, r plan.Request) (plan.Content, error) {
	const op = "planner.rotate_certs"
	name := w.Cluster.Metadata.Name
	if w.Installed == nil {
		return plan.Content{}, notInstalled(op, name)
	}
	if w.Blind != "" && !r.Certificates.Cold {
		return plan.Content{}, conflict(
			op, "cluster "+name+" does not answer: "+w.Blind,
			"if its certificates have ended: directorctl certs rotate "+name+" --cold",
		)
	}
	if !r.Certificates.Cold { // which nothing may hold up
		if err := w.undivided(op); err != nil {
			return plan.Content{}, err
		}
	}
	d := w.draft(plan.ClusterRotateCerts)
	d.Request = r
	before := w.certificatesBefore(r.Certificates)
	var masters, workers, all []sized
	for _, m := range w.members() {
		ends, known := w.CertificateEnds[m.Name]
		switch s := w.sized(m); {
		case known && !ends.Before(before) && len(w.EndedAuthorities) == 0:
		case !r.Certificates.Cold && !w.up(m.Name):
			d.warn(m.Name + " is not ready and is left out: repair it, and rotate again")
		case m.Role == director.RoleMaster:
			masters = append(masters, s)
		default:
			workers = append(workers, s)
		}
	}
	for _, m := range w.alive() {
		all = append(all, w.sized(m))
	}
	if len(masters)+len(workers) == 0 {
		d.Summary = fmt.Sprintf(
			"Nothing to do: no certificate of cluster %s ends before %s.", name, before.UTC().Format(time.RFC3339),
		)
		return d.done(), nil
	}
	d.Summary = fmt.Sprintf(
		"Renew the certificates of cluster %s that end before %s: %s and %s.", name,
		before.UTC().Format(time.RFC3339), director.Count(len(masters), "master"),
		director.Count(len(workers), "worker"),
	)
	switch {
	case r.Certificates.Cold && len(w.EndedAuthorities) > 0:
		d.keys().coldAuthorities(masters, workers, before)
	case r.Certificates.Cold:
		d.keys().coldCertificates(masters, workers, before, nil)
	default:
		d.keys().certificates(masters, workers, before)
	}
	d.concerns(slices.Concat(masters, workers)...)
	d.Facts = encode(w.facts(all))
	return d.done(), nil
}

// undivided refuses a cluster in the middle of an upgrade, or of the change of an authority. An upgrade that only waits
// holds nothing up: certificates end meanwhile.
func (w World) undivided(op string) error {
	if w.upgrades().halfUpgraded() {
		return w.upgrades().upgraded(op)
	}
	return w.settled(op, "")
}

// certificatesBefore is the end before which certificates are renewed. What was made before a moment ends before that
// moment and the life of new ones.
func (w World) certificatesBefore(c plan.Certificates) time.Time {
	if c.MadeBefore.IsZero() {
		return c.EndBefore
	}
	life := certificateLife
	switch seconds := w.Cluster.Cluster.Vars["certificate_seconds"].(type) { // from YAML, and from JSON
	case int:
		life = time.Duration(seconds) * time.Second
	case float64:
		life = time.Duration(seconds) * time.Second
	}
	return c.MadeBefore.Add(life)
}

// certificates renews the masters one by one, and then the workers in a window.
func (d keyDraft) certificates(masters, workers []sized, before time.Time) {
	var needs []string
	for _, m := range masters {
		needs = []string{d.renewCertificates([]sized{m}, before, false, needs, group{})}
	}
	if len(workers) == 0 {
		return
	}
	in := group{window: d.window()}
	for _, m := range workers {
		d.renewCertificates([]sized{m}, before, false, needs, in)
	}
}

// coldCertificates renews all masters together, because none can come back alone, and then all workers.
func (d keyDraft) coldCertificates(masters, workers []sized, before time.Time, needs []string) []string {
	if len(masters) > 0 {
		needs = []string{d.renewCertificates(masters, before, true, needs, group{})}
		d.Approvals = append(
			d.Approvals, "it restarts the control plane on all masters at once, since their certificates have ended",
		)
	}
	if len(workers) > 0 {
		needs = []string{d.renewCertificates(workers, before, true, needs, group{})}
	}
	return needs
}

// coldAuthorities gives a cluster other authorities than those that have ended. Nothing of the cluster works with them,
// so all nodes trust and use the new ones at once. What has ended is taken off them in order, when the cluster runs.
func (d keyDraft) coldAuthorities(masters, workers []sized, before time.Time) {
	a := authorityRotation{draft: d.draft, masters: masters}
	needs := a.clocks()
	ended := slices.Sorted(maps.Keys(d.w.EndedAuthorities))
	for _, which := range ended {
		needs = a.cold(which, needs)
	}
	needs = d.backups().saveDirector("use", "has the other authorities", needs)
	needs = d.coldCertificates(masters, workers, before, needs)
	if d.w.EndedAuthorities["cluster"] {
		a.which, a.workers = "cluster", workers
		needs = []string{a.published("trust", needs)}
		a.warn("kubeconfigs that were given out before are of no use any more: give out others")
	}
	for _, which := range ended {
		of := a
		of.which = which
		needs = of.change(step.AuthorityDrop, "Forget the former "+which+" authority", "", "", needs)
	}
	a.stage("refuse", "Have %s trust the present authorities alone", needs)
	d.Summary = fmt.Sprintf(
		"Give cluster %s other authorities than those that have ended (%s), and all its nodes certificates of them.",
		d.Cluster, strings.Join(ended, ", "),
	)
}

// cold makes another authority than the one that has ended, unless a former plan has, and chooses it.
func (a authorityRotation) cold(which string, needs []string) []string {
	a.which = which
	key, begun := a.w.Authorities[which].next()
	if !begun {
		needs = a.issued(key, needs)
	}
	return a.change(step.AuthorityUse, "Choose "+key+" to sign with as the "+which+" authority", key, "", needs)
}

func (d keyDraft) renewCertificates(nodes []sized, before time.Time, cold bool, needs []string, in group) string {
	version := nodes[0].Kubernetes
	who := strings.Join(names(nodes), ", ")
	p := playbook{
		name: "rotate_certs", title: "Renew the certificates of " + who, limit: names(nodes),
		vars: map[string]any{
			"certs_before": before.Unix(), "acting_master": d.acting(nodes[0].Name),
			"membership_kubernetes_version": version, "rotate_certs_kubernetes_version": version,
		},
		estimate: 20 * time.Second,
	}
	if nodes[0].Role == director.RoleMaster {
		p.estimate = time.Minute
	}
	for _, m := range nodes {
		p.effects = append(p.effects, plan.Effect{
			Verb: "change", Object: "file", Name: m.Name, Detail: "certificates that end too soon, after a backup",
		})
		if m.Role == director.RoleMaster {
			p.effects = append(p.effects, plan.Effect{
				Verb: "restart", Object: "api", Name: "node/" + m.Name,
				Detail: "etcd and the control plane, no pod of yours",
			})
		}
	}
	if cold {
		p.vars["certs_cold"] = true
	}
	if len(d.w.EndedAuthorities) > 0 {
		p.vars["certs_authorities"] = true
	}
	if len(nodes) > 1 {
		p.subject = string(nodes[0].Role) + "s"
	}
	return d.play(p, needs, in)
}
