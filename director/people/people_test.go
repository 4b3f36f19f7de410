package people_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	goldap "github.com/go-ldap/ldap/v3"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/identity"
	"github.com/director-kaas/kaas/director/ldap/ldaptest"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/oidc/oidctest"
	"github.com/director-kaas/kaas/director/people"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/store"
)

const (
	right     = "correct horse battery"
	director1 = "https://director.example.org"
)

func dn(uid string) string { return "uid=" + uid + "," + ldaptest.People }

func group(cn string) string { return "cn=" + cn + "," + ldaptest.Groups }

// company has people in groups, one in a group of a group, and one in none that has a role.
func company() string {
	return ldaptest.Person("ann", right, "objectClass: lockable") + ldaptest.Person("Bob", right) +
		ldaptest.Person("carol", right) + ldaptest.Person("admin", right) + ldaptest.Person("system", right) +
		ldaptest.Group("admins", group("core")) + ldaptest.Group("core", dn("ann"), dn("admin")) +
		ldaptest.Group("readers", dn("ann"), dn("Bob"), dn("system")) + ldaptest.Group("canteen", dn("carol"))
}

type accounts struct{ revision int64 }

func (a accounts) OpenIdentity(_ context.Context, _ string, p model.IdentityProvider) (director.Credentials, error) {
	if p.Type == model.IdentityOIDC {
		return director.Credentials{User: oidctest.ClientID, Password: oidctest.Secret, Revision: a.revision}, nil
	}
	return director.Credentials{User: ldaptest.BindDN, Password: ldaptest.Password, Revision: a.revision}, nil
}

type world struct {
	people *people.Service
	auth   *auth.Service
	db     *store.Store

	mu    sync.Mutex
	clock time.Time
}

func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.clock
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.clock = w.clock.Add(d)
}

func setup(t *testing.T) *world {
	t.Helper()
	w := &world{clock: time.Now()}
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "d.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	w.db = db
	box, err := seal.Open(filepath.Join(t.TempDir(), "key"), true)
	if err != nil {
		t.Fatal(err)
	}
	w.people = people.New(people.Config{
		Store: db, Accounts: accounts{1}, Sealer: box, URL: director1, Networks: confine.Networks{
			netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("::1/128"),
		}, CheckName: identity.CheckName, Now: w.now, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	})
	w.auth, err = auth.New(db, auth.Config{
		Hash: auth.Params{MemoryKiB: 64, Passes: 1}, People: w.people, Now: w.now, TokenTTL: 100 * time.Hour,
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := w.auth.EnsureAdmin(t.Context(), "the local admin's one"); err != nil {
		t.Fatal(err)
	}
	return w
}

// provider stores the document of the directory.
func (w *world) provider(t *testing.T, name string, s *ldaptest.Server, change ...func(*model.IdentityProvider)) {
	t.Helper()
	p := &model.IdentityProvider{
		Type: "ldap", Order: 100, Servers: []string{s.URLS}, CA: string(s.CA), Credentials: "corp",
		UserBase: ldaptest.People, GroupBase: ldaptest.Groups, Refresh: model.Duration(10 * time.Minute),
		Roles: []model.GroupRole{
			{Group: group("readers"), Role: "auditor"},
			{Group: group("admins"), Role: "operator"},
		},
	}
	for _, f := range change {
		f(p)
	}
	doc := model.Document{
		Kind: model.KindIdentityProvider, Metadata: model.Metadata{Name: name}, IdentityProvider: p,
	}
	err := w.db.Update(t.Context(), func(tx *store.Tx) error {
		return tx.PutDocument(doc, "test", w.now())
	})
	if err != nil {
		t.Fatal(err)
	}
}

func (w *world) login(t *testing.T, user string, password director.Secret) (director.Secret, director.Actor, error) {
	t.Helper()
	return w.auth.Login(t.Context(), auth.Login{User: user, Password: password, Address: "192.0.2.1"})
}

func wantKind(t *testing.T, err error, kind director.Kind, text string) {
	t.Helper()
	if err == nil || director.KindOf(err) != kind || !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want %s with %q", err, kind, text)
	}
}

// People log in with the password of the directory and have the strongest role of their groups, also of groups in
// groups. Who has no role, is no person there or is a local user gets nothing of it.
func TestLoginOfPeople(t *testing.T) {
	t.Parallel()
	w, s := setup(t), ldaptest.Start(t, company(), time.Hour, "unlimited")
	w.provider(t, "corp", s)
	for user, role := range map[string]director.UserRole{"ann": director.RoleOperator, "bob": director.RoleAuditor} {
		token, actor, err := w.login(t, user, right)
		if err != nil || actor.User != user || actor.Role != role {
			t.Fatalf("%s: %+v, %v", user, actor, err)
		}
		if a, err := w.auth.Authenticate(t.Context(), token); err != nil || a.Role != role {
			t.Errorf("%s: %+v, %v", user, a, err)
		}
		u, err := w.db.GetUser(t.Context(), user)
		if err != nil || u.Provider != "corp" || u.Checked.IsZero() || !strings.HasSuffix(u.FullName, " of Example") {
			t.Errorf("%+v, %v", u, err)
		}
		if err := w.auth.Confirm(t.Context(), actor, right); err != nil {
			t.Error(err)
		}
		wantKind(t, w.auth.Confirm(t.Context(), actor, "wrong"), director.KindInvalid, "wrong")
		wantKind(t, w.auth.ChangePassword(t.Context(), actor, right, "another good one"), director.KindConflict, "corp")
	}
	const wrong = "the user or the password is wrong"
	for user, password := range map[string]director.Secret{
		"ann": "wrong", "bob": "", "nobody": right, "admin": right, "*": right, "ann)(uid=*": right,
	} {
		_, _, err := w.login(t, user, password)
		wantKind(t, err, director.KindUnauthenticated, wrong)
	}
	_, _, err := w.login(t, "carol", right)
	wantKind(t, err, director.KindUnauthenticated, "none of your groups in the directory corp may use the director")
	_, _, err = w.login(t, "system", right)
	wantKind(t, err, director.KindUnauthenticated, "is reserved")
	if _, actor, err := w.login(t, "admin", "the local admin's one"); err != nil || actor.Role != director.RoleAdmin {
		t.Errorf("the local admin: %+v, %v", actor, err)
	}
}

// Within the refresh time, a changed group changes the role, and who is disabled upstream loses sessions and tokens.
// Other people keep theirs.
func TestRefresh(t *testing.T) {
	t.Parallel()
	ctx, w, s := t.Context(), setup(t), ldaptest.Start(t, company(), time.Hour, "unlimited")
	w.provider(t, "corp", s)
	ann, actor, err := w.login(t, "ann", right)
	if err != nil {
		t.Fatal(err)
	}
	bob, _, err := w.login(t, "bob", right)
	if err != nil {
		t.Fatal(err)
	}
	secret, hash := w.auth.APIToken()
	err = w.db.CreateToken(ctx, director.Token{
		Hash: hash, User: "ann", Kind: director.TokenAPI, Name: "ci", Scope: director.ScopeAll, Created: w.now(),
		Expires: w.now().Add(time.Hour * 1000),
	}, actor.User)
	if err != nil {
		t.Fatal(err)
	}
	demote := goldap.NewModifyRequest(group("core"), nil)
	demote.Delete("member", []string{dn("ann")})
	s.Change(t, demote)
	role := func() director.UserRole {
		t.Helper()
		if err := w.people.Refresh(ctx); err != nil {
			t.Fatal(err)
		}
		a, err := w.auth.Authenticate(ctx, ann)
		if err != nil {
			t.Fatal(err)
		}
		return a.Role
	}
	if r := role(); r != director.RoleOperator {
		t.Errorf("asked before the time: %s", r)
	}
	w.pass(11 * time.Minute)
	if r := role(); r != director.RoleAuditor {
		t.Errorf("after the change: %s", r)
	}
	lock := goldap.NewModifyRequest(dn("ann"), nil)
	lock.Add("nsAccountLock", []string{"TRUE"})
	s.Change(t, lock)
	w.pass(11 * time.Minute)
	if err := w.people.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	for _, token := range []director.Secret{ann, secret} {
		_, err = w.auth.Authenticate(ctx, token)
		wantKind(t, err, director.KindUnauthenticated, "not valid")
	}
	if _, err := w.auth.Authenticate(ctx, bob); err != nil {
		t.Error(err)
	}
	_, _, err = w.login(t, "ann", right)
	wantKind(t, err, director.KindUnauthenticated, "wrong")
	w.audited(t, "User/ann", "create as operator", "change role from operator to auditor",
		"end all sessions and tokens: the account is disabled in the directory")
	err = w.db.Update(ctx, func(tx *store.Tx) error {
		return tx.DeleteDocument(model.Ref{Kind: model.KindIdentityProvider, Name: "corp"})
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := w.people.Refresh(ctx); err != nil {
		t.Fatal(err)
	}
	_, err = w.auth.Authenticate(ctx, bob)
	wantKind(t, err, director.KindUnauthenticated, "not valid")
	_, _, err = w.login(t, "bob", right)
	wantKind(t, err, director.KindUnauthenticated, "wrong")
}

func (w *world) audited(t *testing.T, object string, actions ...string) {
	t.Helper()
	entries, _, err := w.db.AuditList(t.Context(), store.AuditQuery{Object: object}, director.Page{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, e := range entries {
		got = append(got, e.Action)
	}
	for _, a := range actions {
		if !strings.Contains(strings.Join(got, "\n"), a) {
			t.Errorf("the audit trail of %s has no %q: %q", object, a, got)
		}
	}
}

// A directory that hangs holds no local user back, ends no session within a day, and lets no later provider decide.
func TestDirectoryThatHangs(t *testing.T) {
	t.Parallel()
	ctx, w, s := t.Context(), setup(t), ldaptest.Start(t, company(), time.Hour, "unlimited")
	w.provider(t, "corp", s)
	token, _, err := w.login(t, "ann", right)
	if err != nil {
		t.Fatal(err)
	}
	l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0") // takes connections, and says nothing
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	hang := func(p *model.IdentityProvider) {
		p.Servers, p.Order = []string{fmt.Sprintf("ldaps://localhost:%d", l.Addr().(*net.TCPAddr).Port)}, 1
	}
	w.provider(t, "corp", s, hang)
	w.provider(t, "other", s)
	asked := make(chan error)
	go func() {
		_, _, err := w.login(t, "bob", right)
		asked <- err
	}()
	if _, _, err := w.login(t, "admin", "the local admin's one"); err != nil {
		t.Error(err)
	}
	select {
	case err := <-asked:
		t.Errorf("the directory did not hang: %v", err)
	default: // the local user was in before the directory gave up
	}
	wantKind(t, <-asked, director.KindUnavailable, "the directory corp does not answer")
	w.pass(11 * time.Minute)
	if err := w.people.Refresh(ctx); err == nil {
		t.Error("a directory that hangs confirmed people")
	}
	if _, err := w.auth.Authenticate(ctx, token); err != nil {
		t.Error(err)
	}
	w.pass(24 * time.Hour)
	_, err = w.auth.Authenticate(ctx, token)
	wantKind(t, err, director.KindUnauthenticated, "has not confirmed the user for a day")
}

// A test names the stage that fails, and the role that a person would have.
func TestTest(t *testing.T) {
	t.Parallel()
	w, s := setup(t), ldaptest.Start(t, company(), time.Hour, "unlimited")
	w.provider(t, "good", s)
	w.provider(t, "ca", s, func(p *model.IdentityProvider) {
		p.CA = string(ldaptest.Start(t, "", time.Hour,
			"unlimited").CA)
	})
	w.provider(t, "base", s, func(p *model.IdentityProvider) { p.UserBase = "ou=none," + ldaptest.Suffix })
	w.provider(t, "group", s, func(p *model.IdentityProvider) { p.Roles[0].Group = group("gone") })
	w.provider(t, "away", s, func(p *model.IdentityProvider) { p.Servers = []string{"ldaps://192.0.2.1"} })
	for name, c := range map[string]struct {
		provider, user, stage, text string
		passed                      bool
	}{
		"good": {provider: "good", stage: "groups", passed: true},
		"person": {
			provider: "good", user: "ann", stage: "role", text: "ann would have the role operator",
			passed: true,
		},
		"no role":        {provider: "good", user: "carol", stage: "role", text: "none of your groups"},
		"another CA":     {provider: "ca", stage: "tls", text: "unknown authority"},
		"wrong place":    {provider: "base", stage: "search", text: "No Such Object"},
		"missing group":  {provider: "group", stage: "groups", text: group("gone")},
		"not allowed at": {provider: "away", stage: "connect", text: "an address that is not allowed"},
	} {
		found, err := w.people.Test(t.Context(), c.provider, c.user)
		if err != nil || len(found) == 0 {
			t.Fatalf("%s: %v", name, err)
		}
		last := found[len(found)-1]
		if string(last.Stage) != c.stage || last.Passed != c.passed || !strings.Contains(last.Msg, c.text) ||
			!c.passed && last.Hint == "" {
			t.Errorf("%s: %+v", name, last)
		}
	}
	_, err := w.people.Test(t.Context(), "none", "")
	wantKind(t, err, director.KindNotFound, "none")
}

// Problems of a document have the paths of its fields.
func TestCheck(t *testing.T) {
	t.Parallel()
	p := model.IdentityProvider{
		Type: "ldap", Servers: []string{"ldap://dc.example.org"}, UserBase: "people", UserFilter: "(uid",
		Roles: []model.GroupRole{{Group: "cn=a,dc=b", Role: "admin"}, {Group: "admins", Role: "admin"}},
	}
	got := map[string]bool{}
	for _, f := range people.Check(p) {
		got[f.Path] = f.Hint != ""
	}
	for _, path := range []string{"spec.servers[0]", "spec.userBase", "spec.userFilter", "spec.roles[1].group"} {
		if !got[path] {
			t.Errorf("%s is not among %v", path, got)
		}
	}
	if got["spec.roles[0].group"] || got["spec.bindDN"] || got["spec.password"] {
		t.Errorf("too much: %v", got)
	}
}
