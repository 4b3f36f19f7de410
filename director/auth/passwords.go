package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"strings"
	"time"

	"golang.org/x/crypto/argon2"
	"golang.org/x/crypto/bcrypt"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/cores"
)

// Params say how much work it is to compare a password.
type Params struct {
	MemoryKiB uint32
	Passes    uint32
}

// DefaultParams are those that OWASP recommends for argon2id with one thread.
func DefaultParams() Params { return Params{MemoryKiB: 19 << 10, Passes: 2} }

const (
	saltBytes = 16
	keyBytes  = 32
	// What a stored hash may ask for: the database must not make the director run out of memory.
	mostMemoryKiB = 256 << 10
	mostPasses    = 16
)

func (p Params) good() bool {
	return p.MemoryKiB >= 8 && p.MemoryKiB <= mostMemoryKiB && p.Passes >= 1 && p.Passes <= mostPasses
}

func (p Params) prefix() string {
	return fmt.Sprintf("$argon2id$v=%d$m=%d,t=%d,p=1$", argon2.Version, p.MemoryKiB, p.Passes)
}

// hash returns a new hash of the password with its salt and parameters, in the usual format.
func (p Params) hash(password string) string {
	salt := make([]byte, saltBytes)
	_, _ = rand.Read(salt) // never fails: it ends the process instead
	key := argon2.IDKey([]byte(password), salt, p.Passes, p.MemoryKiB, 1, keyBytes)
	enc := base64.RawStdEncoding
	return p.prefix() + enc.EncodeToString(salt) + "$" + enc.EncodeToString(key)
}

// HashPassword returns a new hash of the password, argon2id in the usual format, for EnsureAdminHash. It says nothing
// of whether the password may be used: CheckPassword does.
func HashPassword(password director.Secret) string { return DefaultParams().hash(password.Reveal()) }

// CheckHash returns an invalid error if the director cannot compare passwords with the hash. field names it in the
// error, which does not hold the hash.
func CheckHash(field, hash string) error {
	if _, _, _, ok := parse(hash); ok {
		return nil
	}
	return director.Invalid("auth.password", "the hash of the password cannot be used", []director.Field{{
		Path: field, Msg: "is no argon2id hash with a salt of 16 bytes, a key of 32 bytes and p=1",
		Hint: "make one with: director setup hash",
	}})
}

// hasher hashes passwords, only a few at once. Half of the processors are left to everything else, so that a flood of
// logins does not hold up other requests.
type hasher struct {
	params Params
	slots  chan struct{}
}

// slotWithin is how long a login waits for its turn.
const slotWithin = 5 * time.Second

func newHasher(p Params) (*hasher, error) {
	if p == (Params{}) {
		p = DefaultParams()
	}
	if !p.good() {
		return nil, director.Errorf(director.KindInvalid, "auth.new", "the parameters of argon2id are out of range")
	}
	return &hasher{params: p, slots: make(chan struct{}, max(1, cores.Count()/2))}, nil
}

// turn waits for a slot and returns what frees it.
func (h *hasher) turn(ctx context.Context) (func(), error) {
	timer := time.NewTimer(slotWithin)
	defer timer.Stop()
	select {
	case h.slots <- struct{}{}:
		return func() { <-h.slots }, nil
	case <-timer.C:
	case <-ctx.Done():
	}
	return nil, director.Errorf(director.KindUnavailable, "auth.login", "too many logins at once").
		WithHint("try again")
}

// Hash returns what is kept of the password.
func (h *hasher) Hash(ctx context.Context, password director.Secret) (string, error) {
	done, err := h.turn(ctx)
	if err != nil {
		return "", err
	}
	defer done()
	return h.params.hash(password.Reveal()), nil
}

// current reports whether the hash was made with the parameters of today.
func (h *hasher) current(hash string) bool { return strings.HasPrefix(hash, h.params.prefix()) }

// matches compares a password with a hash, of an older director too. A password that is too long is compared with
// nothing: it costs as much as any other.
func (h *hasher) matches(ctx context.Context, hash string, password director.Secret) (bool, error) {
	done, err := h.turn(ctx)
	if err != nil {
		return false, err
	}
	defer done()
	text := password.Reveal()
	if len(text) > maxPassword {
		text = ""
	}
	if strings.HasPrefix(hash, "$2") {
		return bcrypt.CompareHashAndPassword([]byte(hash), digest(text)) == nil, nil
	}
	p, salt, key, ok := parse(hash)
	if !ok {
		return false, nil
	}
	got := argon2.IDKey([]byte(text), salt, p.Passes, p.MemoryKiB, 1, uint32(len(key)))
	return subtle.ConstantTimeCompare(got, key) == 1, nil
}

// parse reads what Params.hash writes.
func parse(hash string) (p Params, salt, key []byte, ok bool) {
	parts := strings.Split(hash, "$")
	if len(parts) != 6 {
		return p, nil, nil, false
	}
	if _, err := fmt.Sscanf(parts[3], "m=%d,t=%d,p=1", &p.MemoryKiB, &p.Passes); err != nil || !p.good() {
		return p, nil, nil, false
	}
	salt, err1 := base64.RawStdEncoding.DecodeString(parts[4])
	key, err2 := base64.RawStdEncoding.DecodeString(parts[5])
	ok = err1 == nil && err2 == nil && len(salt) == saltBytes && len(key) == keyBytes &&
		strings.HasPrefix(hash, p.prefix())
	return p, salt, key, ok
}

// digest shortens a password of any length to what bcrypt takes, without zero bytes. Hashes of older directors are made
// of it.
func digest(password string) []byte {
	sum := sha256.Sum256([]byte(password))
	return []byte(base64.RawStdEncoding.EncodeToString(sum[:]))
}
