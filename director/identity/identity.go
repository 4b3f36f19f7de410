// Package identity manages the people who may use the director: their accounts, their roles, and their sessions.
package identity

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
)

// Store keeps users and sessions. All methods are safe for concurrent use and return *director.Error.
type Store interface {
	GetUser(ctx context.Context, name string) (director.User, error)
	AddUser(ctx context.Context, u director.User, actor string) error
	EditUser(ctx context.Context, name string, edit func(*director.UserEdit) error) error
	UserPage(ctx context.Context, prefix string, p director.Page) ([]director.User, *director.Place, error)
	ListTokens(ctx context.Context, user string) ([]director.Token, error)
	CreateToken(ctx context.Context, t director.Token, actor string) error
	RevokeToken(ctx context.Context, user, id string, api bool, actor string, at time.Time) error
}

// Passwords makes one-time passwords and API tokens.
type Passwords interface {
	// APIToken returns a random token for a program, and what is kept of it.
	APIToken() (token director.Secret, hash string)
	// OneTime returns a random password, what is kept of it, and when it ends.
	OneTime(ctx context.Context) (password director.Secret, hash string, expires time.Time, err error)
}

// Config is what New needs. Store, Passwords and Now must be set.
type Config struct {
	Store     Store
	Passwords Passwords
	Now       func() time.Time
	// Changed is called with users whose password was changed; it may be nil.
	Changed func(user string)
}

// Service manages users. It is safe for concurrent use.
type Service struct{ Config }

// New returns a service.
func New(c Config) *Service {
	if c.Changed == nil {
		c.Changed = func(string) {}
	}
	return &Service{c}
}

// OneTime is a password that is shown once, and must be changed at the next login.
type OneTime struct {
	Password director.Secret
	Expires  time.Time
}

// Names of users end up in logs, in the audit trail and in names of Kubernetes' users: they are plain.
var names = regexp.MustCompile(`^[a-z0-9]([a-z0-9._-]{0,61}[a-z0-9])?$`)

// reserved are names under which the director itself acts.
var reserved = []string{"automatic", "director", "fencing", "root", "schedule", "system", "unknown"}

// CheckName returns what is wrong with the name of a user.
func CheckName(name string) []director.Field {
	switch {
	case !names.MatchString(name):
		return []director.Field{{
			Path: "name", Msg: "is not a name for a user",
			Hint: "1 to 63 lower-case letters, digits, dots, dashes and underscores, with a letter or digit at both " +
				"ends",
		}}
	case slices.Contains(reserved, name):
		return []director.Field{{Path: "name", Msg: "is reserved for the director", Hint: "choose another name"}}
	}
	return nil
}

func checkRole(role director.UserRole) []director.Field {
	if slices.Contains(director.UserRoles(), role) {
		return nil
	}
	var known []string
	for _, r := range director.UserRoles() {
		known = append(known, string(r))
	}
	return []director.Field{{Path: "role", Msg: "is not a role", Hint: "one of " + strings.Join(known, ", ")}}
}

// List lists users whose names begin with the prefix.
func (s *Service) List(
	ctx context.Context, prefix string, p director.Page,
) ([]director.User, *director.Place, error) {
	return s.Store.UserPage(ctx, prefix, p)
}

// Get returns one user, or not_found.
func (s *Service) Get(ctx context.Context, name string) (director.User, error) {
	return s.Store.GetUser(ctx, name)
}

// Create makes a user with a one-time password; conflict if there is one of the name.
func (s *Service) Create(
	ctx context.Context, actor, name string, role director.UserRole,
) (director.User, OneTime, error) {
	if p := slices.Concat(CheckName(name), checkRole(role)); len(p) > 0 {
		return director.User{}, OneTime{}, director.Invalid("identity.create", "the user cannot be created", p)
	}
	password, hash, expires, err := s.Passwords.OneTime(ctx)
	if err != nil {
		return director.User{}, OneTime{}, err
	}
	now := s.Now().UTC()
	u := director.User{
		Name: name, Role: role, PasswordHash: hash, MustChange: true, PasswordSet: now, Created: now, Updated: now,
	}
	if err := s.Store.AddUser(ctx, u, actor); err != nil {
		return director.User{}, OneTime{}, err
	}
	return u, OneTime{password, expires}, nil
}

// CreateService makes a service account, which has no password; conflict if there is a user of the name.
func (s *Service) CreateService(
	ctx context.Context, actor, name string, role director.UserRole,
) (director.User, error) {
	if p := slices.Concat(CheckName(name), checkRole(role)); len(p) > 0 {
		return director.User{}, director.Invalid("identity.create", "the service account cannot be created", p)
	}
	now := s.Now().UTC()
	u := director.User{Name: name, Role: role, Service: true, Created: now, Updated: now}
	return u, s.Store.AddUser(ctx, u, actor)
}

// Reset gives a user a new one-time password and ends all sessions. The own password is refused: a stolen session must
// not become a password.
func (s *Service) Reset(ctx context.Context, actor, name string) (director.User, OneTime, error) {
	if actor == name {
		return director.User{}, OneTime{}, director.Errorf(
			director.KindConflict, "identity.reset", "you cannot reset your own password",
		).WithHint("change it with: directorctl password")
	}
	return s.reset(ctx, name, func(e *director.UserEdit) { e.Actor, e.Action = actor, "reset password" })
}

// Rescue gives a user a new one-time password and enables it. It is for the administrator of the machine that the
// director runs on, when no admin can log in.
func (s *Service) Rescue(ctx context.Context, actor, name string) (director.User, OneTime, error) {
	return s.reset(ctx, name, func(e *director.UserEdit) {
		e.User.Disabled = time.Time{}
		e.Actor, e.Action = actor, "BREAK GLASS: enable and reset password on the director's machine"
	})
}

func (s *Service) reset(
	ctx context.Context, name string, more func(*director.UserEdit),
) (u director.User, o OneTime, err error) {
	password, hash, expires, err := s.Passwords.OneTime(ctx)
	if err != nil {
		return u, o, err
	}
	u, err = s.edit(ctx, name, func(e *director.UserEdit) error {
		if e.User.Service {
			return director.Errorf(director.KindConflict, "identity.reset", "%s is a service account", name).
				WithHint("it has no password; create a token with: directorctl users create-token")
		}
		if e.User.Provider != "" {
			return director.Errorf(director.KindConflict, "identity.reset", "the directory %s keeps the password of %s",
				e.User.Provider, name).WithHint("change it there")
		}
		e.User.PasswordHash, e.User.MustChange, e.User.PasswordSet = hash, true, e.User.Updated
		e.EndTokens = true
		more(e)
		return nil
	})
	if err != nil {
		return u, o, err
	}
	s.Changed(name)
	return u, OneTime{password, expires}, nil
}

// Disable ends all sessions and API tokens of the user and refuses new ones. No error if it is so already. The last
// admin is refused.
func (s *Service) Disable(ctx context.Context, actor, name string) (director.User, error) {
	return s.edit(ctx, name, func(e *director.UserEdit) error {
		if err := keepAdmin(*e, "disabled"); err != nil {
			return err
		}
		e.EndTokens = true
		if e.User.Disabled.IsZero() {
			e.User.Disabled = e.User.Updated
			e.Actor, e.Action = actor, "disable"
		}
		return nil
	})
}

// Enable lets the user log in again. No error if it is so already.
func (s *Service) Enable(ctx context.Context, actor, name string) (director.User, error) {
	return s.edit(ctx, name, func(e *director.UserEdit) error {
		if !e.User.Disabled.IsZero() {
			e.User.Disabled = time.Time{}
			e.Actor, e.Action = actor, "enable"
		}
		return nil
	})
}

// SetRole gives the user another role. It counts from the next request. The last admin stays one.
func (s *Service) SetRole(ctx context.Context, actor, name string, role director.UserRole) (director.User, error) {
	if p := checkRole(role); len(p) > 0 {
		return director.User{}, director.Invalid("identity.role", "the role cannot be set", p)
	}
	return s.edit(ctx, name, func(e *director.UserEdit) error {
		if e.User.Role == role {
			return nil
		}
		if e.User.Provider != "" {
			return director.Errorf(director.KindConflict, "identity.role", "the groups in the directory %s decide "+
				"about the role of %s", e.User.Provider, name).
				WithHint("change the person's groups there, or spec.roles of IdentityProvider/%s", e.User.Provider)
		}
		if err := keepAdmin(*e, "given another role"); err != nil {
			return err
		}
		e.Actor, e.Action = actor, "change role from "+string(e.User.Role)+" to "+string(role)
		e.User.Role = role
		return nil
	})
}

// Delete removes the user with all sessions. The last admin is refused, and so is a user whom a Grant names: it would
// count for the next user of the name.
func (s *Service) Delete(ctx context.Context, actor, name string) error {
	_, err := s.edit(ctx, name, func(e *director.UserEdit) error {
		if len(e.Grants) > 0 {
			return director.Errorf(
				director.KindConflict, "identity.delete", "user %s stays: Grant/%s names it", name, e.Grants[0],
			).WithHint("remove the user from it first; to lock the user out now: directorctl users disable %s", name)
		}
		e.Delete, e.Actor, e.Action = true, actor, "delete"
		return keepAdmin(*e, "deleted")
	})
	return err
}

// edit changes a user; the time of the change is set before.
func (s *Service) edit(
	ctx context.Context, name string, change func(*director.UserEdit) error,
) (u director.User, err error) {
	err = s.Store.EditUser(ctx, name, func(e *director.UserEdit) error {
		e.User.Updated = s.Now().UTC()
		err := change(e)
		u = e.User
		return err
	})
	return u, err
}

// keepAdmin refuses to take away the last admin who can log in.
func keepAdmin(e director.UserEdit, what string) error {
	local := !e.User.Service && e.User.Provider == "" // programs have no password, and a directory can be away
	if e.User.Role != director.RoleAdmin || !local || !e.User.Disabled.IsZero() || !e.LastAdmin {
		return nil
	}
	return director.Errorf(
		director.KindConflict, "identity.admin", "%s is the last enabled admin and cannot be %s", e.User.Name, what,
	).WithHint("create or enable another admin first")
}

// Sessions lists the user's sessions that have not ended, the newest first; not_found if there is no such user.
func (s *Service) Sessions(ctx context.Context, name string) ([]director.Token, error) {
	return s.list(ctx, name, func(t director.Token) bool { return t.Kind != director.TokenAPI })
}

func (s *Service) list(ctx context.Context, name string, keep func(director.Token) bool) ([]director.Token, error) {
	if _, err := s.Store.GetUser(ctx, name); err != nil {
		return nil, err
	}
	tokens, err := s.Store.ListTokens(ctx, name)
	if err != nil {
		return nil, err
	}
	now := s.Now()
	tokens = slices.DeleteFunc(tokens, func(t director.Token) bool { return !now.Before(t.Ends()) || !keep(t) })
	slices.SortStableFunc(tokens, func(a, b director.Token) int { return b.Created.Compare(a.Created) })
	return tokens, nil
}

// Revoke ends one session of the user, or is not_found.
func (s *Service) Revoke(ctx context.Context, actor, name, id string) error {
	return s.Store.RevokeToken(ctx, name, id, false, actor, s.Now().UTC())
}
