package auth

import (
	"context"
	"time"

	"github.com/director-kaas/kaas/director"
)

// unconfirmed is how long a user of a directory can go on without an answer of that directory. An attacker
// who cuts the connection to it must not keep a disabled user in.
const unconfirmed = 24 * time.Hour

func userDisabled() error {
	return director.Errorf(director.KindUnauthenticated, "auth.login", "the user is disabled").
		WithHint("ask an administrator to enable it")
}

// loginPerson logs in a user whom a directory keeps. had is the user of the name up to now, empty for none. The first
// login makes the user; each one gives the role of today.
func (s *Service) loginPerson(
	ctx context.Context, l Login, had director.User,
) (director.Secret, director.Actor, error) {
	fail := func(err error) (director.Secret, director.Actor, error) { return "", director.Actor{}, err }
	u, ok, err := s.people.Login(ctx, l.User, l.Password, had.Provider)
	if err != nil {
		return fail(err)
	}
	if !ok {
		if had.Name == "" { // as long as for a local user
			if _, err := s.matches(ctx, s.dummy, l.Password); err != nil {
				return fail(err)
			}
		}
		return fail(wrongPassword())
	}
	if u.Name != l.User {
		return fail(director.Errorf(
			director.KindUnauthenticated, "auth.login", "the directory %s calls you %s", u.Provider, u.Name,
		).WithHint("log in as %s", u.Name))
	}
	return s.admit(ctx, l, u)
}

// LoginPerson is Login for a person whose identity provider says who it is. admitted is called before there is a token;
// nil for nothing.
func (s *Service) LoginPerson(
	ctx context.Context, l Login, u director.User, admitted func(context.Context) error,
) (director.Secret, director.Actor, error) {
	return s.admit(ctx, l, u, admitted)
}

// admit gives a token to a person. The first login makes the user.
func (s *Service) admit(
	ctx context.Context, l Login, u director.User, admitted ...func(context.Context) error,
) (director.Secret, director.Actor, error) {
	fail := func(err error) (director.Secret, director.Actor, error) { return "", director.Actor{}, err }
	_, err := s.store.GetUser(ctx, u.Name)
	if director.KindOf(err) == director.KindNotFound {
		err = s.store.AddUser(ctx, u, "IdentityProvider/"+u.Provider)
	}
	if err != nil && director.KindOf(err) != director.KindConflict { // another login has made it
		return fail(err)
	}
	err = s.store.EditUser(ctx, u.Name, func(e *director.UserEdit) error {
		switch {
		case e.User.Provider != u.Provider: // a local user, or another provider's
			return wrongPassword()
		case e.User.Subject != "" && e.User.Subject != u.Subject:
			return director.Errorf(
				director.KindUnauthenticated, "auth.login", "the name %s belongs to another person of %s", u.Name,
				u.Provider,
			).WithHint("ask an administrator; if the person is gone: directorctl users delete %s", u.Name)
		case !e.User.Disabled.IsZero():
			return userDisabled()
		}
		e.Confirm(u)
		u = e.User
		return nil
	})
	for _, f := range admitted {
		if err == nil && f != nil {
			err = f(ctx)
		}
	}
	if err != nil {
		return fail(err)
	}
	return s.grant(ctx, l, u)
}
