package auth_test

import (
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api/apitest"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/store"
)

type clock struct {
	mu sync.Mutex
	at time.Time
}

func (c *clock) now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.at
}

func (c *clock) add(d time.Duration) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.at = c.at.Add(d)
}

func setup(t *testing.T) (*auth.Service, *store.Store, *clock) {
	t.Helper()
	users := apitest.OpenStore(t)
	c := &clock{at: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
	s, err := auth.New(users, auth.Config{Hash: auth.Params{MemoryKiB: 64, Passes: 1}, TokenTTL: time.Hour, Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	return s, users, c
}

func wantKind(t *testing.T, err error, want director.Kind) {
	t.Helper()
	if err == nil || director.KindOf(err) != want {
		t.Errorf("error %v, want the kind %s", err, want)
	}
}

func TestFirstStart(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, users, _ := setup(t)
	once, created, err := s.EnsureAdmin(ctx, "")
	if err != nil || !created || len(once.Reveal()) < 20 {
		t.Fatalf("EnsureAdmin: %q, %v, %v", once.Reveal(), created, err)
	}
	if again, created, err := s.EnsureAdmin(ctx, ""); err != nil || created || again != "" {
		t.Errorf("a second start made another admin: %v, %v", created, err)
	}
	token, actor, err := s.Login(ctx, auth.Login{User: auth.AdminName, Password: once})
	if err != nil || !actor.MustChange || actor.Role != director.RoleAdmin {
		t.Fatalf("login: %+v, %v", actor, err)
	}
	if auth.Can(actor, director.ActRead, director.Object{}) {
		t.Error("a one-time password is good for more than its change")
	}
	other, _, err := s.Login(ctx, auth.Login{User: auth.AdminName, Password: once})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.ChangePassword(ctx, actor, once, "correct horse battery"); err != nil {
		t.Fatal(err)
	}
	actor, err = s.Authenticate(ctx, token)
	if err != nil || actor.MustChange {
		t.Errorf("the token that changed the password: %+v, %v", actor, err)
	}
	_, err = s.Authenticate(ctx, other)
	wantKind(t, err, director.KindUnauthenticated)
	_, _, err = s.Login(ctx, auth.Login{User: auth.AdminName, Password: once})
	wantKind(t, err, director.KindUnauthenticated)

	all, _, _ := users.UserPage(ctx, "", director.Page{})
	if strings.Contains(all[0].PasswordHash, "correct") {
		t.Error("the password is kept in the clear")
	}
	tokens, _ := users.ListTokens(ctx, "")
	for _, tok := range tokens {
		if strings.Contains(token.Reveal(), tok.Hash) || strings.Contains(tok.Hash, token.Reveal()) {
			t.Error("the token is kept in the clear")
		}
	}
}

func TestInitialPassword(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, _, _ := setup(t)
	if _, _, err := s.EnsureAdmin(ctx, "short"); director.KindOf(err) != director.KindInvalid {
		t.Fatalf("a short initial password: %v", err)
	}
	once, created, err := s.EnsureAdmin(ctx, "given by a file")
	if err != nil || !created || once != "" {
		t.Fatalf("EnsureAdmin: %v, %v", created, err)
	}
	if _, actor, err := s.Login(ctx, auth.Login{User: auth.AdminName, Password: "given by a file"}); err != nil ||
		actor.MustChange {
		t.Errorf("login: %+v, %v", actor, err)
	}
}

func TestInitialPasswordByItsHash(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, _, _ := setup(t)
	good := auth.HashPassword("given by its hash")
	for _, bad := range []string{
		"", "given by its hash", "$2a$10$N9qo8uLOickgx2ZMRZoMyeIjZAgcfl7p92ldGxad68LJZdL17lhWy",
		"$6$salt$hash", good + "A",
		strings.Replace(good, "p=1", "p=2", 1), strings.Replace(good, "m=19456", "m=99999999", 1),
	} {
		created, err := s.EnsureAdminHash(ctx, bad)
		if director.KindOf(err) != director.KindInvalid || created {
			t.Errorf("EnsureAdminHash(%q): %v, %v", bad, created, err)
		}
		if err != nil && bad != "" && strings.Contains(err.Error(), bad) {
			t.Errorf("the error holds the hash %q", bad)
		}
	}
	for _, want := range []bool{true, false} {
		if created, err := s.EnsureAdminHash(ctx, good); err != nil || created != want {
			t.Fatalf("EnsureAdminHash: %v, %v; want %v", created, err, want)
		}
	}
	_, actor, err := s.Login(ctx, auth.Login{User: auth.AdminName, Password: "given by its hash"})
	if err != nil || actor.MustChange {
		t.Errorf("login: %+v, %v", actor, err)
	}
}

func TestLogin(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, users, clock := setup(t)
	if _, _, err := s.EnsureAdmin(ctx, "correct horse battery"); err != nil {
		t.Fatal(err)
	}
	_, _, wrong := s.Login(ctx, auth.Login{User: auth.AdminName, Password: "wrong horse battery"})
	wantKind(t, wrong, director.KindUnauthenticated)
	_, _, nobody := s.Login(ctx, auth.Login{User: "nobody", Password: "correct horse battery"})
	wantKind(t, nobody, director.KindUnauthenticated)
	if wrong.Error() != nobody.Error() {
		t.Errorf("the answers tell who exists: %q, %q", wrong, nobody)
	}
	token, actor, err := s.Login(ctx, auth.Login{User: auth.AdminName, Password: "correct horse battery"})
	if err != nil {
		t.Fatal(err)
	}
	for _, bad := range []director.Secret{"", "x", token + "x", "kaas_"} {
		_, err := s.Authenticate(ctx, bad)
		wantKind(t, err, director.KindUnauthenticated)
	}
	clock.add(time.Hour - time.Second)
	if _, err := s.Authenticate(ctx, token); err != nil {
		t.Errorf("a token within its time: %v", err)
	}
	clock.add(time.Second)
	_, err = s.Authenticate(ctx, token)
	wantKind(t, err, director.KindUnauthenticated)

	clock.add(time.Second) // until now it has only ended
	second, actor2, err := s.Login(ctx, auth.Login{User: auth.AdminName, Password: "correct horse battery"})
	if err != nil {
		t.Fatal(err)
	}
	if tokens, _ := users.ListTokens(ctx, ""); len(tokens) != 1 {
		t.Errorf("%d tokens are kept, want the new one alone", len(tokens))
	}
	if err := s.Logout(ctx, actor2); err != nil {
		t.Fatal(err)
	}
	_, err = s.Authenticate(ctx, second)
	wantKind(t, err, director.KindUnauthenticated)
	if err := s.Logout(ctx, actor); err != nil {
		t.Errorf("a second logout: %v", err)
	}

	third, _, err := s.Login(ctx, auth.Login{User: auth.AdminName, Password: "correct horse battery"})
	if err != nil {
		t.Fatal(err)
	}
	if err := users.DeleteUser(ctx, auth.AdminName); err != nil {
		t.Fatal(err)
	}
	_, err = s.Authenticate(ctx, third)
	wantKind(t, err, director.KindUnauthenticated)
}

func TestChangePasswordRefuses(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, _, _ := setup(t)
	const now = "correct horse battery"
	if _, _, err := s.EnsureAdmin(ctx, now); err != nil {
		t.Fatal(err)
	}
	_, actor, err := s.Login(ctx, auth.Login{User: auth.AdminName, Password: now})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		current, next director.Secret
		field         string
	}{
		"wrong current": {"wrong horse battery", "another horse battery", "current"},
		"short":         {now, "elevenchars", "new"},
		"long":          {now, director.Secret(strings.Repeat("x", 257)), "new"},
		"two lines":     {now, "correct horse\nbattery", "new"},
		"the same":      {now, now, "new"},
	} {
		err := s.ChangePassword(ctx, actor, c.current, c.next)
		wantKind(t, err, director.KindInvalid)
		if e, ok := errors.AsType[*director.Error](err); !ok || len(e.Fields) != 1 || e.Fields[0].Path != c.field {
			t.Errorf("%s: %v, want the field %s", name, err, c.field)
		}
	}
	// A password longer than what bcrypt itself takes counts to its last character.
	long := director.Secret(strings.Repeat("x", 200))
	if err := s.ChangePassword(ctx, actor, now, long); err != nil {
		t.Fatal(err)
	}
	_, _, err = s.Login(ctx, auth.Login{User: auth.AdminName, Password: long[:199] + "y"})
	wantKind(t, err, director.KindUnauthenticated)
}

// TestCan is the whole matrix: each role, action and kind. What is not written here is refused.
func TestCan(t *testing.T) {
	t.Parallel()
	kinds := []string{
		"", "Provider", "Image", "Release", "Network", "Cluster", "Plan", "Schedule", "Credentials",
		"User", "Audit", "Phase", "Grant", "Project",
	}
	all := func(string) bool { return true }
	only := func(some ...string) func(string) bool {
		return func(kind string) bool { return slices.Contains(some, kind) }
	}
	want := map[director.UserRole]map[director.Action]func(kind string) bool{
		director.RoleAdmin: {},
		director.RoleOperator: {
			director.ActRead: func(kind string) bool { return kind != "User" && kind != "Audit" && kind != "Grant" },
			director.ActPlan: all, director.ActRun: all, director.ActInventory: all, director.ActToken: only("Cluster"),
		},
		director.RoleUser: {
			director.ActRead:  only("Cluster", "Plan", "Phase", "Release", "Project"),
			director.ActToken: only("Cluster"),
		},
		director.RoleAuditor: {director.ActRead: all, director.ActToken: only("Cluster")},
		director.RoleNone:    {},
		"owner":              {},
		"":                   {},
	}
	for _, action := range director.Actions() {
		want[director.RoleAdmin][action] = all
	}
	for role, may := range want {
		for _, action := range director.Actions() {
			for _, kind := range kinds {
				o := director.Object{Kind: kind, Name: "x"}
				self := action == director.ActSelf || action == director.ActAccount
				allowed := self || may[action] != nil && may[action](kind)
				if got := auth.Can(director.Actor{User: "u", Role: role, Scope: director.ScopeAll}, action,
					o); got != allowed {
					t.Errorf("Can(%q, %s, %s) = %v", role, action, kind, got)
				}
				if auth.Can(director.Actor{Role: role, Scope: director.ScopeAll}, action, o) {
					t.Errorf("an actor without a name may %s %s", action, kind)
				}
				fresh := director.Actor{User: "u", Role: role, Scope: director.ScopeAll, MustChange: true}
				if got := auth.Can(fresh, action, o); got != self {
					t.Errorf("with a one-time password: Can(%q, %s, %s) = %v", role, action, kind, got)
				}
			}
		}
	}
}

// TestScopes is the whole matrix of tokens: a scope narrows what the role may do, and never adds to it.
func TestScopes(t *testing.T) {
	t.Parallel()
	kinds := []string{"", "Provider", "Cluster", "Plan", "User", "Audit", "Phase"}
	within := map[director.TokenScope]func(a director.Action, kind string) bool{
		director.ScopeAll:    func(director.Action, string) bool { return true },
		director.ScopeRead:   func(a director.Action, _ string) bool { return a == director.ActRead },
		director.ScopePhases: func(_ director.Action, kind string) bool { return kind == "Phase" },
		"other":              func(director.Action, string) bool { return false },
		"":                   func(director.Action, string) bool { return false },
	}
	for scope, good := range within {
		for _, role := range director.UserRoles() {
			for _, action := range director.Actions() {
				for _, kind := range kinds {
					o := director.Object{Kind: kind}
					login := director.Actor{User: "u", Role: role, Scope: director.ScopeAll, Kind: director.TokenLogin}
					token := director.Actor{User: "u", Role: role, Scope: scope, Kind: director.TokenAPI}
					want := auth.Can(login, action, o) && good(action, kind) && action != director.ActAccount
					if action == director.ActSelf {
						want = slices.Contains(director.TokenScopes(), scope)
					}
					if got := auth.Can(token, action, o); got != want {
						t.Errorf("scope %q, role %s: Can(%s, %s) = %v", scope, role, action, kind, got)
					}
				}
			}
		}
	}
}

// A browser's session ends when it is not used for a while, and at the latest when a login does. A stream that stays
// open is no use.
func TestBrowserSessionsSlide(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, users, clock := setup(t) // a login lasts one hour
	if _, _, err := s.EnsureAdmin(ctx, "correct horse battery"); err != nil {
		t.Fatal(err)
	}
	short, err := auth.New(users, auth.Config{
		Hash: auth.Params{MemoryKiB: 64, Passes: 1}, TokenTTL: time.Hour, Idle: 20 * time.Minute, Now: clock.now,
	})
	if err != nil {
		t.Fatal(err)
	}
	login := func() director.Secret {
		t.Helper()
		token, actor, err := short.Login(ctx, auth.Login{
			User: auth.AdminName, Password: "correct horse battery", Address: "192.0.2.1", Browser: true,
		})
		if err != nil || actor.Kind != director.TokenBrowser || !actor.Expires.Equal(clock.now().Add(20*time.Minute)) {
			t.Fatalf("%+v, %v", actor, err)
		}
		return token
	}
	idle, used := login(), login()
	for range 3 {
		clock.add(15 * time.Minute)
		if a, err := short.Authenticate(ctx, used); err != nil || a.Expires.Before(clock.now().Add(15*time.Minute)) {
			t.Fatalf("a session that is used: %+v, %v", a, err)
		}
		_, _ = short.Recheck(ctx, idle)
	}
	_, err = short.Recheck(ctx, idle)
	wantKind(t, err, director.KindUnauthenticated)
	clock.add(14 * time.Minute)
	if _, err := short.Authenticate(ctx, used); err != nil {
		t.Fatal(err)
	}
	clock.add(time.Minute)
	_, err = short.Authenticate(ctx, used)
	wantKind(t, err, director.KindUnauthenticated)
}

// A service account has no password, not even an empty one.
func TestServiceAccountsCannotLogIn(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, users, _ := setup(t)
	if err := users.PutUser(ctx, director.User{Name: "robot", Role: director.RoleAdmin, Service: true}); err != nil {
		t.Fatal(err)
	}
	for _, password := range []director.Secret{"", "robot", "correct horse battery"} {
		_, _, err := s.Login(ctx, auth.Login{User: "robot", Password: password})
		wantKind(t, err, director.KindUnauthenticated)
		if _, _, unknown := s.Login(ctx,
			auth.Login{User: "nobody", Password: password}); unknown.Error() != err.Error() {
			t.Errorf("a service account shows itself: %v, %v", err, unknown)
		}
	}
}

// A refusal names the roles that may.
func TestRequireNamesTheRoles(t *testing.T) {
	t.Parallel()
	user := director.Actor{User: "u", Role: director.RoleUser, Scope: director.ScopeAll}
	for action, want := range map[director.Action]string{
		director.ActPlan: "this needs the role admin or operator", director.ActApply: "this needs the role admin",
		director.ActRead: "this needs the role admin or auditor",
	} {
		err := auth.Refusal(user, action, director.Object{Kind: "User"})
		if e, ok := errors.AsType[*director.Error](err); !ok || e.Msg != want {
			t.Errorf("%s: %v", action, err)
		}
	}
}
