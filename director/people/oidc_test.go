package people_test

import (
	"sync"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/oidc/oidctest"
	"github.com/director-kaas/kaas/director/people"
	"github.com/director-kaas/kaas/director/store"
)

// webProvider starts a provider and stores its document.
func (w *world) webProvider(t *testing.T, scopes ...string) *oidctest.Server {
	t.Helper()
	s := oidctest.Start(t, director1+people.CallbackPath)
	doc := model.Document{
		Kind: model.KindIdentityProvider, Metadata: model.Metadata{Name: "web"},
		IdentityProvider: &model.IdentityProvider{
			Type: model.IdentityOIDC, Issuer: s.Issuer, CA: string(s.CA), Credentials: "web", Scopes: scopes,
			Refresh: model.Duration(10 * time.Minute),
			Roles:   []model.GroupRole{{Group: "ops", Role: "operator"}, {Group: "readers", Role: "user"}},
		},
	}
	if err := w.db.Update(t.Context(), func(tx *store.Tx) error {
		return tx.PutDocument(doc, "test", w.now())
	}); err != nil {
		t.Fatal(err)
	}
	return s
}

// browse logs the person in with a browser.
func (w *world) browse(t *testing.T, s *oidctest.Server, name string) (director.Secret, director.Actor) {
	t.Helper()
	to, kept, err := w.people.Begin(t.Context(), "web", "")
	if err != nil {
		t.Fatal(err)
	}
	q := s.LogIn(t, s.Browser(t, nil), to, name, "right").Query()
	a, err := w.people.Finish(t.Context(), kept, people.Answer{State: q.Get("state"), Code: q.Get("code")})
	if err != nil {
		t.Fatal(err)
	}
	token, actor, err := w.auth.LoginPerson(
		t.Context(), auth.Login{User: a.User.Name, Browser: true}, a.User, a.Admitted,
	)
	if err != nil {
		t.Fatal(err)
	}
	return token, actor
}

// The director asks the provider again whether people still may be in, and with which groups.
func TestRefreshAtAProvider(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.webProvider(t, "profile", "offline_access")
	s.Person("1", "ann", "right", "ops")
	token, actor := w.browse(t, s, "ann")
	if actor.Role != director.RoleOperator {
		t.Fatalf("%+v", actor)
	}
	if err := w.auth.Confirm(t.Context(), actor, ""); err != nil {
		t.Errorf("a login of a moment ago does not stand for a password: %v", err)
	}
	refresh := func() {
		t.Helper()
		w.pass(11 * time.Minute)
		if err := w.people.Refresh(t.Context()); err != nil {
			t.Error(err)
		}
	}
	s.Person("1", "ann", "right", "readers")
	refresh()
	if a, err := w.auth.Authenticate(t.Context(), token); err != nil || a.Role != director.RoleUser {
		t.Errorf("after a change of groups: %+v, %v", a, err)
	}
	wantKind(t, w.auth.Confirm(t.Context(), actor, ""), director.KindForbidden, "more than")
	s.Break(true)
	w.pass(11 * time.Minute)
	if err := w.people.Refresh(t.Context()); director.KindOf(err) != director.KindUnavailable {
		t.Errorf("a broken provider: %v", err)
	}
	s.Break(false)
	if _, err := w.auth.Authenticate(t.Context(), token); err != nil {
		t.Errorf("a broken provider ends a session: %v", err)
	}
	var both sync.WaitGroup // two directors at once: a refresh token is good once
	for range 2 {
		both.Go(func() {
			if err := w.people.Refresh(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
	both.Wait()
	if _, err := w.auth.Authenticate(t.Context(), token); err != nil {
		t.Errorf("two directors ended the session: %v", err)
	}
	s.End(t, "1")
	refresh()
	_, err := w.auth.Authenticate(t.Context(), token)
	wantKind(t, err, director.KindUnauthenticated, "")
	if sealed, err := w.db.Secret(t.Context(), store.OwnerOfPerson("ann"), "refresh token"); err != nil ||
		sealed != nil {
		t.Errorf("a refresh token that is good for nothing stays: %v", err)
	}
	if _, actor := w.browse(t, s, "ann"); actor.Role != director.RoleUser {
		t.Errorf("the next login: %+v", actor)
	}
}

// Without a refresh token, people are in until the director would have to ask.
func TestProviderWithoutRefresh(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.webProvider(t, "profile")
	s.Person("1", "ann", "right", "ops")
	token, _ := w.browse(t, s, "ann")
	w.pass(9 * time.Minute)
	if err := w.people.Refresh(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := w.auth.Authenticate(t.Context(), token); err != nil {
		t.Errorf("too early: %v", err)
	}
	w.pass(2 * time.Minute)
	if err := w.people.Refresh(t.Context()); err != nil {
		t.Error(err)
	}
	_, err := w.auth.Authenticate(t.Context(), token)
	wantKind(t, err, director.KindUnauthenticated, "")
}

// A person of a provider has no password here, and a local user is not taken over by a person of the name.
func TestPeopleOfAProviderHaveNoPassword(t *testing.T) {
	t.Parallel()
	w := setup(t)
	s := w.webProvider(t, "profile", "offline_access")
	s.Person("1", "ann", "right", "ops")
	w.browse(t, s, "ann")
	_, _, err := w.login(t, "ann", "right")
	wantKind(t, err, director.KindUnauthenticated, "wrong")
	s.Person("2", auth.AdminName, "right", "ops")
	to, kept, err := w.people.Begin(t.Context(), "web", "")
	if err != nil {
		t.Fatal(err)
	}
	q := s.LogIn(t, s.Browser(t, nil), to, auth.AdminName, "right").Query()
	a, err := w.people.Finish(t.Context(), kept, people.Answer{State: q.Get("state"), Code: q.Get("code")})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = w.auth.LoginPerson(t.Context(), auth.Login{User: a.User.Name, Browser: true}, a.User, a.Admitted)
	wantKind(t, err, director.KindUnauthenticated, "")
	if sealed, err := w.db.Secret(t.Context(), store.OwnerOfPerson(auth.AdminName), "refresh token"); err != nil ||
		sealed != nil {
		t.Errorf("who is not admitted leaves a refresh token: %v", err)
	}
	to, kept, err = w.people.Begin(t.Context(), "web", "")
	if err != nil {
		t.Fatal(err)
	}
	q = s.LogIn(t, s.Browser(t, nil), to, "ann", "right").Query()
	w.pass(11 * time.Minute)
	_, err = w.people.Finish(t.Context(), kept, people.Answer{State: q.Get("state"), Code: q.Get("code")})
	wantKind(t, err, director.KindUnauthenticated, "too long ago")
}
