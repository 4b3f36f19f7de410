package steps

import (
	"crypto/sha256"
	"slices"
	"sync"

	"github.com/director-kaas/kaas/director/pki"
)

// unsealed is a Sealer that remembers the plain text of rows that hold nothing secret: public host keys and whose
// certificates a machine trusts. They are sealed so that no one who can write to the database can change them. Each
// play asks for those of all nodes, and opening a seal takes a tenth of a millisecond.
type unsealed struct {
	pki.Sealer
	mu    sync.Mutex
	plain map[[sha256.Size]byte][]byte
	// public are the public parts of host keys whose private part is sealed with them.
	public map[[sha256.Size]byte]string
}

// unsealedRows bounds what is remembered: some hundred bytes each.
const unsealedRows = 20_000

func newUnsealed(s pki.Sealer) *unsealed {
	return &unsealed{
		Sealer: s, plain: map[[sha256.Size]byte][]byte{}, public: map[[sha256.Size]byte]string{},
	}
}

// rowOf names a row with what it holds: another text is another name.
func rowOf(owner, name string, sealed []byte) [sha256.Size]byte {
	return sha256.Sum256(slices.Concat([]byte(owner+"\x00"+name+"\x00"), sealed))
}

// Unseal returns what the sealer returned for the same row and the same bytes before, or asks it.
func (u *unsealed) Unseal(owner, name string, sealed []byte) ([]byte, error) {
	if name != SecretTrust && name != SecretHostKey {
		return u.Sealer.Unseal(owner, name, sealed)
	}
	row := rowOf(owner, name, sealed)
	u.mu.Lock()
	plain, ok := u.plain[row]
	u.mu.Unlock()
	if ok {
		return slices.Clone(plain), nil
	}
	plain, err := u.Sealer.Unseal(owner, name, sealed)
	if err != nil || name == SecretHostKey && holdsPrivate(owner, name, plain) {
		return plain, err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.plain) >= unsealedRows {
		clear(u.plain)
	}
	u.plain[row] = slices.Clone(plain)
	return plain, nil
}

// hostKey returns the public part of a machine's host key, and remembers that alone of a pair.
func (u *unsealed) hostKey(machine string, sealed []byte) (string, error) {
	row := rowOf(machine, SecretHostKey, sealed)
	u.mu.Lock()
	public, ok := u.public[row]
	u.mu.Unlock()
	if ok {
		return public, nil
	}
	plain, err := u.Sealer.Unseal(machine, SecretHostKey, sealed)
	if err != nil {
		return "", err
	}
	key, err := decodeKey(machine, SecretHostKey, plain)
	if err != nil {
		return "", err
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.public) >= unsealedRows {
		clear(u.public)
	}
	u.public[row] = key.Public
	return key.Public, nil
}

// holdsPrivate reports whether the host key has its private part still.
func holdsPrivate(owner, name string, plain []byte) bool {
	key, err := decodeKey(owner, name, plain)
	return err != nil || key.Private != ""
}
