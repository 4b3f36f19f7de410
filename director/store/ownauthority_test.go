package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
)

// Of two directors that change their authority at once, one does. Every director with signs of life is asked for.
func TestOwnAuthority(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s, ctx, now := open(), t.Context(), time.Now()
		if revision, sealed, err := s.OwnAuthority(ctx); revision != "" || sealed != nil || err != nil {
			t.Errorf("before a change: %q, %v", revision, err)
		}
		for _, step := range []struct {
			former, revision string
			kind             director.Kind
		}{
			{"", "r1", ""},
			{"", "r2", director.KindConflict},
			{"r0", "r2", director.KindConflict},
			{"r1", "r2", ""},
			{"r1", "r3", director.KindConflict},
		} {
			err := s.PutOwnAuthority(ctx, step.former, step.revision, "print of "+step.revision, []byte(step.revision))
			if (err == nil) != (step.kind == "") || err != nil && director.KindOf(err) != step.kind {
				t.Errorf("%s to %s: %v", step.former, step.revision, err)
			}
		}
		revision, sealed, err := s.OwnAuthority(ctx)
		if revision != "r2" || string(sealed) != "r2" || err != nil {
			t.Errorf("at the end: %q, %q, %v", revision, sealed, err)
		}
		if print, err := s.Meta(ctx, MetaAuthority); print != "print of r2" || err != nil {
			t.Errorf("the fingerprint: %q, %v", print, err)
		}
		for _, i := range []string{"i1", "i2", "i3"} {
			seen := now
			if i == "i3" {
				seen = time.Time{} // it has ended
			}
			if err := s.Beat(ctx, i, "host-"+i, now, seen); err != nil {
				t.Fatal(err)
			}
		}
		for range 2 {
			if err := s.FollowAuthority(ctx, "i1", "r2"); err != nil {
				t.Error(err)
			}
		}
		if err := s.Beat(ctx, "i1", "host-i1", now, now); err != nil { // a sign of life says nothing of it
			t.Fatal(err)
		}
		got, err := s.Followers(ctx, "r2")
		want := []Follower{{Instance{"i1", "host-i1"}, true}, {Instance{"i2", "host-i2"}, false}}
		if diff := cmp.Diff(want, got); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	})
}
