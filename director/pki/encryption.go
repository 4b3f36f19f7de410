package pki

import (
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"slices"
	"time"

	"github.com/director-kaas/kaas/director"
)

// EncryptionKey encrypts Secrets at rest. Its name is in front of each value that it encrypts, and is never used again.
type EncryptionKey struct {
	Name   string
	Secret director.Secret // 32 random bytes in base64
	Made   time.Time       // zero for the first, which is as old as the cluster, and if that is not known
}

// KeyName implements Named.
func (k EncryptionKey) KeyName() string { return k.Name }

// EncryptionKeys are the keys of one cluster. The methods change nothing if what they are to do is done, so a step that
// was cut off can be run again.
type EncryptionKeys struct {
	Keys   []EncryptionKey // that its API servers have: the first encrypts, each decrypts
	Former []EncryptionKey // that nothing in the cluster is encrypted with any more; older backups are
}

// EncryptionKeys returns the keys of a cluster whose key was never changed.
func (p ClusterPKI) EncryptionKeys() EncryptionKeys {
	return EncryptionKeys{Keys: []EncryptionKey{{Name: firstKey, Secret: p.EncryptionKey}}}
}

const firstKey = "key1"

// Add makes a key of the name that decrypts and does not encrypt yet.
func (k *EncryptionKeys) Add(name string) {
	if k.has(name) {
		return
	}
	k.Keys = append(k.Keys, EncryptionKey{
		Name: name, Secret: newEncryptionKey(), Made: time.Now().UTC().Truncate(time.Second),
	})
}

// Use has the key of the name encrypt. It reports whether there is such a key.
func (k *EncryptionKeys) Use(name string) (ok bool) {
	k.Keys, ok = first(k.Keys, name)
	return ok
}

// Drop takes all keys but the one that encrypts from the cluster, and keeps them for older backups.
func (k *EncryptionKeys) Drop() {
	k.Former = slices.Concat(k.Former, k.Keys[1:])
	k.Keys = k.Keys[:1:1]
}

// Recall brings a former key back that decrypts what a backup has. It reports whether the cluster has the key then.
func (k *EncryptionKeys) Recall(name string) bool {
	if k.has(name) {
		return true
	}
	i := indexOf(k.Former, name)
	if i < 0 {
		return false
	}
	k.Keys = append(k.Keys, k.Former[i])
	k.Former = slices.Delete(slices.Clone(k.Former), i, i+1)
	return true
}

func (k *EncryptionKeys) has(name string) bool { return indexOf(k.Keys, name) >= 0 }

func newEncryptionKey() director.Secret {
	key := make([]byte, 32)
	_, _ = rand.Read(key) // never fails
	return director.Secret(base64.StdEncoding.EncodeToString(key))
}

// Var returns the variable of the playbooks that carries the keys to the masters: JSON, and secret.
func (k EncryptionKeys) Var() (string, error) {
	wires := keyWires(k.Keys)
	for i := range wires {
		wires[i].Made = time.Time{} // nodes need no more than the keys
	}
	text, err := json.Marshal(wires)
	return string(text), err
}

// keysWire is how EncryptionKeys look inside their seal.
type keysWire struct {
	Keys   []keyWire `json:"keys"`
	Former []keyWire `json:"former,omitempty"`
}

type keyWire struct {
	Name   string    `json:"name"`
	Secret string    `json:"secret"`
	Made   time.Time `json:"made,omitzero"`
}

func keyWires(keys []EncryptionKey) []keyWire {
	var out []keyWire
	for _, k := range keys {
		out = append(out, keyWire{k.Name, k.Secret.Reveal(), k.Made})
	}
	return out
}

func (w keysWire) keys() (k EncryptionKeys) {
	for _, one := range w.Keys {
		k.Keys = append(k.Keys, EncryptionKey{one.Name, director.Secret(one.Secret), one.Made})
	}
	for _, one := range w.Former {
		k.Former = append(k.Former, EncryptionKey{one.Name, director.Secret(one.Secret), one.Made})
	}
	return k
}

// Seal returns k in a form that may be stored under that owner and name. UnsealEncryptionKeys is its inverse.
func (k EncryptionKeys) Seal(s Sealer, owner, name string) ([]byte, error) {
	plain, err := json.Marshal(keysWire{Keys: keyWires(k.Keys), Former: keyWires(k.Former)})
	if err != nil {
		return nil, director.Errorf(director.KindInternal, "pki.seal", "cannot encode the encryption keys: %w", err)
	}
	return s.Seal(owner, name, plain)
}

// UnsealEncryptionKeys returns what EncryptionKeys.Seal sealed. Its errors are the sealer's, and internal when what was
// sealed are no keys.
func UnsealEncryptionKeys(s Sealer, owner, name string, sealed []byte) (EncryptionKeys, error) {
	plain, err := s.Unseal(owner, name, sealed)
	if err != nil {
		return EncryptionKeys{}, err
	}
	var w keysWire
	if json.Unmarshal(plain, &w) != nil || len(w.Keys) == 0 {
		// The decoder's error is left out: it may quote what it read.
		return EncryptionKeys{}, director.Errorf(
			director.KindInternal, "pki.unseal", "the stored encryption keys of the cluster cannot be read",
		)
	}
	return w.keys(), nil
}
