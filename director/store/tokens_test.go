package store

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
)

func apiToken(user, name string, created time.Time) director.Token {
	return director.Token{
		Hash: fmt.Sprintf("%-64s", user+name), User: user, Kind: director.TokenAPI, Name: name,
		Scope: director.ScopeRead, Created: created, Expires: created.Add(time.Hour), Address: "192.0.2.1",
	}
}

// API tokens are kept with what they are for, have names of their own for each user, and are bounded.
func TestAPITokens(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s, ctx, now := open(), t.Context(), time.Unix(100, 0).UTC()
		addAdmin(t, s, "ann")
		addAdmin(t, s, "bob")
		first := apiToken("ann", "backup", now)
		if err := s.CreateToken(ctx, first, "ann"); err != nil {
			t.Fatal(err)
		}
		got, err := s.GetToken(ctx, first.Hash)
		if diff := cmp.Diff(first, got); err != nil || diff != "" {
			t.Errorf("%v\n%s", err, diff)
		}
		again := apiToken("ann", "backup", now)
		again.Hash = "other"
		wantConflict(t, s.CreateToken(ctx, again, "ann"), "has a token backup already")
		again.Created, again.Expires = now.Add(time.Hour), now.Add(2*time.Hour)
		if err := s.CreateToken(ctx, again, "ann"); err != nil { // the first one has expired
			t.Error(err)
		}
		if err := s.CreateToken(ctx, apiToken("bob", "backup", now), "bob"); err != nil {
			t.Error(err)
		}
		for i := 1; i < maxTokens; i++ {
			if err := s.CreateToken(ctx, apiToken("bob", fmt.Sprintf("t%d", i), now), "bob"); err != nil {
				t.Fatal(err)
			}
		}
		wantConflict(t, s.CreateToken(ctx, apiToken("bob", "one-more", now), "bob"), "user bob has 50 tokens")
		wantKind(t, s.CreateToken(ctx, apiToken("eve", "x", now), "eve"), director.KindNotFound)
		if err := s.EditUser(ctx, "ann", func(e *director.UserEdit) error {
			e.User.Disabled = now
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		wantConflict(t, s.CreateToken(ctx, apiToken("ann", "y", now), "ann"), "ann is disabled")
	})
}

// A changed password leaves API tokens, and a reset ends them. A session and a token are not taken for each other.
func TestEndOfAPITokens(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s, ctx, now := open(), t.Context(), time.Unix(100, 0).UTC()
		ann := addAdmin(t, s, "ann")
		session := director.Token{
			Hash: fmt.Sprintf("%-64s", "session"), User: "ann", Kind: director.TokenBrowser, Idle: time.Minute,
			Created: now, Expires: now.Add(time.Hour),
		}
		api := apiToken("ann", "backup", now)
		if err := s.AddToken(ctx, session, ann); err != nil {
			t.Fatal(err)
		}
		if err := s.CreateToken(ctx, api, "ann"); err != nil {
			t.Fatal(err)
		}
		wantKind(t, s.RevokeToken(ctx, "ann", session.ID(), true, "ann", now), director.KindNotFound)
		wantKind(t, s.RevokeToken(ctx, "ann", api.ID(), false, "ann", now), director.KindNotFound)
		end := func(keepAPI bool) {
			t.Helper()
			if err := s.EditUser(ctx, "ann", func(e *director.UserEdit) error {
				e.EndTokens, e.KeepAPI = true, keepAPI
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		end(true)
		if left, err := s.ListTokens(ctx, "ann"); err != nil || len(left) != 1 || left[0].Kind != director.TokenAPI {
			t.Errorf("%+v, %v", left, err)
		}
		end(false)
		if left, err := s.ListTokens(ctx, "ann"); err != nil || len(left) != 0 {
			t.Errorf("%+v, %v", left, err)
		}
	})
}

func wantKind(t *testing.T, err error, kind director.Kind) {
	t.Helper()
	if err == nil || director.KindOf(err) != kind {
		t.Errorf("got %v, want the kind %s", err, kind)
	}
}

func wantConflict(t *testing.T, err error, text string) {
	t.Helper()
	wantKind(t, err, director.KindConflict)
	if err != nil && !strings.Contains(err.Error(), text) {
		t.Errorf("got %v, want %s", err, text)
	}
}
