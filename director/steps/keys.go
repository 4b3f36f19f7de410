package steps

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/backup"
	"github.com/director-kaas/kaas/director/pki"
)

// KeysOf returns the keys of the cluster that are no certificates, those that it had before included. Nothing of a key
// itself is in it. A cluster whose keys were not made yet has none.
func (e Keys) KeysOf(ctx context.Context, uid string) ([]director.Key, error) {
	authorities, err := e.ClusterPKI(ctx, uid)
	if director.KindOf(err) == director.KindNotFound {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	sealed, err := e.Secrets.Secret(ctx, uid, SecretPKI)
	if err != nil {
		return nil, err
	}
	first, err := pki.UnsealCluster(e.Sealer, uid, SecretPKI, sealed) // before its authorities were changed
	if err != nil {
		return nil, err
	}
	k := keyList{}
	if ca, err := pki.ParseCert(first.CA.Cert); err == nil {
		k.born = ca.NotBefore.UTC()
	}
	signing, err := e.signingKeys(ctx, uid, authorities)
	if err != nil {
		return nil, err
	}
	for i, one := range signing.Keys {
		k.add("service-account-key", one.Name, keyID(one.Public), i == 0, one.Made)
	}
	k.former("service-account-key", signing.Former)
	encryption, err := e.ClusterEncryptionKeys(ctx, uid)
	if err != nil {
		return nil, err
	}
	for i, one := range encryption.Keys {
		k.add("encryption-key", one.Name, backup.KeyOf(one.Name, one.Secret).ID, i == 0, one.Made)
	}
	for _, one := range encryption.Former {
		k.add("encryption-key", one.Name, backup.KeyOf(one.Name, one.Secret).ID, false, one.Made)
		k.list[len(k.list)-1].State = director.KeyFormer
	}
	ssh, err := e.sshAuthorities(ctx, uid)
	if err != nil {
		return nil, err
	}
	for i, one := range ssh.Keys {
		k.add("ssh-authority", one.Name, keyID(one.Public), i == 0, one.Made)
	}
	k.former("ssh-authority", ssh.Former)
	return k.list, nil
}

// keyList collects the keys of a cluster.
type keyList struct {
	born time.Time // when the first keys were made
	list []director.Key
}

func (k *keyList) add(purpose, name, id string, used bool, made time.Time) {
	if name == firstKeyName {
		made = k.born
	}
	state := director.KeyAccepted
	if used {
		state = director.KeyUsed
	}
	k.list = append(k.list, director.Key{Purpose: purpose, Name: name, ID: id, State: state, Made: made})
}

// former adds keys of which nothing is left but the name.
func (k *keyList) former(purpose string, names []string) {
	for _, name := range names {
		k.list = append(k.list, director.Key{Purpose: purpose, Name: name, State: director.KeyFormer})
	}
}

// firstKeyName is what the first key of a cluster for a purpose is called.
const firstKeyName = "key1"

// keyID names a public key.
func keyID(public string) string {
	sum := sha256.Sum256([]byte(public))
	return hex.EncodeToString(sum[:8])
}
