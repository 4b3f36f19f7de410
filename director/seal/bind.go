package seal

import (
	"crypto/hkdf"
	"crypto/hmac"
	"crypto/sha256"
	"encoding/binary"
	"errors"

	"filippo.io/age"

	"github.com/director-kaas/kaas/director"
)

// A sealed value is bound to its row by a stanza of its own in the age header. Its body is a tag over owner, name and
// the key of the content, made with a key that is derived from the sealing key. So sealed bytes open in no other row,
// and who knows only the public half, which is enough to encrypt, cannot make bytes that open at all. The age tool and
// directors that know nothing of the stanza skip it.
const stanzaType = "director-bound"

// BoundFile exists next to the key file once every row of the database is bound. The daemon keeps it; it is here for
// the hint.
const BoundFile = "sealing.bound"

var (
	errUnbound   = errors.New("its header has no binding")
	errElsewhere = errors.New("its binding is that of another owner or name")
)

func newBox(identity *age.X25519Identity, path string) (*Box, error) {
	key, err := hkdf.Key(sha256.New, []byte(identity.String()), nil, "director sealing: binding", sha256.Size)
	if err != nil {
		return nil, director.Errorf(
			director.KindInternal, "seal.open", "cannot derive from the sealing key %s: %w", path, err,
		)
	}
	return &Box{identity: identity, binding: key, path: path}, nil
}

// AcceptUnbound says whether Unseal opens what an older director sealed without a binding. A box that was just opened
// does not.
func (b *Box) AcceptUnbound(yes bool) { b.lenient.Store(yes) }

// Bind returns sealed bound to owner and name if it has no binding yet, and nil if it has one, whichever. Errors are
// those of Unseal.
func (b *Box) Bind(owner, name string, sealed []byte) ([]byte, error) {
	_, err := b.open(place{b, owner, name}, sealed)
	if err == nil || errors.Is(err, errElsewhere) {
		return nil, nil
	}
	if !errors.Is(err, errUnbound) {
		return nil, b.explain(owner, name, err)
	}
	plain, err := b.open(b.identity, sealed)
	if err != nil {
		return nil, b.explain(owner, name, err)
	}
	return b.Seal(owner, name, plain)
}

// place is the row that a value is sealed for: to age, both the recipient and the identity.
type place struct {
	box         *Box
	owner, name string
}

// Wrap implements age.Recipient.
func (p place) Wrap(fileKey []byte) ([]*age.Stanza, error) {
	stanzas, err := p.box.identity.Recipient().Wrap(fileKey)
	return append(stanzas, &age.Stanza{Type: stanzaType, Body: p.tag(fileKey)}), err
}

// Unwrap implements age.Identity.
func (p place) Unwrap(stanzas []*age.Stanza) ([]byte, error) {
	fileKey, err := p.box.identity.Unwrap(stanzas)
	if err != nil {
		return nil, err
	}
	bound := false
	for _, s := range stanzas {
		if s.Type != stanzaType {
			continue
		}
		if bound || !hmac.Equal(s.Body, p.tag(fileKey)) {
			return nil, errElsewhere
		}
		bound = true
	}
	if !bound {
		return nil, errUnbound
	}
	return fileKey, nil
}

func (p place) tag(fileKey []byte) []byte {
	mac := hmac.New(sha256.New, p.box.binding)
	for _, part := range [][]byte{[]byte(p.owner), []byte(p.name), fileKey} {
		_ = binary.Write(mac, binary.BigEndian, uint64(len(part))) // a hash never fails
		_, _ = mac.Write(part)
	}
	return mac.Sum(nil)
}
