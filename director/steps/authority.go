package steps

import (
	"context"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// SecretAuthorities are the authorities of a cluster that were changed; the first ones are in SecretPKI.
const SecretAuthorities = "authorities"

// Authorities returns the names of the authorities of the cluster by purpose (cluster, etcd, front-proxy): those that
// are trusted, the one that signs first, and those that were. Errors: not_found before a plan made them.
func (e Env) Authorities(ctx context.Context, uid string) (trusted, former map[string][]string, err error) {
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

// changedAuthorities returns the authorities of the cluster that were changed, none at first.
func (e Env) changedAuthorities(ctx context.Context, uid string) (pki.Authorities, error) {
	sealed, err := e.Secrets.Secret(ctx, uid, SecretAuthorities)
	if err != nil || sealed == nil {
		return pki.Authorities{}, err
	}
	return pki.UnsealAuthorities(e.Sealer, uid, SecretAuthorities, sealed)
}

// authority changes an authority that the director gives to the nodes. They get it by plays afterwards.
func (e Env) authority(ctx context.Context, _ plan.Run, p step.AuthorityParams) error {
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
		if err := a.Add(p.Cluster+" "+p.Authority, p.Name); err != nil {
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
