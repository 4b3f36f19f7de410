package identity_test

import (
	"errors"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/identity"
	"github.com/director-kaas/kaas/director/store"
)

type bench struct {
	*identity.Service
	auth    *auth.Service
	db      *store.Store
	changed []string
}

func setup(t *testing.T) *bench {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "director.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	b := &bench{db: db}
	changed := func(user string) { b.changed = append(b.changed, user) }
	b.auth, err = auth.New(db, auth.Config{Hash: auth.Params{MemoryKiB: 64, Passes: 1}, Changed: changed})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := b.auth.EnsureAdmin(t.Context(), "correct horse battery"); err != nil {
		t.Fatal(err)
	}
	b.Service = identity.New(identity.Config{Store: db, Passwords: b.auth, Now: time.Now, Changed: changed})
	return b
}

func wantKind(t *testing.T, err error, want director.Kind) {
	t.Helper()
	if err == nil || director.KindOf(err) != want {
		t.Errorf("error %v, want the kind %s", err, want)
	}
}

// A person comes, works, is disabled, comes back and leaves.
func TestLifeOfAUser(t *testing.T) {
	t.Parallel()
	ctx, b := t.Context(), setup(t)
	u, once, err := b.Create(ctx, "admin", "ann", director.RoleUser)
	if err != nil || !u.MustChange || len(once.Password.Reveal()) < 20 {
		t.Fatalf("%+v, %v", u, err)
	}
	_, _, err = b.Create(ctx, "admin", "ann", director.RoleAdmin)
	wantKind(t, err, director.KindConflict)
	token, actor, err := b.auth.Login(ctx, auth.Login{User: "ann", Password: once.Password, Address: "192.0.2.1"})
	if err != nil || !actor.MustChange {
		t.Fatalf("%+v, %v", actor, err)
	}
	if auth.Can(actor, director.ActRead, director.Object{Kind: "Cluster"}) {
		t.Error("a one-time password is good for more than its change")
	}
	if err := b.auth.ChangePassword(ctx, actor, once.Password, "ann's own password"); err != nil {
		t.Fatal(err)
	}
	sessions, err := b.Sessions(ctx, "ann")
	if err != nil || len(sessions) != 1 || sessions[0].Address != "192.0.2.1" {
		t.Errorf("%+v, %v", sessions, err)
	}
	if u, err = b.Disable(ctx, "admin", "ann"); err != nil || u.Disabled.IsZero() {
		t.Fatalf("%+v, %v", u, err)
	}
	since := u.Disabled
	if u, err = b.Disable(ctx, "admin", "ann"); err != nil || !u.Disabled.Equal(since.Truncate(time.Microsecond)) {
		t.Errorf("disabled twice: %+v, %v", u, err)
	}
	_, err = b.auth.Authenticate(ctx, token)
	wantKind(t, err, director.KindUnauthenticated)
	if _, err := b.Enable(ctx, "admin", "ann"); err != nil {
		t.Fatal(err)
	}
	_, err = b.auth.Authenticate(ctx, token) // it stays dead
	wantKind(t, err, director.KindUnauthenticated)
	if token, _, err = b.auth.Login(ctx, auth.Login{User: "ann", Password: "ann's own password"}); err != nil {
		t.Fatal(err)
	}
	if _, err := b.SetRole(ctx, "admin", "ann", director.RoleAdmin); err != nil {
		t.Fatal(err)
	}
	if actor, err = b.auth.Authenticate(ctx, token); err != nil || actor.Role != director.RoleAdmin {
		t.Errorf("%+v, %v", actor, err)
	}
	if err := b.Delete(ctx, "admin", "ann"); err != nil {
		t.Fatal(err)
	}
	_, err = b.auth.Authenticate(ctx, token)
	wantKind(t, err, director.KindUnauthenticated)
	_, err = b.Sessions(ctx, "ann")
	wantKind(t, err, director.KindNotFound)
	audit(t, b, "create as user", "change password", "disable", "enable", "change role from user to admin", "delete")
}

// audit wants these actions on users in the trail, in this order.
func audit(t *testing.T, b *bench, want ...string) {
	t.Helper()
	page, err := b.db.Stream(t.Context(), director.StreamQuery{Kinds: []string{"User"}, Limit: 100})
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range page.Events {
		if len(want) > 0 && e.Source == director.SourceAudit && e.What == want[0] {
			want = want[1:]
		}
	}
	if len(want) > 0 {
		t.Errorf("the audit trail has no %q", want)
	}
}

func TestBadUsers(t *testing.T) {
	t.Parallel()
	ctx, b := t.Context(), setup(t)
	for _, name := range []string{
		"", "Ann", "ann ", "-ann", "ann-", "ann/x", "../ann", "system", "director", "schedule:x", "a\nb", "ann\x00",
		"äann", "system:masters", "a'--", strings.Repeat("a", 64),
	} {
		_, _, err := b.Create(ctx, "admin", name, director.RoleUser)
		wantKind(t, err, director.KindInvalid)
		if e, ok := errors.AsType[*director.Error](err); !ok || len(e.Fields) != 1 || e.Fields[0].Path != "name" {
			t.Errorf("%q: %v", name, err)
		}
	}
	_, _, err := b.Create(ctx, "admin", "Ann", "owner")
	if e, ok := errors.AsType[*director.Error](err); !ok || len(e.Fields) != 2 {
		t.Errorf("not all problems at once: %v", err)
	}
	_, err = b.SetRole(ctx, "admin", "admin", "owner")
	wantKind(t, err, director.KindInvalid)
	for _, good := range []string{"a", "ann.b_c-d9", strings.Repeat("a", 63)} {
		if _, _, err := b.Create(ctx, "admin", good, director.RoleUser); err != nil {
			t.Errorf("%q: %v", good, err)
		}
	}
}

func TestTheLastAdmin(t *testing.T) {
	t.Parallel()
	ctx, b := t.Context(), setup(t)
	for name, try := range map[string]func() error{
		"disable": func() error { _, err := b.Disable(ctx, "admin", "admin"); return err },
		"role":    func() error { _, err := b.SetRole(ctx, "admin", "admin", director.RoleUser); return err },
		"delete":  func() error { return b.Delete(ctx, "admin", "admin") },
	} {
		if err := try(); director.KindOf(err) != director.KindConflict || director.HintOf(err) == "" {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, _, err := b.Create(ctx, "admin", "eve", director.RoleAdmin); err != nil {
		t.Fatal(err)
	}
	errs := make([]error, 2) // each disables the other at the same moment
	var all sync.WaitGroup
	for i, name := range []string{"admin", "eve"} {
		all.Go(func() { _, errs[i] = b.Disable(ctx, "x", name) })
	}
	all.Wait()
	if (errs[0] == nil) == (errs[1] == nil) {
		t.Errorf("%v", errs)
	}
}

func TestResetAndRescue(t *testing.T) {
	t.Parallel()
	ctx, b := t.Context(), setup(t)
	token, _, err := b.auth.Login(ctx, auth.Login{User: "admin", Password: "correct horse battery"})
	if err != nil {
		t.Fatal(err)
	}
	_, _, err = b.Reset(ctx, "admin", "admin")
	wantKind(t, err, director.KindConflict)
	if _, _, err := b.Create(ctx, "admin", "eve", director.RoleAdmin); err != nil {
		t.Fatal(err)
	}
	if _, _, err = b.Reset(ctx, "eve", "admin"); err != nil {
		t.Fatal(err)
	}
	_, err = b.auth.Authenticate(ctx, token)
	wantKind(t, err, director.KindUnauthenticated)
	if _, err := b.Disable(ctx, "eve", "admin"); err != nil {
		t.Fatal(err)
	}
	u, once, err := b.Rescue(ctx, "uid 0", "admin")
	if err != nil || !u.Disabled.IsZero() || len(b.changed) != 2 {
		t.Fatalf("%+v, told %v, %v", u, b.changed, err)
	}
	if _, actor, err := b.auth.Login(ctx, auth.Login{User: "admin", Password: once.Password}); err != nil ||
		!actor.MustChange {
		t.Errorf("%+v, %v", actor, err)
	}
	_, _, err = b.Rescue(ctx, "uid 0", "nobody-here")
	wantKind(t, err, director.KindNotFound)
	audit(t, b, "reset password", "disable", "BREAK GLASS: enable and reset password on the director's machine")
}

func TestRevoke(t *testing.T) {
	t.Parallel()
	ctx, b := t.Context(), setup(t)
	var tokens []director.Secret
	for range 2 {
		token, _, err := b.auth.Login(ctx, auth.Login{User: "admin", Password: "correct horse battery"})
		if err != nil {
			t.Fatal(err)
		}
		tokens = append(tokens, token)
	}
	first, err := b.auth.Authenticate(ctx, tokens[0])
	if err != nil {
		t.Fatal(err)
	}
	id := director.Token{Hash: first.TokenHash}.ID()
	wantKind(t, b.Revoke(ctx, "eve", "eve", id), director.KindNotFound)
	for _, bad := range []string{"", "%", first.TokenHash, id[:15]} {
		wantKind(t, b.Revoke(ctx, "admin", "admin", bad), director.KindNotFound)
	}
	if err := b.Revoke(ctx, "admin", "admin", id); err != nil {
		t.Fatal(err)
	}
	_, err = b.auth.Authenticate(ctx, tokens[0])
	wantKind(t, err, director.KindUnauthenticated)
	if _, err := b.auth.Authenticate(ctx, tokens[1]); err != nil {
		t.Error(err)
	}
	audit(t, b, "end session "+id)
}
