package auth_test

import (
	"context"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/auth"
)

// redirecting is a provider where people log in with a browser.
type redirecting struct{}

func (redirecting) Login(context.Context, string, director.Secret, string) (u director.User, ok bool, err error) {
	return u, false, nil
}

func (redirecting) Redirects(context.Context, string) (bool, error) { return true, nil }

// A program is let in by a browser's session that lives, of an enabled user, and its login is as old as the browser's.
func TestLetIn(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	_, users, c := setup(t)
	s, err := auth.New(users, auth.Config{
		Hash: auth.Params{MemoryKiB: 64, Passes: 1}, Now: c.now, People: redirecting{}, Idle: 6 * time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	ann := director.User{Name: "ann", Role: director.RoleUser, Provider: "web", Checked: c.now(), Updated: c.now()}
	enter := func(browser bool) director.Actor {
		_, a, err := s.LoginPerson(ctx, auth.Login{User: "ann", Browser: browser}, ann, nil)
		if err != nil {
			t.Fatal(err)
		}
		return a
	}
	browser, program := enter(true), enter(false)
	c.add(5 * time.Minute)
	_, first, err := s.LetIn(ctx, auth.Login{User: "ann"}, browser.TokenHash)
	if err != nil || first.User != "ann" || first.Kind != director.TokenLogin {
		t.Fatalf("%+v, %v", first, err)
	}
	if err := s.Confirm(ctx, first, ""); err != nil {
		t.Errorf("the browser logged in five minutes ago: %v", err)
	}
	c.add(6 * time.Minute)
	_, second, err := s.LetIn(ctx, auth.Login{User: "ann"}, browser.TokenHash)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Confirm(ctx, second, ""); director.KindOf(err) != director.KindForbidden {
		t.Errorf("the browser logged in eleven minutes ago: %v", err)
	}
	for name, l := range map[string]struct{ user, session string }{
		"another user": {"bob", browser.TokenHash}, "a program's session": {"ann", program.TokenHash},
		"none": {"ann", "nope"},
	} {
		_, _, err := s.LetIn(ctx, auth.Login{User: l.user}, l.session)
		if director.KindOf(err) != director.KindUnauthenticated {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := users.EditUser(ctx, "ann", func(e *director.UserEdit) error {
		e.User.Disabled = c.now()
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	_, _, err = s.LetIn(ctx, auth.Login{User: "ann"}, browser.TokenHash)
	wantKind(t, err, director.KindUnauthenticated)
}
