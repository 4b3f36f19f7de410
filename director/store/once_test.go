package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
)

func TestOnce(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s, ctx, at := open(), t.Context(), time.Unix(1000, 0)
		try := func(claim, request string, at time.Time) director.Once {
			t.Helper()
			got, err := s.ClaimOnce(
				ctx, director.Once{Actor: "ann", Key: "k", Request: request, Claim: claim}, at,
				at.Add(30*time.Second), at.Add(time.Hour),
			)
			if err != nil {
				t.Fatal(err)
			}
			return got
		}
		first := try("c1", "r", at)
		if first.Claim != "c1" {
			t.Fatalf("%+v", first)
		}
		if got := try("c2", "r", at.Add(time.Second)); got.Claim != "c1" || got.Status != 0 {
			t.Errorf("while the first is at work: %+v", got)
		}
		if got := try("c2", "other", at.Add(time.Minute)); got.Request != "r" || got.Claim != "c1" {
			t.Errorf("another request: %+v", got)
		}
		if ok, err := s.RenewOnce(ctx, first, at.Add(time.Minute)); !ok || err != nil {
			t.Errorf("renewed: %t, %v", ok, err)
		}
		if err := update(t, s, func(tx *Tx) error { return tx.Witness(first, "p1") }); err != nil {
			t.Fatal(err)
		}
		if err := s.ReleaseOnce(ctx, first); err != nil { // what was done cannot be forgotten
			t.Fatal(err)
		}
		second := try("c2", "r", at.Add(2*time.Minute)) // the first has died
		if second.Claim != "c2" || second.Witness != "p1" {
			t.Errorf("taken over: %+v", second)
		}
		if err := update(t, s, func(tx *Tx) error {
			return tx.Witness(first, "p2")
		}); director.KindOf(err) != director.KindConflict {
			t.Errorf("one that was taken over commits its work: %v", err)
		}
		if ok, err := s.RenewOnce(ctx, first, at.Add(time.Hour)); ok || err != nil {
			t.Errorf("one that was taken over renews: %t, %v", ok, err)
		}
		second.Status, second.Header, second.Body = 201, map[string]string{"Location": "/p1"}, []byte("{}")
		if err := s.AnswerOnce(ctx, second); err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(second, try("c3", "r", at.Add(3*time.Minute))); diff != "" {
			t.Error(diff)
		}
		if err := s.PruneOnce(ctx, at.Add(2*time.Hour)); err != nil {
			t.Fatal(err)
		}
		if got := try("c4", "other", at.Add(2*time.Hour)); got.Claim != "c4" {
			t.Errorf("after it has expired: %+v", got)
		}
	})
}
