package auth

import (
	"context"

	"github.com/director-kaas/kaas/director"
)

// LetIn returns a new token for a program that a person has let in. session is the hash of the session in which the
// person did. It has to live still: what ended it, such as a new password or an administrator, is meant for the program
// too. Errors: unauthenticated.
func (s *Service) LetIn(ctx context.Context, l Login, session string) (director.Secret, director.Actor, error) {
	fail := func(err error) (director.Secret, director.Actor, error) { return "", director.Actor{}, err }
	ended := director.Errorf(
		director.KindUnauthenticated, "auth.let_in", "the session in which the login was allowed has ended",
	).WithHint("log in again")
	t, err := s.store.GetToken(ctx, session)
	switch {
	case director.KindOf(err) == director.KindNotFound:
		return fail(ended)
	case err != nil:
		return fail(err)
	case t.User != l.User || t.Kind != director.TokenBrowser || !s.now().Before(t.Ends()):
		return fail(ended)
	}
	u, err := s.holder(ctx, t)
	if err != nil {
		return fail(err)
	}
	if l.entered = t.Entered; l.entered.IsZero() {
		l.entered = t.Created
	}
	l.Browser = false
	return s.grant(ctx, l, u)
}

// holder returns the user of a token that has not ended, or unauthenticated.
func (s *Service) holder(ctx context.Context, t director.Token) (director.User, error) {
	u, err := s.store.GetUser(ctx, t.User)
	switch {
	case director.KindOf(err) == director.KindNotFound:
		return u, refusedToken("the token is not valid")
	case err != nil:
		return u, err
	case !u.Disabled.IsZero():
		return u, refusedToken("the user is disabled")
	case u.Provider != "" && s.now().Sub(u.Checked) > unconfirmed:
		return u, refusedToken("the directory " + u.Provider + " has not confirmed the user for a day")
	}
	return u, nil
}

func refusedToken(msg string) error {
	return &director.Error{Kind: director.KindUnauthenticated, Op: "auth.token", Msg: msg, Hint: "log in again"}
}
