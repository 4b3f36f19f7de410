package api

import (
	"context"
	"errors"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/audit"
	"github.com/director-kaas/kaas/director/auth"
)

// Entrance is what Logins ask whether a password is right.
type Entrance interface {
	Login(ctx context.Context, l auth.Login) (director.Secret, director.Actor, error)
}

// Logins let users in with their passwords, and slow down who guesses those. Whatever takes passwords shares one.
// Safe for concurrent use.
type Logins struct {
	auth  Entrance
	limit *loginLimit
}

// NewLogins returns Logins with a limit of their own. now is the clock; nil means time.Now.
func NewLogins(by Entrance, now func() time.Time) *Logins {
	if now == nil {
		now = time.Now
	}
	return &Logins{auth: by, limit: newLoginLimit(now)}
}

// or returns Logins for the API alone if there are none.
func (l *Logins) or(c Config) *Logins {
	if l == nil {
		return NewLogins(c.Auth, c.Now)
	}
	return l
}

// Enter is a login that did not come to the API. Errors: those of auth.Service.Login, and exhausted for who has to
// wait.
func (l *Logins) Enter(ctx context.Context, login auth.Login, trail Audit) (director.Secret, director.Actor, error) {
	record := func(ctx context.Context, actor, action, object string, err error) error {
		return trail.Attempt(ctx, audit.Attempt{Actor: actor, Action: action, Object: object, Err: err})
	}
	token, actor, err := l.enter(ctx, login, record)
	if p, ok := errors.AsType[*problem](err); ok {
		err = director.Errorf(director.KindExhausted, "api.login", "%s", p.Detail).WithHint("%s", p.Hint)
	}
	return token, actor, err
}

func (l *Logins) enter(
	ctx context.Context, login auth.Login,
	record func(ctx context.Context, actor, action, object string, err error) error,
) (director.Secret, director.Actor, error) {
	login.User = strings.ToLower(login.User) // directories take any case; the limit counts one name once
	err := l.limit.take(login.User, login.Address)
	var token director.Secret
	var actor director.Actor
	if err == nil {
		token, actor, err = l.auth.Login(ctx, login)
	}
	// An attempt that cannot be recorded gets no token.
	if aerr := record(ctx, actor.User, "login", "User/"+login.User, err); err == nil {
		err = aerr
	}
	if err != nil {
		return "", director.Actor{}, err
	}
	l.limit.succeeded(login.User, login.Address)
	return token, actor, nil
}
