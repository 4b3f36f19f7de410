// Package seal encrypts the secrets that the director stores. The key is a file outside the database, so that neither a
// copy of the database nor a copy of the key alone is of use.
//
// The format is age (https://age-encryption.org) with an X25519 key, so that a sealed value can also be opened by hand:
// age -d -i KEYFILE. Each value is bound to its place in the database, see bind.go.
package seal

import (
	"bytes"
	"crypto/hkdf"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"filippo.io/age"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/whole"
)

// Box seals and unseals with one key. Safe for concurrent use.
type Box struct {
	identity *age.X25519Identity
	binding  []byte // the key of the tags that bind sealed bytes to their place
	path     string
	lenient  atomic.Bool
}

// Open returns the box whose key is in the file at path. When there is no such file and create is true, a new key is
// made there with mode 0600; of two that create at once, both get the one key. Errors: not_found without the file,
// forbidden when others than its owner may read it, invalid when it holds no key.
func Open(path string, create bool) (*Box, error) {
	const op = "seal.open"
	if create {
		if err := ensure(path); err != nil {
			return nil, director.Errorf(director.KindInternal, op, "cannot make the sealing key %s: %w", path, err).
				WithHint("check the space and the permissions of its directory")
		}
	}
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, director.Errorf(director.KindNotFound, op, "the sealing key %s does not exist", path).
			WithHint("restore it from a backup: without it, the director cannot read what it has sealed")
	case err != nil:
		return nil, director.Errorf(director.KindInternal, op, "cannot read the sealing key %s: %w", path, err)
	case info.Mode().Perm()&0o077 != 0:
		return nil, director.Errorf(
			director.KindForbidden, op, "others may read the sealing key %s (mode %04o)", path, info.Mode().Perm(),
		).
			WithHint("chmod 600 %s", path)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, director.Errorf(director.KindInternal, op, "cannot read the sealing key %s: %w", path, err)
	}
	// The parser's errors are left out: they may quote a damaged key.
	ids, err := age.ParseIdentities(bytes.NewReader(text))
	if err == nil && len(ids) == 1 {
		if id, ok := ids[0].(*age.X25519Identity); ok {
			return newBox(id, path)
		}
	}
	return nil, director.Errorf(director.KindInvalid, op, "%s does not hold one age X25519 key", path).
		WithHint("restore the right file from a backup; one of its lines begins with AGE-SECRET-KEY-1")
}

// Derive returns a key for one purpose, which only those with the sealing key can compute. It says nothing
// of the sealing key, nor of keys for other purposes (HKDF-SHA256, RFC 5869).
func (b *Box) Derive(purpose string) ([]byte, error) {
	return hkdf.Key(sha256.New, []byte(b.identity.String()), nil, "director/"+purpose, sha256.Size)
}

// Public returns the public half of the key, by which people can tell keys apart.
func (b *Box) Public() string { return b.identity.Recipient().String() }

// Seal encrypts and authenticates plain for the row of that owner and name. Two calls never give the same bytes.
func (b *Box) Seal(owner, name string, plain []byte) ([]byte, error) {
	var out bytes.Buffer
	w, err := age.Encrypt(&out, place{b, owner, name})
	if err == nil {
		_, err = w.Write(plain)
		err = errors.Join(err, w.Close())
	}
	if err != nil {
		return nil, director.Errorf(director.KindInternal, "seal.seal", "cannot seal: %w", err)
	}
	return out.Bytes(), nil
}

// Unseal returns what Seal was given for that owner and name. The error is internal, and its hint says whether the key
// is another one, the sealed bytes are damaged, or they belong to another row.
func (b *Box) Unseal(owner, name string, sealed []byte) ([]byte, error) {
	plain, err := b.open(place{b, owner, name}, sealed)
	if b.lenient.Load() && errors.Is(err, errUnbound) {
		plain, err = b.open(b.identity, sealed)
	}
	return plain, b.explain(owner, name, err)
}

func (b *Box) open(identity age.Identity, sealed []byte) ([]byte, error) {
	// A reader of a stream would take two buffers of 64 KiB for each small secret; this one takes one.
	r, size, err := age.DecryptReaderAt(bytes.NewReader(sealed), int64(len(sealed)), identity)
	if err != nil {
		return nil, err
	}
	plain := make([]byte, size)
	_, err = io.ReadFull(io.NewSectionReader(r, 0, size), plain)
	return plain, err
}

func (b *Box) explain(owner, name string, err error) error {
	const op = "seal.unseal"
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*age.NoIdentityMatchError](err); ok {
		return director.Errorf(director.KindInternal, op, "this was sealed with another key than %s: %w", b.path, err).
			WithHint("restore the sealing key of this database")
	}
	switch {
	case errors.Is(err, errElsewhere):
		return director.Errorf(
			director.KindInternal, op, "what was sealed as %s of %s belongs to another row: %w", name, owner, err,
		).
			WithHint("someone changed the database: find out who can write to it, and restore it from a backup")
	case errors.Is(err, errUnbound):
		return director.Errorf(
			director.KindInternal, op, "what was sealed as %s of %s is not bound to its row: %w", name, owner, err,
		).
			WithHint("if the database comes from a backup by an older director, stop this one, remove %s and start "+
				"it again; otherwise someone changed "+
				"the database: find out who can write to it", filepath.Join(filepath.Dir(b.path), BoundFile))
	}
	return director.Errorf(director.KindInternal, op, "what was sealed is damaged: %w", err).
		WithHint("restore the database from a backup")
}

// ensure makes the key file when there is none. It never replaces another.
func ensure(path string) error {
	if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	id, err := age.GenerateX25519Identity()
	if err != nil {
		return err
	}
	text := fmt.Appendf(
		nil, "# created: %s\n# public key: %s\n%s\n", time.Now().UTC().Format(time.RFC3339), id.Recipient(), id,
	)
	if err := whole.Add(path, text, 0o600); !errors.Is(err, fs.ErrExist) {
		return err
	}
	return nil
}

// Recipient is who can open what is encrypted for this key.
func (b *Box) Recipient() age.Recipient { return b.identity.Recipient() }

// Identity opens what is encrypted for this key. It reveals nothing when it is printed.
func (b *Box) Identity() age.Identity { return opener{b.identity} }

// opener hides the key of an identity.
type opener struct{ age.Identity }

// String implements fmt.Stringer.
func (opener) String() string { return "the sealing key" }
