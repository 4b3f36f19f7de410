package steps

import (
	"context"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/backup"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// SecretEncryption are the keys of a cluster that encrypt Secrets at rest, once they were changed; the first one is in
// SecretPKI.
const SecretEncryption = "encryption-keys"

// ClusterEncryptionKeys returns the keys of the cluster with that uid, or not_found before a plan made them.
func (e Keys) ClusterEncryptionKeys(ctx context.Context, uid string) (pki.EncryptionKeys, error) {
	sealed, err := e.Secrets.Secret(ctx, uid, SecretEncryption)
	if err != nil {
		return pki.EncryptionKeys{}, err
	}
	if sealed != nil {
		return pki.UnsealEncryptionKeys(e.Sealer, uid, SecretEncryption, sealed)
	}
	authorities, err := e.ClusterPKI(ctx, uid)
	return authorities.EncryptionKeys(), err
}

// EncryptionKeys returns the keys that the API servers of the cluster have, the one that encrypts first, and those that
// older backups are encrypted with.
func (e Keys) EncryptionKeys(ctx context.Context, uid string) (keys, former []backup.Key, err error) {
	k, err := e.ClusterEncryptionKeys(ctx, uid)
	if err != nil {
		return nil, nil, err
	}
	for _, one := range k.Keys {
		keys = append(keys, backup.KeyOf(one.Name, one.Secret))
	}
	for _, one := range k.Former {
		former = append(former, backup.KeyOf(one.Name, one.Secret))
	}
	return keys, former, nil
}

// encryptionKey changes the keys that the director gives to the masters. The masters get them by a play afterwards.
func (e keySteps) encryptionKey(ctx context.Context, _ plan.Run, p step.EncryptionParams) error {
	k, err := e.ClusterEncryptionKeys(ctx, p.UID)
	if err != nil {
		return err
	}
	for _, name := range p.Keys {
		there := true
		switch p.Do {
		case step.EncryptionAdd:
			k.Add(name)
		case step.EncryptionUse:
			there = k.Use(name)
		case step.EncryptionRecall:
			there = k.Recall(name)
		}
		if !there {
			return plan.Abort(director.Errorf(
				director.KindConflict, "encryption.key", "cluster %s has no key %s for Secrets", p.Cluster, name,
			).WithHint("plan again"))
		}
	}
	if p.Do == step.EncryptionDrop {
		k.Drop()
	}
	sealed, err := k.Seal(e.Sealer, p.UID, SecretEncryption)
	if err != nil {
		return err
	}
	return e.Secrets.SetSecret(ctx, p.UID, SecretEncryption, sealed)
}
