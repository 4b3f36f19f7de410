// Package auth knows who asks and what they may do: local users with passwords, opaque bearer tokens, and one pure
// rule.
//
// A password is kept as an argon2id hash, a token as its SHA-256 alone, because it is random and long. Neither can be
// read back from the store.
package auth

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
)

// AdminName is the user that the first start creates.
const AdminName = "admin"

// MinPassword is the least number of characters of a password.
const MinPassword = 12

// maxPassword bounds the work that a caller can cause.
const maxPassword = 256

// Store keeps users and tokens. Get and List return copies. All methods are safe for concurrent use and return
// *director.Error; Get and Edit return not_found for what is absent, Delete is no error if already gone.
type Store interface {
	GetUser(ctx context.Context, name string) (director.User, error)
	// GrantsOf returns what grants give to the user and to the user's groups.
	GrantsOf(ctx context.Context, u director.User) ([]director.Granted, error)
	// AddUser stores a new user; conflict if there is one of the name.
	AddUser(ctx context.Context, u director.User, actor string) error
	// EditUser reads, changes and stores a user in one transaction.
	EditUser(ctx context.Context, name string, edit func(*director.UserEdit) error) error
	// UserPage lists users whose names begin with the prefix.
	UserPage(ctx context.Context, prefix string, p director.Page) ([]director.User, *director.Place, error)

	GetToken(ctx context.Context, hash string) (director.Token, error)
	// AddToken stores a token if the user is enabled and has the same password as in seen, and is stale otherwise.
	AddToken(ctx context.Context, t director.Token, seen director.User) error
	// TouchToken notes when the token was last used.
	TouchToken(ctx context.Context, hash string, at time.Time) error
	DeleteToken(ctx context.Context, hash string) error
	// PruneTokens removes tokens that expired before the time.
	PruneTokens(ctx context.Context, before time.Time) error
}

// People are users whom directories keep.
type People interface {
	// Login returns the user whose name and password these are, or ok false. provider narrows to the one that keeps the
	// user; empty asks all.
	Login(
		ctx context.Context, name string, password director.Secret, provider string,
	) (u director.User, ok bool, err error)
	// Redirects reports whether people of the provider have no password here, but log in there with a browser.
	Redirects(ctx context.Context, provider string) (bool, error)
}

// Config sets what New may leave to defaults.
type Config struct {
	People   People           // nil for local users alone
	TokenTTL time.Duration    // how long a login is good for; 0 means 12 hours
	Idle     time.Duration    // a browser's session ends so long after its last use; 0 means 2 hours
	Hash     Params           // of argon2id; zero means DefaultParams
	Now      func() time.Time // the clock; nil means time.Now
	// OneTimeTTL is how long a one-time password is good for; 0 means 24 hours.
	OneTimeTTL time.Duration
	// Changed is called with users whose password was changed; it may be nil.
	Changed func(user string)
}

// Service authenticates. It is safe for concurrent use.
type Service struct {
	*hasher
	store  Store
	people People
	ttl    time.Duration
	idle   time.Duration
	now    func() time.Time
	once   time.Duration
	told   func(user string)
	dummy  string // compared for users that do not exist, so that the answer takes as long

	mu    sync.Mutex
	swept time.Time // when ended tokens were last removed
}

// New returns a service over store. It fails only for parameters out of range.
func New(store Store, c Config) (*Service, error) {
	if c.TokenTTL == 0 {
		c.TokenTTL = 12 * time.Hour
	}
	if c.Idle == 0 {
		c.Idle = 2 * time.Hour
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
	h, err := newHasher(c.Hash)
	if err != nil {
		return nil, err
	}
	return &Service{
		hasher: h, store: store, people: c.People, ttl: c.TokenTTL, idle: c.Idle, now: c.Now, once: c.OneTimeTTL,
		told: c.Changed, dummy: h.params.hash("nobody"),
	}, nil
}

func hashOf(token director.Secret) string {
	sum := sha256.Sum256([]byte(token.Reveal()))
	return hex.EncodeToString(sum[:])
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
	if users, _, err := s.store.UserPage(ctx, "", director.Page{Limit: 1}); err != nil || len(users) > 0 {
		return "", false, err
	}
	password := initial
	if password == "" {
		password = director.Secret(random(18))
		oneTime = password
	} else if err := CheckPassword("initial password", password); err != nil {
		return "", false, err
	}
	hash, err := s.Hash(ctx, password)
	if err != nil {
		return "", false, err
	}
	if err := s.addAdmin(ctx, hash, oneTime != ""); err != nil {
		return "", false, err
	}
	return oneTime, true, nil
}

// EnsureAdminHash creates the admin user with the hash of a password if there is no user at all, and reports whether it
// did. Errors: invalid if the hash is none of HashPassword.
func (s *Service) EnsureAdminHash(ctx context.Context, hash string) (created bool, err error) {
	if users, _, err := s.store.UserPage(ctx, "", director.Page{Limit: 1}); err != nil || len(users) > 0 {
		return false, err
	}
	if err := CheckHash("initial password", hash); err != nil {
		return false, err
	}
	return true, s.addAdmin(ctx, hash, false)
}

func (s *Service) addAdmin(ctx context.Context, hash string, mustChange bool) error {
	now := s.now().UTC()
	return s.store.AddUser(ctx, director.User{
		Name: AdminName, Role: director.RoleAdmin, PasswordHash: hash, MustChange: mustChange, PasswordSet: now,
		Created: now, Updated: now,
	}, firstStart)
}

// firstStart is who makes the first user, for the audit trail.
const firstStart = "director"

// OneTime returns a random password for the user's next login, its hash, and when it ends.
func (s *Service) OneTime(ctx context.Context) (password director.Secret, hash string, expires time.Time, err error) {
	password = director.Secret(random(18))
	hash, err = s.Hash(ctx, password)
	return password, hash, s.now().UTC().Add(s.once), err
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

// Login is a login with a password.
type Login struct {
	User     string
	Password director.Secret
	Address  string // where it comes from, for the list of sessions
	Browser  bool   // the token is for a browser: it ends sooner without use

	entered time.Time // when the person proved who they are; zero for now
}

// Login returns a new token for the user with the password. An unknown user and a wrong password give the same error,
// after about the same time. A service account has no password, and is unknown here.
func (s *Service) Login(ctx context.Context, l Login) (director.Secret, director.Actor, error) {
	fail := func(err error) (director.Secret, director.Actor, error) { return "", director.Actor{}, err }
	u, err := s.store.GetUser(ctx, l.User)
	if s.people != nil && (director.KindOf(err) == director.KindNotFound || err == nil && u.Provider != "") {
		return s.loginPerson(ctx, l, u)
	}
	if err == nil && (u.Service || u.Provider != "") {
		err = wrongPassword()
	}
	hash := u.PasswordHash
	if err != nil {
		if kind := director.KindOf(err); kind != director.KindNotFound && kind != director.KindUnauthenticated {
			return fail(err)
		}
		hash = s.dummy
	}
	ok, matchErr := s.matches(ctx, hash, l.Password)
	switch {
	case matchErr != nil:
		return fail(matchErr)
	case err != nil || !ok:
		return fail(wrongPassword())
	case !u.Disabled.IsZero():
		return fail(userDisabled())
	case s.expired(u):
		return fail(director.Errorf(
			director.KindUnauthenticated, "auth.login", "the one-time password has expired",
		).WithHint("ask an administrator for a new one; a restart of the director makes one for %s", AdminName))
	}
	if u, err = s.rehash(ctx, u, l.Password); err != nil {
		return fail(err)
	}
	return s.grant(ctx, l, u)
}

// grant gives the user a new token.
func (s *Service) grant(ctx context.Context, l Login, u director.User) (director.Secret, director.Actor, error) {
	fail := func(err error) (director.Secret, director.Actor, error) { return "", director.Actor{}, err }
	s.sweep(ctx)
	token := director.Secret("kaas_" + random(32))
	now := s.now().UTC()
	t := director.Token{
		Hash: hashOf(token), User: u.Name, Kind: director.TokenLogin, Scope: director.ScopeAll, Created: now,
		Expires: now.Add(s.ttl), Address: l.Address, Entered: l.entered,
	}
	if l.Browser {
		t.Kind, t.Idle = director.TokenBrowser, s.idle
	}
	switch err := s.store.AddToken(ctx, t, u); director.KindOf(err) {
	case director.KindStale, director.KindNotFound: // disabled, deleted or reset since the password was compared
		return fail(wrongPassword())
	default:
		if err != nil {
			return fail(err)
		}
	}
	a, err := s.actorOf(ctx, u, t)
	return token, a, err
}

// rehash stores the password with the parameters of today, unless the hash has them.
func (s *Service) rehash(ctx context.Context, u director.User, password director.Secret) (director.User, error) {
	if s.current(u.PasswordHash) {
		return u, nil
	}
	hash, err := s.Hash(ctx, password)
	if err != nil {
		return u, err
	}
	was := u.PasswordHash
	err = s.store.EditUser(ctx, u.Name, func(e *director.UserEdit) error {
		if e.User.PasswordHash == was { // otherwise the password was changed meanwhile
			e.User.PasswordHash = hash
			e.User.PasswordSet = s.passwordSet(e.User)
		}
		u = e.User
		return nil
	})
	return u, err
}

// sweepEvery is how often a login removes the tokens that have ended.
const sweepEvery = time.Minute

// sweep removes tokens that have ended. A failure leaves them for a later login: they are refused anyway.
func (s *Service) sweep(ctx context.Context) {
	s.mu.Lock()
	now := s.now()
	due := now.Sub(s.swept) >= sweepEvery
	if due {
		s.swept = now
	}
	s.mu.Unlock()
	if due {
		_ = s.store.PruneTokens(ctx, now)
	}
}

func (s *Service) actorOf(ctx context.Context, u director.User, t director.Token) (director.Actor, error) {
	a := director.Actor{
		User: u.Name, Role: u.Role, Kind: t.Kind, Scope: t.Scope, MustChange: u.MustChange, Expires: t.Ends(),
		TokenHash: t.Hash,
	}
	if u.Role == director.RoleAdmin {
		return a, nil // a grant adds nothing
	}
	var err error
	a.Grants, err = s.store.GrantsOf(ctx, u)
	return a, err
}

// APIToken returns a random token for a program, and what is kept of it.
func (s *Service) APIToken() (token director.Secret, hash string) {
	token = director.Secret("kaas_api_" + random(32))
	return token, hashOf(token)
}

// Authenticate returns whose token it is, or unauthenticated. It is a use of the token.
func (s *Service) Authenticate(ctx context.Context, token director.Secret) (director.Actor, error) {
	t, u, err := s.look(ctx, token)
	if err != nil {
		return director.Actor{}, err
	}
	return s.actorOf(ctx, u, s.touch(ctx, t))
}

// Recheck is Authenticate without being a use of the token: a stream that stays open does not keep a browser's session.
func (s *Service) Recheck(ctx context.Context, token director.Secret) (director.Actor, error) {
	t, u, err := s.look(ctx, token)
	if err != nil {
		return director.Actor{}, err
	}
	return s.actorOf(ctx, u, t)
}

func (s *Service) look(ctx context.Context, token director.Secret) (director.Token, director.User, error) {
	fail := func(msg string) (director.Token, director.User, error) {
		return director.Token{}, director.User{}, refusedToken(msg)
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
		return director.Token{}, director.User{}, err
	case !s.now().Before(t.Ends()):
		return fail("the token has expired")
	}
	u, err := s.holder(ctx, t)
	if err != nil {
		return director.Token{}, director.User{}, err
	}
	return t, u, nil
}

// touchEvery is how exact the time of the last use of a token is. A session that ends without use is noted at least
// touchParts times until then. touchWithin bounds what a request waits for it.
const (
	touchEvery  = 5 * time.Minute
	touchParts  = 60
	touchWithin = 200 * time.Millisecond
)

// touch notes that the token is used, and returns it with what was noted. A failure is no reason to refuse a request.
func (s *Service) touch(ctx context.Context, t director.Token) director.Token {
	now, every := s.now().UTC(), touchEvery
	if t.Idle > 0 {
		every = min(every, t.Idle/touchParts)
	}
	if now.Sub(t.Used) < every {
		return t
	}
	ctx, cancel := context.WithTimeout(ctx, touchWithin)
	defer cancel()
	if err := s.store.TouchToken(ctx, t.Hash, now); err == nil {
		t.Used = now
	}
	return t
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
	var ok bool
	if u.Provider != "" && s.people != nil {
		redirects, err := s.people.Redirects(ctx, u.Provider)
		if err != nil {
			return err
		}
		if redirects {
			return s.confirmRecent(ctx, a, u.Provider)
		}
	}
	if u.Provider != "" && s.people != nil {
		_, ok, err = s.people.Login(ctx, u.Name, password, u.Provider)
	} else {
		ok, err = s.matches(ctx, u.PasswordHash, password)
	}
	if err == nil && !ok {
		err = director.Invalid(op, "the password is wrong", []director.Field{{Path: "password", Msg: "is wrong"}})
	}
	return err
}

// confirmWithin is how recent a login has to be to stand for a password.
const confirmWithin = 10 * time.Minute

// confirmRecent is Confirm for a person who has no password here: the login must have been a moment ago.
func (s *Service) confirmRecent(ctx context.Context, a director.Actor, provider string) error {
	t, err := s.store.GetToken(ctx, a.TokenHash)
	if err != nil {
		return err
	}
	entered := t.Created
	if !t.Entered.IsZero() {
		entered = t.Entered
	}
	if t.Kind != director.TokenAPI && s.now().Sub(entered) < confirmWithin {
		return nil
	}
	return director.Errorf(director.KindForbidden, "auth.confirm", "your login is more than %s ago", confirmWithin).
		WithHint("log out, log in again at %s, and repeat this", provider)
}

// ChangePassword replaces the actor's password and ends all other sessions of the user. API tokens stay: programs use
// them, and creating one needs the password.
func (s *Service) ChangePassword(ctx context.Context, a director.Actor, current, next director.Secret) error {
	u, err := s.store.GetUser(ctx, a.User)
	if err != nil {
		return err
	}
	if u.Provider != "" {
		return director.Errorf(
			director.KindConflict, "auth.password", "the directory %s keeps your password", u.Provider,
		).WithHint("change it there")
	}
	ok, err := s.matches(ctx, u.PasswordHash, current)
	if err != nil {
		return err
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
	hash, err := s.Hash(ctx, next)
	if err != nil {
		return err
	}
	err = s.store.EditUser(ctx, a.User, func(e *director.UserEdit) error {
		if e.User.PasswordHash != u.PasswordHash {
			return director.Errorf(director.KindStale, "auth.password", "the password was changed meanwhile").
				WithHint("log in again")
		}
		now := s.now().UTC()
		e.User.PasswordHash, e.User.MustChange, e.User.PasswordSet, e.User.Updated = hash, false, now, now
		e.EndTokens, e.Keep, e.KeepAPI = true, a.TokenHash, true
		e.Actor, e.Action = a.User, "change password"
		return nil
	})
	if err == nil {
		s.told(a.User)
	}
	return err
}
