package auth_test

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/bcrypt"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api/apitest"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/store"
)

// older is a hash as directors before argon2id have stored it.
func older(t testing.TB, password string) string {
	t.Helper()
	sum := sha256.Sum256([]byte(password))
	b, err := bcrypt.GenerateFromPassword([]byte(base64.RawStdEncoding.EncodeToString(sum[:])), bcrypt.MinCost)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// A login stores the password anew if its hash is of an older director or has other parameters.
func TestLoginRehashes(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, users, c := setup(t)
	for name, hash := range map[string]string{
		"bcrypt": older(t, "correct horse battery"),
		"weaker": argon(t, auth.Params{MemoryKiB: 32, Passes: 1}, "correct horse battery"),
	} {
		if err := users.PutUser(ctx, director.User{
			Name: name, Role: director.RoleUser, PasswordHash: hash, Updated: c.now(),
		}); err != nil {
			t.Fatal(err)
		}
		_, _, err := s.Login(ctx, auth.Login{User: name, Password: "wrong horse battery"})
		wantKind(t, err, director.KindUnauthenticated)
		if u, _ := users.GetUser(ctx, name); u.PasswordHash != hash {
			t.Errorf("%s: a wrong password was stored", name)
		}
		for range 2 {
			token, _, err := s.Login(ctx, auth.Login{User: name, Password: "correct horse battery"})
			if err != nil {
				t.Fatalf("%s: %v", name, err)
			}
			if _, err := s.Authenticate(ctx, token); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if u, _ := users.GetUser(ctx, name); !strings.HasPrefix(u.PasswordHash, "$argon2id$v=19$m=64,t=1,p=1$") {
				t.Errorf("%s: the hash is %s", name, u.PasswordHash)
			}
		}
	}
}

func argon(t testing.TB, p auth.Params, password director.Secret) string {
	t.Helper()
	s, err := auth.New(nil, auth.Config{Hash: p}) // hashing needs no store
	if err != nil {
		t.Fatal(err)
	}
	hash, err := s.Hash(context.Background(), password)
	if err != nil {
		t.Fatal(err)
	}
	return hash
}

// A hash in the database that is damaged, or that asks for more memory than a director has, opens nothing.
func TestDamagedHashes(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, users, c := setup(t)
	good := argon(t, auth.Params{MemoryKiB: 64, Passes: 1}, "correct horse battery")
	for _, hash := range []string{
		"", "$", "$2", "$argon2id$", good[:len(good)-5], good + "x", strings.Replace(good, "m=64", "m=4294967295", 1),
		strings.Replace(good, "t=1", "t=0", 1), strings.Replace(good, "t=1", "t=99999", 1),
		strings.Replace(good, "argon2id", "argon2i", 1), strings.Replace(good, "p=1", "p=4", 1),
	} {
		if err := users.PutUser(ctx, director.User{Name: "u", PasswordHash: hash, Updated: c.now()}); err != nil {
			t.Fatal(err)
		}
		_, _, err := s.Login(ctx, auth.Login{User: "u", Password: "correct horse battery"})
		wantKind(t, err, director.KindUnauthenticated)
	}
	if _, err := auth.New(users, auth.Config{Hash: auth.Params{MemoryKiB: 1 << 30, Passes: 1}}); err == nil {
		t.Error("parameters out of range are taken")
	}
}

func TestDisabledUsers(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	s, users, c := setup(t)
	if _, _, err := s.EnsureAdmin(ctx, "correct horse battery"); err != nil {
		t.Fatal(err)
	}
	token, _, err := s.Login(ctx, auth.Login{User: auth.AdminName, Password: "correct horse battery"})
	if err != nil {
		t.Fatal(err)
	}
	disable := func(at time.Time) {
		t.Helper()
		if err := users.EditUser(ctx, auth.AdminName, func(e *director.UserEdit) error {
			e.User.Disabled = at
			return nil
		}); err != nil {
			t.Fatal(err)
		}
	}
	disable(c.now())
	_, err = s.Authenticate(ctx, token)
	wantKind(t, err, director.KindUnauthenticated)
	_, _, err = s.Login(ctx, auth.Login{User: auth.AdminName, Password: "correct horse battery"})
	wantKind(t, err, director.KindUnauthenticated)
	if director.HintOf(err) == "" {
		t.Error("who knows the password is not told that the user is disabled")
	}
	_, _, wrong := s.Login(ctx, auth.Login{User: auth.AdminName, Password: "wrong horse battery"})
	_, _, nobody := s.Login(ctx, auth.Login{User: "nobody", Password: "wrong horse battery"})
	if wrong.Error() != nobody.Error() {
		t.Errorf("the answers tell who is disabled: %q, %q", wrong, nobody)
	}
	disable(time.Time{})
	if _, err = s.Authenticate(ctx, token); err != nil {
		t.Error(err)
	}
}

// disabling is a store that disables the user while a login compares the password.
type disabling struct {
	*store.Store
	now func() time.Time
}

func (d disabling) GetUser(ctx context.Context, name string) (director.User, error) {
	u, err := d.Store.GetUser(ctx, name)
	if err == nil {
		err = d.EditUser(ctx, name, func(e *director.UserEdit) error {
			e.User.Disabled, e.EndTokens = d.now(), true
			return nil
		})
	}
	return u, err
}

// A login that began before its user was disabled leaves no token that would come back to life with the user.
func TestDisabledDuringLogin(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	users := apitest.OpenStore(t)
	c := &clock{at: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
	s, err := auth.New(disabling{users, c.now}, auth.Config{Hash: auth.Params{MemoryKiB: 64, Passes: 1}, Now: c.now})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := s.EnsureAdmin(ctx, "correct horse battery"); err != nil {
		t.Fatal(err)
	}
	_, _, err = s.Login(ctx, auth.Login{User: auth.AdminName, Password: "correct horse battery"})
	wantKind(t, err, director.KindUnauthenticated)
	if tokens, _ := users.ListTokens(ctx, ""); len(tokens) != 0 {
		t.Errorf("%d tokens are left", len(tokens))
	}
}

// BenchmarkLogin measures what a login costs: argon2id with the parameters of a director.
func BenchmarkLogin(b *testing.B) {
	s, err := auth.New(apitest.OpenStore(b), auth.Config{})
	if err != nil {
		b.Fatal(err)
	}
	if _, _, err := s.EnsureAdmin(b.Context(), "correct horse battery"); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := s.Login(b.Context(),
			auth.Login{User: auth.AdminName, Password: "correct horse battery"}); err != nil {
			b.Fatal(err)
		}
	}
}
