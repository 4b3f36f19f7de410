package steps

import (
	"context"
	"net/netip"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// SecretAuthorities are the authorities of a cluster that were changed; the first ones are in SecretPKI.
const SecretAuthorities = "authorities"

// keySteps change the keys, certificates and authorities of clusters and their nodes.
type keySteps struct {
	Clusters
	Suppliers
	Journal Journal
	facts   *factsCache
}

// Authorities returns the names of the authorities of the cluster by purpose (cluster, etcd, front-proxy): those that
// are trusted, the one that signs first, and those that were. Errors: not_found before a plan made them.
func (e Keys) Authorities(ctx context.Context, uid string) (trusted, former map[string][]string, err error) {
	p, err := e.ClusterPKI(ctx, uid)
	if err != nil {
		return nil, nil, err
	}
	changed, err := e.changedAuthorities(ctx, uid)
	if err != nil {
		return nil, nil, err
	}
	trusted, former = map[string][]string{}, map[string][]string{}
	for _, which := range pki.AuthorityNames() {
		a, ok := changed[which]
		if !ok {
			a = p.Authority(which)
		}
		trusted[string(which)], former[string(which)] = a.Names(), a.Former
	}
	return trusted, former, nil
}

// EndedAuthorities returns the purposes of which an authority that is trusted has ended.
func (e Keys) EndedAuthorities(ctx context.Context, uid string, now time.Time) (map[string]bool, error) {
	p, err := e.ClusterPKI(ctx, uid)
	if err != nil {
		return nil, err
	}
	changed, err := e.changedAuthorities(ctx, uid)
	if err != nil {
		return nil, err
	}
	ended := map[string]bool{}
	for _, which := range pki.AuthorityNames() {
		a, ok := changed[which]
		if !ok {
			a = p.Authority(which)
		}
		for _, one := range a.Keys {
			end, err := pki.Expiry(one.Pair.Cert)
			if err != nil {
				return nil, err
			}
			if now.After(end) {
				ended[string(which)] = true
			}
		}
	}
	return ended, nil
}

// Outer issues the authorities of clusters from outer ones.
type Outer interface {
	// Issue returns an authority that the CertificateAuthority of the name has issued for what is needed.
	Issue(ctx context.Context, name, subject string, n pki.Need) (pki.Pair, error)
}

// issue has an authority issued for the plan's cluster. One that a former run has had issued, and did not keep, is of
// no use to anyone: its key is gone.
func (e keySteps) issue(ctx context.Context, r plan.Run, issuer, subject string) (pki.Pair, error) {
	if e.Outer == nil {
		return pki.Pair{}, director.Errorf(
			director.KindConflict, "authority.issue", "this director asks no outer authorities",
		)
	}
	facts, err := e.facts.of(r.Plan)
	if err != nil {
		return pki.Pair{}, plan.Abort(err)
	}
	pair, err := e.Outer.Issue(ctx, issuer, subject, needOf(facts))
	switch director.KindOf(err) {
	case director.KindInvalid, director.KindConflict, director.KindNotFound:
		return pki.Pair{}, plan.Park(err, "correct what is wrong (directorctl ca test "+issuer+"), and retry the step")
	case director.KindUnavailable:
		return pki.Pair{}, plan.ParkLast(err, "see that the server answers (directorctl ca test "+issuer+
			"), and retry the step")
	}
	return pair, err
}

// needOf is what servers of the cluster have in their certificates.
func needOf(f step.Facts) pki.Need {
	c := f.Document
	n := pki.UsualNeed(0)
	n.Names = append(n.Names, "kubernetes.default.svc."+c.Services.Domain)
	n.IPs = append(n.IPs, c.Services.CIDR.Masked().Addr().Next())
	for _, name := range c.API.Names {
		if a, err := netip.ParseAddr(name); err == nil {
			n.IPs = append(n.IPs, a)
		} else {
			n.Names = append(n.Names, name)
		}
	}
	if c.API.VIP.IsValid() {
		n.IPs = append(n.IPs, c.API.VIP)
	}
	for _, m := range f.Nodes {
		n.Names = append(n.Names, m.Name)
		if a, err := netip.ParseAddr(m.Address); err == nil {
			n.IPs = append(n.IPs, a)
		}
	}
	return n
}

// changedAuthorities returns the authorities of the cluster that were changed, none at first.
func (e Keys) changedAuthorities(ctx context.Context, uid string) (pki.Authorities, error) {
	sealed, err := e.Secrets.Secret(ctx, uid, SecretAuthorities)
	if err != nil || sealed == nil {
		return pki.Authorities{}, err
	}
	return pki.UnsealAuthorities(e.Sealer, uid, SecretAuthorities, sealed)
}

// authority changes an authority that the director gives to the nodes. They get it by plays afterwards.
func (e keySteps) authority(ctx context.Context, r plan.Run, p step.AuthorityParams) error {
	present, err := e.ClusterPKI(ctx, p.UID)
	if err != nil {
		return err
	}
	changed, err := e.changedAuthorities(ctx, p.UID)
	if err != nil {
		return err
	}
	which := pki.AuthorityName(p.Authority)
	a, ok := changed[which]
	if !ok {
		a = present.Authority(which)
	}
	switch p.Do {
	case step.AuthorityAdd:
		err := a.Add(p.Name, func() (pki.Pair, error) {
			subject := p.Cluster + " " + p.Authority + " " + p.Name
			if p.Issuer == "" {
				return pki.NewCA(subject)
			}
			return e.issue(ctx, r, p.Issuer, subject)
		})
		if err != nil {
			return err
		}
	case step.AuthorityUse:
		if !a.Use(p.Name) {
			return plan.Abort(director.Errorf(
				director.KindConflict, "authority.change", "cluster %s has no %s authority %s", p.Cluster, p.Authority,
				p.Name,
			).WithHint("plan again"))
		}
	case step.AuthorityDrop:
		a.Drop()
	}
	changed[which] = a
	sealed, err := changed.Seal(e.Sealer, p.UID, SecretAuthorities)
	if err != nil {
		return err
	}
	return e.Secrets.SetSecret(ctx, p.UID, SecretAuthorities, sealed)
}
