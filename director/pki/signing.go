package pki

import (
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"encoding/json"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
)

// SigningKey signs service account tokens. Its name is never used again.
type SigningKey struct {
	Name   string
	Key    director.Secret // RSA, as token verifiers outside expect
	Public string
	Made   time.Time // zero for the first, which is as old as the cluster, and if that is not known
}

// KeyName implements Named.
func (k SigningKey) KeyName() string { return k.Name }

// SigningKeys are the keys of one cluster for service account tokens. API servers accept the tokens of each.
type SigningKeys struct{ Ring[SigningKey] }

// SigningKeys returns the keys of a cluster whose key was never changed.
func (p ClusterPKI) SigningKeys() SigningKeys {
	return SigningKeys{Ring[SigningKey]{
		Keys: []SigningKey{{Name: firstKey, Key: p.ServiceAccountKey, Public: p.ServiceAccountPublic}},
	}}
}

// Add makes a key of the name whose tokens are accepted and that signs nothing yet.
func (k *SigningKeys) Add(name string) error {
	if k.Has(name) {
		return nil
	}
	key, err := newSigningKey(name)
	if err == nil {
		k.Ring.Add(key)
	}
	return err
}

// Vars returns the variables of the playbooks that carry the keys to the masters: the one that signs, and the public
// halves of all, that of the signer first.
func (k SigningKeys) Vars() map[string]string {
	var public strings.Builder
	for _, one := range k.Keys {
		public.WriteString(one.Public)
	}
	return map[string]string{"pki_sa_key": k.Keys[0].Key.Reveal(), "pki_sa_pub": public.String()}
}

func newSigningKey(name string) (SigningKey, error) {
	const op = "pki.signing_key"
	key, err := rsa.GenerateKey(rand.Reader, minRSABits)
	if err != nil {
		return SigningKey{}, director.Errorf(director.KindInternal, op, "cannot make the service account key: %w", err)
	}
	public, err := x509.MarshalPKIXPublicKey(key.Public())
	if err != nil {
		return SigningKey{}, director.Errorf(
			director.KindInternal, op, "cannot encode the service account key: %w", err,
		)
	}
	return SigningKey{
		name, director.Secret(encode(pemRSAKey, x509.MarshalPKCS1PrivateKey(key))), encode(pemPublicKey, public),
		time.Now().UTC().Truncate(time.Second),
	}, nil
}

// signingWire is how SigningKeys look inside their seal.
type signingWire struct {
	Keys   []signingKeyWire `json:"keys"`
	Former []string         `json:"former,omitempty"`
}

type signingKeyWire struct {
	Name   string    `json:"name"`
	Key    string    `json:"key"`
	Public string    `json:"public"`
	Made   time.Time `json:"made,omitzero"`
}

// Seal returns k in a form that may be stored under that owner and name. UnsealSigningKeys is its inverse.
func (k SigningKeys) Seal(s Sealer, owner, name string) ([]byte, error) {
	w := signingWire{Former: k.Former}
	for _, one := range k.Keys {
		w.Keys = append(w.Keys, signingKeyWire{one.Name, one.Key.Reveal(), one.Public, one.Made})
	}
	plain, err := json.Marshal(w)
	if err != nil {
		return nil, director.Errorf(
			director.KindInternal, "pki.seal", "cannot encode the service account keys: %w", err,
		)
	}
	return s.Seal(owner, name, plain)
}

// UnsealSigningKeys returns what SigningKeys.Seal sealed. Its errors are the sealer's, and internal when what was
// sealed are no keys.
func UnsealSigningKeys(s Sealer, owner, name string, sealed []byte) (SigningKeys, error) {
	plain, err := s.Unseal(owner, name, sealed)
	if err != nil {
		return SigningKeys{}, err
	}
	var w signingWire
	if json.Unmarshal(plain, &w) != nil || len(w.Keys) == 0 {
		// The decoder's error is left out: it may quote what it read.
		return SigningKeys{}, director.Errorf(
			director.KindInternal, "pki.unseal", "the stored service account keys of the cluster cannot be read",
		)
	}
	k := SigningKeys{Ring[SigningKey]{Former: w.Former}}
	for _, one := range w.Keys {
		k.Keys = append(k.Keys, SigningKey{one.Name, director.Secret(one.Key), one.Public, one.Made})
	}
	return k, nil
}
