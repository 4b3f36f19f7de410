package store

import (
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
)

func addAdmin(t testing.TB, s *Store, name string) director.User {
	t.Helper()
	u := director.User{
		Name: name, Role: director.RoleAdmin, PasswordHash: "h", Created: time.Unix(1, 0).UTC(),
		Updated: time.Unix(1, 0).UTC(), PasswordSet: time.Unix(1, 0).UTC(),
	}
	if err := s.AddUser(t.Context(), u, "test"); err != nil {
		t.Fatal(err)
	}
	return u
}

// Of two requests that each disable one of two admins, one is refused, on both databases.
func TestTheLastAdminStays(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s, ctx := open(), t.Context()
		refused := errors.New("refused")
		for round := range 10 {
			pair := []string{fmt.Sprintf("a%d", round), fmt.Sprintf("b%d", round)}
			for _, name := range pair {
				addAdmin(t, s, name)
			}
			errs := make([]error, len(pair))
			var all sync.WaitGroup
			for i, name := range pair {
				all.Go(func() {
					errs[i] = s.EditUser(ctx, name, func(e *director.UserEdit) error {
						if e.LastAdmin {
							return refused
						}
						e.User.Disabled = time.Unix(2, 0)
						return nil
					})
				})
			}
			all.Wait()
			if (errs[0] == nil) == (errs[1] == nil) {
				t.Fatalf("round %d: %v", round, errs)
			}
			for _, name := range pair {
				if err := s.EditUser(ctx, name, func(e *director.UserEdit) error {
					e.Delete = true
					return nil
				}); err != nil {
					t.Fatal(err)
				}
			}
		}
	})
}

func TestEditUser(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s, ctx := open(), t.Context()
		u := addAdmin(t, s, "ann")
		if err := s.AddUser(ctx, u, "test"); director.KindOf(err) != director.KindConflict {
			t.Errorf("a second ann: %v", err)
		}
		token := func(hash string, seen director.User) error {
			return s.AddToken(ctx, director.Token{
				Hash: hash, User: "ann", Created: time.Unix(5, 0).UTC(), Expires: time.Unix(50, 0).UTC(),
				Address: "192.0.2.1",
			}, seen)
		}
		for _, hash := range []string{"0123456789abcdef00", "1123456789abcdef00", "2123456789abcdef00"} {
			if err := token(hash, u); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := s.GetUser(ctx, "ann"); err != nil || !got.LastLogin.Equal(time.Unix(5, 0)) {
			t.Errorf("%+v, %v", got, err)
		}
		if err := s.TouchToken(ctx, "0123456789abcdef00", time.Unix(7, 0)); err != nil {
			t.Fatal(err)
		}
		err := s.RevokeToken(ctx, "bob", "0123456789abcdef", false, "test", time.Unix(8, 0))
		if director.KindOf(err) != director.KindNotFound {
			t.Errorf("a session of another user: %v", err)
		}
		if err := s.RevokeToken(ctx, "ann", "2123456789abcdef", false, "test", time.Unix(8, 0)); err != nil {
			t.Fatal(err)
		}
		err = s.EditUser(ctx, "ann", func(e *director.UserEdit) error {
			if !e.LastAdmin {
				t.Error("ann is the only admin")
			}
			e.User.PasswordHash, e.EndTokens, e.Keep = "other", true, "0123456789abcdef00"
			e.Actor, e.Action = "test", "change"
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		left, err := s.ListTokens(ctx, "ann")
		if err != nil || len(left) != 1 || !left[0].Used.Equal(time.Unix(7, 0)) || left[0].Address != "192.0.2.1" {
			t.Errorf("%+v, %v", left, err)
		}
		if err := token("3", u); director.KindOf(err) != director.KindStale {
			t.Errorf("a token for the password from before: %v", err)
		}
		u.PasswordHash = "other"
		if err := s.EditUser(ctx, "ann", func(e *director.UserEdit) error {
			e.User.Disabled = time.Unix(9, 0)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if err := token("4", u); director.KindOf(err) != director.KindStale {
			t.Errorf("a token for a disabled user: %v", err)
		}
		err = s.EditUser(ctx, "bob", func(*director.UserEdit) error { return nil })
		if director.KindOf(err) != director.KindNotFound {
			t.Errorf("an edit of nobody: %v", err)
		}
		page, err := s.Stream(ctx, director.StreamQuery{Kinds: []string{"User"}, Limit: 100})
		if err != nil || len(page.Events) == 0 {
			t.Errorf("nothing was audited: %+v, %v", page, err)
		}
	})
}

func TestUserPage(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s, ctx := open(), t.Context()
		for _, name := range []string{"b", "a", "ab", "c"} {
			addAdmin(t, s, name)
		}
		for _, sort := range []string{"", "name", "created_at", "login_at"} {
			var got []string
			for p := (director.Page{Sort: sort, Limit: 3}); ; {
				users, next, err := s.UserPage(ctx, "", p)
				if err != nil {
					t.Fatal(err)
				}
				for _, u := range users {
					got = append(got, u.Name)
				}
				if p.After = next; next == nil {
					break
				}
			}
			if !slices.Equal(got, []string{"a", "ab", "b", "c"}) {
				t.Errorf("by %q: %v", sort, got)
			}
		}
		if users, _, err := s.UserPage(ctx, "a", director.Page{}); err != nil || len(users) != 2 {
			t.Errorf("%v, %v", users, err)
		}
		_, _, err := s.UserPage(ctx, "", director.Page{Sort: "password"})
		if err == nil {
			t.Error("users are sorted by their passwords")
		}
	})
}

// BenchmarkUserPage reads a part of 10,000 users, as the API does. The bar is a p99 of 50 ms.
func BenchmarkUserPage(b *testing.B) {
	s, err := Open(b.Context(), b.TempDir()+"/director.db", slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = s.Close() })
	err = s.Update(b.Context(), func(tx *Tx) error {
		for i := range 10000 {
			if err := tx.AddUser(director.User{Name: fmt.Sprintf("u%05d", i), Role: director.RoleUser},
				"test"); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		b.Fatal(err)
	}
	var took []time.Duration
	for b.Loop() {
		start := time.Now()
		after := &director.Place{Name: "u05000", Value: "u05000"}
		users, _, err := s.UserPage(b.Context(), "", director.Page{Limit: 1000, After: after})
		if err != nil || len(users) != 1000 {
			b.Fatal(len(users), err)
		}
		took = append(took, time.Since(start))
	}
	slices.Sort(took)
	b.ReportMetric(float64(took[len(took)*99/100].Microseconds())/1000, "p99-ms")
}
