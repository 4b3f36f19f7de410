package steps

import (
	"context"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// ClusterPKI returns the authorities and keys of the cluster with that uid, or not_found before a plan made them. While
// an authority is changed, its certificate is a bundle of those that are trusted, the one that signs first.
func (e Keys) ClusterPKI(ctx context.Context, uid string) (pki.ClusterPKI, error) {
	sealed, err := e.Secrets.Secret(ctx, uid, SecretPKI)
	if err != nil {
		return pki.ClusterPKI{}, err
	}
	if sealed == nil {
		return pki.ClusterPKI{}, director.Errorf(
			director.KindNotFound, "steps.pki", "the cluster has no certificate authorities yet",
		).
			WithHint("they are made when its plan runs")
	}
	p, err := pki.UnsealCluster(e.Sealer, uid, SecretPKI, sealed)
	if err != nil {
		return pki.ClusterPKI{}, err
	}
	changed, err := e.changedAuthorities(ctx, uid)
	return p.With(changed), err
}

// newPKI makes the authorities of a new cluster, or has those issued that its document has an issuer for.
func (e keySteps) newPKI(ctx context.Context, r plan.Run, p step.ClusterParams) (pki.ClusterPKI, error) {
	fresh, err := pki.NewCluster(p.Name)
	if err != nil {
		return pki.ClusterPKI{}, err
	}
	for _, which := range pki.AuthorityNames() {
		issuer := p.Document.Certificates.Issuer(string(which))
		if issuer == "" {
			continue
		}
		pair, err := e.issue(ctx, r, issuer, p.Name+" "+string(which))
		if err != nil {
			return pki.ClusterPKI{}, err
		}
		fresh.Set(which, pair)
	}
	return fresh, nil
}

func (e keySteps) clusterPKI(ctx context.Context, r plan.Run, p step.ClusterParams) error {
	return e.ensurePKI(ctx, p.UID, func() (pki.ClusterPKI, error) { return e.newPKI(ctx, r, p) })
}

// ensurePKI makes the authorities and keys of the cluster with that uid unless it has some that can be read.
func (e Keys) ensurePKI(ctx context.Context, uid string, first func() (pki.ClusterPKI, error)) error {
	sealed, err := e.Secrets.Secret(ctx, uid, SecretPKI)
	if err != nil {
		return err
	}
	if sealed == nil {
		fresh, err := first()
		if err != nil {
			return err
		}
		if sealed, err = fresh.Seal(e.Sealer, uid, SecretPKI); err != nil {
			return err
		}
		if sealed, err = e.Secrets.AddSecret(ctx, uid, SecretPKI, sealed); err != nil {
			return err
		}
	}
	_, err = pki.UnsealCluster(e.Sealer, uid, SecretPKI, sealed)
	return err
}
