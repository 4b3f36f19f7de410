package store

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
)

func TestLoginRequests(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s := open()
		now := time.Date(2030, 1, 1, 12, 0, 0, 0, time.UTC)
		want := LoginRequest{
			ID: "a", Kind: LoginDevice, Secret: "s", UserCode: "c", Host: "h", Address: "10.0.0.1", Redirect: "r",
			State: "st", Challenge: "ch", Status: LoginWaiting, User: "ann", Session: "x", Created: now,
			Expires: now.Add(time.Minute), Polled: now, Pause: 5 * time.Second,
		}
		if err := s.AddLoginRequest(t.Context(), want); err != nil {
			t.Fatal(err)
		}
		for _, k := range []LoginKey{{ID: "a"}, {Secret: "s"}, {UserCode: "c"}} {
			if err := s.EditLoginRequest(t.Context(), k, func(r *LoginRequest) error {
				if diff := cmp.Diff(want, *r); diff != "" {
					t.Errorf("%+v: %s", k, diff)
				}
				r.Status, r.Pause, r.UserCode = LoginRefused, r.Pause+time.Second, "c"
				want = *r
				return nil
			}); err != nil {
				t.Errorf("%+v: %v", k, err)
			}
		}
		for _, k := range []LoginKey{{ID: "b"}, {Secret: "c"}, {UserCode: "s"}, {}} {
			err := s.EditLoginRequest(t.Context(), k, func(*LoginRequest) error { return nil })
			if director.KindOf(err) != director.KindNotFound {
				t.Errorf("%+v: %v", k, err)
			}
		}
		var err error
		for i := range mostLogins {
			r := LoginRequest{ID: fmt.Sprint(i), Created: now, Expires: now.Add(time.Minute)}
			if err = s.AddLoginRequest(t.Context(), r); err != nil {
				break
			}
		}
		if director.KindOf(err) != director.KindExhausted {
			t.Errorf("strangers fill the table: %v", err)
		}
		later := now.Add(2 * time.Hour)
		if err := s.AddLoginRequest(t.Context(),
			LoginRequest{ID: "later", Created: later, Expires: later}); err != nil {
			t.Error(err)
		}
		err = s.EditLoginRequest(t.Context(), LoginKey{ID: "a"}, func(*LoginRequest) error { return nil })
		if director.KindOf(err) != director.KindNotFound {
			t.Errorf("old requests stay: %v", err)
		}
	})
}
