package steps

import (
	"context"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// SecretSigning are the keys of a cluster that sign service account tokens, once they were changed; the first one is in
// SecretPKI.
const SecretSigning = "signing-keys"

// SigningKeys returns the names of the keys of the cluster for service account tokens, the one that signs first, and of
// those that it had. Errors: not_found before a plan made them.
func (e Keys) SigningKeys(ctx context.Context, uid string) (keys, former []string, err error) {
	authorities, err := e.ClusterPKI(ctx, uid)
	if err != nil {
		return nil, nil, err
	}
	k, err := e.signingKeys(ctx, uid, authorities)
	return k.Names(), k.Former, err
}

func (e Keys) signingKeys(ctx context.Context, uid string, authorities pki.ClusterPKI) (pki.SigningKeys, error) {
	sealed, err := e.Secrets.Secret(ctx, uid, SecretSigning)
	if err != nil {
		return pki.SigningKeys{}, err
	}
	if sealed != nil {
		return pki.UnsealSigningKeys(e.Sealer, uid, SecretSigning, sealed)
	}
	return authorities.SigningKeys(), nil
}

// signingKey changes the keys that the director gives to the masters. The masters get them by a play afterwards.
func (e keySteps) signingKey(ctx context.Context, _ plan.Run, p step.SigningParams) error {
	authorities, err := e.ClusterPKI(ctx, p.UID)
	if err != nil {
		return err
	}
	k, err := e.signingKeys(ctx, p.UID, authorities)
	if err != nil {
		return err
	}
	switch p.Do {
	case step.SigningAdd:
		if err := k.Add(p.Key); err != nil {
			return err
		}
	case step.SigningUse:
		if !k.Use(p.Key) {
			return plan.Abort(director.Errorf(
				director.KindConflict, "signing.key", "cluster %s has no key %s for service account tokens", p.Cluster,
				p.Key,
			).WithHint("plan again"))
		}
	case step.SigningDrop:
		k.Drop()
	}
	sealed, err := k.Seal(e.Sealer, p.UID, SecretSigning)
	if err != nil {
		return err
	}
	return e.Secrets.SetSecret(ctx, p.UID, SecretSigning, sealed)
}
