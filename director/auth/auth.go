// Package auth knows who asks and what they may do: local users with passwords, opaque bearer tokens, and one pure
// rule.
//
// A password is kept as a bcrypt hash of its SHA-256, a token as its SHA-256 alone, because it is random and long.
// Neither can be read back from the store.
package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/director-kaas/kaas/director"
)

// AdminName is the user that the first start creates.
const AdminName = "admin"

// MinPassword is the least number of characters of a password.
const MinPassword = 12

// maxPassword bounds the work that a caller can cause.
const maxPassword = 256

// Store keeps users and tokens. Get and List return copies. All methods are safe for concurrent use and return
// *director.Error; Get returns not_found for what is absent, Put creates or replaces, Delete is no error if already
// gone.
//
// It has eight methods because users and tokens are two tables with one transaction around none of them.
type Store interface {
	GetUser(ctx context.Context, name string) (director.User, error)
	PutUser(ctx context.Context, u director.User) error
	DeleteUser(ctx context.Context, name string) error
	ListUsers(ctx context.Context) ([]director.User, error)

	GetToken(ctx context.Context, hash string) (director.Token, error)
	PutToken(ctx context.Context, t director.Token) error
	DeleteToken(ctx context.Context, hash string) error
	// ListTokens returns the tokens of a user, or of all for "".
	ListTokens(ctx context.Context, user string) ([]director.Token, error)
}

// Config sets what New may leave to defaults.
type Config struct {
	TokenTTL time.Duration    // how long a token is good for; 0 means 12 hours
	Cost     int              // of bcrypt; 0 means 11
	Now      func() time.Time // the clock; nil means time.Now
	// OneTimeTTL is how long a one-time password is good for; 0 means 24 hours.
	OneTimeTTL time.Duration
	// Changed is called with users whose password was changed; it may be nil.
	Changed func(user string)
}

// Service authenticates. It is safe for concurrent use.
type Service struct {
	store Store
	ttl   time.Duration
	cost  int
	now   func() time.Time
	once  time.Duration
	told  func(user string)
	busy  chan struct{} // bounds how many passwords are hashed at once
	dummy []byte        // compared for users that do not exist, so that the answer takes as long
}

// New returns a service over store. It fails only for a bcrypt cost out of range.
func New(store Store, c Config) (*Service, error) {
	if c.TokenTTL == 0 {
		c.TokenTTL = 12 * time.Hour
	}
	if c.Cost == 0 {
		c.Cost = 11
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.OneTimeTTL == 0 {
		c.OneTimeTTL = 24 * time.Hour
	}
	if c.Changed == nil {
		c.Changed = func(string) {}
	}
	dummy, err := bcrypt.GenerateFromPassword(digest("nobody"), c.Cost)
	if err != nil {
		return nil, fmt.Errorf("auth: %w", err)
	}
	return &Service{
		store: store, ttl: c.TokenTTL, cost: c.Cost, now: c.Now, once: c.OneTimeTTL, told: c.Changed,
		busy: make(chan struct{}, runtime.GOMAXPROCS(0)), dummy: dummy,
	}, nil
}

// digest shortens a password of any length to what bcrypt takes, without zero bytes.
func digest(password string) []byte {
	sum := sha256.Sum256([]byte(password))
	return []byte(base64.RawStdEncoding.EncodeToString(sum[:]))
}

func hashOf(token director.Secret) string {
	sum := sha256.Sum256([]byte(token.Reveal()))
	return hex.EncodeToString(sum[:])
}

func (s *Service) hash(ctx context.Context, password string) (string, error) {
	select {
	case s.busy <- struct{}{}:
		defer func() { <-s.busy }()
	case <-ctx.Done():
		return "", ctx.Err()
	}
	b, err := bcrypt.GenerateFromPassword(digest(password), s.cost)
	return string(b), err
}

func (s *Service) matches(ctx context.Context, hash []byte, password string) (bool, error) {
	select {
	case s.busy <- struct{}{}:
		defer func() { <-s.busy }()
	case <-ctx.Done():
		return false, ctx.Err()
	}
	return bcrypt.CompareHashAndPassword(hash, digest(password)) == nil, nil
}

// CheckPassword returns an invalid error if the password may not be used. field names it in the error.
func CheckPassword(field string, password director.Secret) error {
	p := password.Reveal()
	switch n := len([]rune(p)); {
	case n < MinPassword:
		return director.Invalid("auth.password", "the password is too short", []director.Field{{
			Path: field, Msg: fmt.Sprintf("has %d characters", n), Hint: fmt.Sprintf("%d or more", MinPassword),
		}})
	case len(p) > maxPassword:
		return director.Invalid("auth.password", "the password is too long", []director.Field{{
			Path: field, Msg: fmt.Sprintf("has %d bytes", len(p)), Hint: fmt.Sprintf("%d or fewer", maxPassword),
		}})
	case strings.ContainsAny(p, "\r\n\x00"):
		return director.Invalid("auth.password", "the password holds a line end or a zero byte", []director.Field{{
			Path: field, Msg: "must be one line",
		}})
	}
	return nil
}

// EnsureAdmin creates the admin user if there is no user at all, and reports whether it did. With an initial password
// from the installation's configuration that is the password; without one, a random password is returned that must be
// shown once and changed at the first login.
func (s *Service) EnsureAdmin(
	ctx context.Context, initial director.Secret,
) (oneTime director.Secret, created bool, err error) {
	users, err := s.store.ListUsers(ctx)
	if err != nil || len(users) > 0 {
		return "", false, err
	}
	password := initial
	if password == "" {
		password = director.Secret(random(18))
		oneTime = password
	} else if err := CheckPassword("initial password", password); err != nil {
		return "", false, err
	}
	hash, err := s.hash(ctx, password.Reveal())
	if err != nil {
		return "", false, fmt.Errorf("auth: %w", err)
	}
	now := s.now().UTC()
	u := director.User{
		Name: AdminName, Role: director.RoleAdmin, PasswordHash: hash, MustChange: oneTime != "", Created: now,
		Updated: now,
	}
	if err := s.store.PutUser(ctx, u); err != nil {
		return "", false, err
	}
	return oneTime, true, nil
}

func random(bytes int) string {
	b := make([]byte, bytes)
	_, _ = rand.Read(b) // never fails: it ends the process instead
	return base64.RawURLEncoding.EncodeToString(b)
}

func wrongPassword() error {
	return &director.Error{
		Kind: director.KindUnauthenticated, Op: "auth.login", Msg: "the user or the password is wrong",
	}
}

// Login returns a new token for the user with the password. An unknown user and a wrong password give the same error,
// after about the same time.
func (s *Service) Login(
	ctx context.Context, name string, password director.Secret,
) (director.Secret, director.Actor, error) {
	u, err := s.store.GetUser(ctx, name)
	hash := []byte(u.PasswordHash)
	if err != nil {
		if director.KindOf(err) != director.KindNotFound {
			return "", director.Actor{}, err
		}
		hash = s.dummy
	}
	ok, matchErr := s.matches(ctx, hash, password.Reveal())
	if matchErr != nil {
		return "", director.Actor{}, director.Errorf(director.KindUnavailable, "auth.login", "too many logins at once").
			WithHint("try again")
	}
	if err != nil || !ok {
		return "", director.Actor{}, wrongPassword()
	}
	if s.expired(u) {
		return "", director.Actor{}, director.Errorf(
			director.KindUnauthenticated, "auth.login", "the one-time password has expired",
		).
			WithHint("start the director again: it writes a new one to its file")
	}
	s.sweep(ctx)
	token := director.Secret("kaas_" + random(32))
	now := s.now().UTC()
	t := director.Token{Hash: hashOf(token), User: u.Name, Created: now, Expires: now.Add(s.ttl)}
	if err := s.store.PutToken(ctx, t); err != nil {
		return "", director.Actor{}, err
	}
	return token, actorOf(u, t), nil
}

// sweep removes tokens that have ended. A failure leaves them for the next login: they are refused anyway.
func (s *Service) sweep(ctx context.Context) {
	tokens, err := s.store.ListTokens(ctx, "")
	if err != nil {
		return
	}
	for _, t := range tokens {
		if !s.now().Before(t.Expires) {
			_ = s.store.DeleteToken(ctx, t.Hash)
		}
	}
}

func actorOf(u director.User, t director.Token) director.Actor {
	return director.Actor{User: u.Name, Role: u.Role, MustChange: u.MustChange, Expires: t.Expires, TokenHash: t.Hash}
}

// Authenticate returns whose token it is, or unauthenticated.
func (s *Service) Authenticate(ctx context.Context, token director.Secret) (director.Actor, error) {
	fail := func(msg string) (director.Actor, error) {
		return director.Actor{}, &director.Error{
			Kind: director.KindUnauthenticated, Op: "auth.token", Msg: msg, Hint: "log in again",
		}
	}
	if token == "" {
		return fail("a token is needed")
	}
	// The lookup is by the hash: its timing tells about hashes, which tells nothing about tokens.
	t, err := s.store.GetToken(ctx, hashOf(token))
	switch {
	case director.KindOf(err) == director.KindNotFound:
		return fail("the token is not valid")
	case err != nil:
		return director.Actor{}, err
	case !s.now().Before(t.Expires):
		return fail("the token has expired")
	}
	u, err := s.store.GetUser(ctx, t.User)
	switch {
	case director.KindOf(err) == director.KindNotFound:
		return fail("the token is not valid")
	case err != nil:
		return director.Actor{}, err
	}
	return actorOf(u, t), nil
}

// Logout ends the actor's token. No error if it has ended.
func (s *Service) Logout(ctx context.Context, a director.Actor) error {
	return s.store.DeleteToken(ctx, a.TokenHash)
}

// Confirm returns nil if the password is the actor's own, and invalid if it is not: a token alone is not enough for
// what is asked.
func (s *Service) Confirm(ctx context.Context, a director.Actor, password director.Secret) error {
	const op = "auth.confirm"
	u, err := s.store.GetUser(ctx, a.User)
	if err != nil {
		return err
	}
	ok, err := s.matches(ctx, []byte(u.PasswordHash), password.Reveal())
	if err != nil {
		return director.Errorf(director.KindUnavailable, op, "too many logins at once").WithHint("try again")
	}
	if !ok {
		return director.Invalid(op, "the password is wrong", []director.Field{{Path: "password", Msg: "is wrong"}})
	}
	return nil
}

// ChangePassword replaces the actor's password and ends all other tokens of the user.
func (s *Service) ChangePassword(ctx context.Context, a director.Actor, current, next director.Secret) error {
	u, err := s.store.GetUser(ctx, a.User)
	if err != nil {
		return err
	}
	ok, err := s.matches(ctx, []byte(u.PasswordHash), current.Reveal())
	if err != nil {
		return director.Errorf(director.KindUnavailable, "auth.password", "too many logins at once").
			WithHint("try again")
	}
	if !ok {
		return director.Invalid("auth.password", "the current password is wrong", []director.Field{
			{Path: "current", Msg: "is wrong"},
		})
	}
	if err := CheckPassword("new", next); err != nil {
		return err
	}
	if next == current {
		return director.Invalid("auth.password", "the new password is the old one", []director.Field{{
			Path: "new", Msg: "is the current password", Hint: "choose another one",
		}})
	}
	hash, err := s.hash(ctx, next.Reveal())
	if err != nil {
		return fmt.Errorf("auth: %w", err)
	}
	u.PasswordHash, u.MustChange, u.Updated = hash, false, s.now().UTC()
	if err := s.store.PutUser(ctx, u); err != nil {
		return err
	}
	s.told(u.Name)
	tokens, err := s.store.ListTokens(ctx, u.Name)
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range tokens {
		if t.Hash != a.TokenHash {
			errs = append(errs, s.store.DeleteToken(ctx, t.Hash))
		}
	}
	return errors.Join(errs...)
}
