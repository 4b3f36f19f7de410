package auth_test

import (
	"errors"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api/apitest"
	"github.com/director-kaas/kaas/director/auth"
)

func TestOneTimePasswordsExpire(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	c := &clock{at: time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)}
	var changed []string
	s, err := auth.New(apitest.OpenStore(t), auth.Config{
		Hash: auth.Params{MemoryKiB: 64, Passes: 1}, Now: c.now, OneTimeTTL: time.Hour,
		Changed: func(user string) { changed = append(changed, user) },
	})
	if err != nil {
		t.Fatal(err)
	}
	var kept []director.Secret
	keep := func(p director.Secret, expires time.Time) error {
		if want := c.now().Add(time.Hour); !expires.Equal(want) {
			t.Errorf("it expires %s, want %s", expires, want)
		}
		kept = append(kept, p)
		return nil
	}
	if _, err := s.EnsureOneTime(ctx, func(director.Secret, time.Time) error {
		return errors.New("no room")
	}); err == nil {
		t.Error("a password that could not be kept")
	}
	ensure := func(pending bool, passwords int) {
		t.Helper()
		if got, err := s.EnsureOneTime(ctx, keep); err != nil || got != pending || len(kept) != passwords {
			t.Fatalf("pending %v with %d passwords, want %v and %d: %v", got, len(kept), pending, passwords, err)
		}
	}
	ensure(true, 1)
	ensure(true, 1)
	c.add(time.Hour)
	_, _, err = s.Login(ctx, auth.Login{User: auth.AdminName, Password: kept[0]})
	wantKind(t, err, director.KindUnauthenticated)
	if director.HintOf(err) == "" {
		t.Errorf("no next action: %v", err)
	}
	ensure(true, 2)
	_, _, err = s.Login(ctx, auth.Login{User: auth.AdminName, Password: kept[0]})
	wantKind(t, err, director.KindUnauthenticated)
	_, actor, err := s.Login(ctx, auth.Login{User: auth.AdminName, Password: kept[1]})
	if err != nil || !actor.MustChange {
		t.Fatalf("%+v, %v", actor, err)
	}
	if err := s.ChangePassword(ctx, actor, kept[1], "correct horse battery"); err != nil || len(changed) != 1 {
		t.Errorf("%v, told %v", err, changed)
	}
	c.add(1000 * time.Hour)
	ensure(false, 2)
	if _, _, err := s.Login(ctx, auth.Login{User: auth.AdminName, Password: "correct horse battery"}); err != nil {
		t.Errorf("a password of one's own has expired: %v", err)
	}
}
