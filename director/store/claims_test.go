package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
)

// What is known of claims is kept, and goes with its cluster. A database of before has none.
func TestClaims(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s, ctx, now := open(), t.Context(), time.Unix(5, 0)
		for _, statement := range []string{
			"DROP TABLE claims", "DROP TABLE director_runs",
			"DELETE FROM schema_migrations WHERE version = '0063_claims'",
		} {
			if err := s.write.Exec(statement).Error; err != nil {
				t.Fatal(err)
			}
		}
		s = open()
		must := func(err error) {
			t.Helper()
			if err != nil {
				t.Fatal(err)
			}
		}
		must(s.BeginRun(ctx, "r1", "h", now))
		must(s.BeginRun(ctx, "r2", "h", now))
		for run, want := range map[string]int64{"r1": 1, "r2": 2, "r3": 0, "": 0} {
			if got, err := s.RunOrder(ctx, run); err != nil || got != want {
				t.Errorf("%q: %d, %v", run, got, err)
			}
		}
		doc := model.Document{
			Kind: model.KindCluster, Metadata: model.Metadata{Name: "demo"}, Cluster: &model.Cluster{Release: "r"},
		}
		must(update(t, s, func(tx *Tx) error { return tx.PutDocument(doc, "admin", now) }))
		stored, err := s.Document(ctx, doc.Ref())
		must(err)
		must(update(t, s, func(tx *Tx) error {
			return tx.PutInstalled(Installed{UID: stored.UID, Name: "demo", Document: doc, Endpoint: "e", At: now})
		}))
		other := director.Claim{Run: "x", Host: "there"}
		for _, news := range []bool{true, false} {
			if got, err := s.NoticeClaim(ctx, stored.UID, other, now); err != nil || got != news {
				t.Errorf("noticed: %v, %v", got, err)
			}
		}
		if got, err := s.ClaimedElsewhere(ctx, "demo"); err != nil || got != other {
			t.Errorf("%+v, %v", got, err)
		}
		must(s.TakeOver(ctx, "root", now))
		must(s.TakeOver(ctx, "root", now))
		want := []Claimed{{UID: stored.UID, Name: "demo", Endpoint: "e", Run: "x", Host: "there"}}
		for _, settled := range []bool{false, true} {
			if settled {
				must(s.SettleClaim(ctx, stored.UID, 2))
				want[0].Takeover, want[0].Run, want[0].Host = 2, "", ""
			}
			got, takeover, err := s.Claimed(ctx)
			if diff := cmp.Diff(want, got); err != nil || takeover != 2 || diff != "" {
				t.Errorf("take-over %d, %v (-want +got):\n%s", takeover, err, diff)
			}
		}
		must(update(t, s, func(tx *Tx) error { return tx.ForgetCluster(stored.UID, "demo") }))
		var left int
		if err := s.write.Raw("SELECT COUNT(*) FROM claims").Scan(&left).Error; err != nil || left != 0 {
			t.Errorf("%d rows are left, %v", left, err)
		}
	})
}

// A hand-over lasts until the director takes over: when told, or once for each bundle that it was restored from.
func TestHandOver(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s, ctx, now := open(), t.Context(), time.Unix(5, 0)
		want := func(when string, want bool) {
			t.Helper()
			if got, err := s.HandedOver(ctx); err != nil || got != want {
				t.Errorf("%s: %t, %v", when, got, err)
			}
		}
		want("at first", false)
		handOver := func() {
			t.Helper()
			if err := s.HandOver(ctx, "root", now); err != nil {
				t.Fatal(err)
			}
		}
		handOver()
		handOver()
		want("handed over", true)
		if err := s.TakeOver(ctx, "root", now); err != nil {
			t.Fatal(err)
		}
		want("taken over", false)
		for _, of := range []string{"a bundle", "another bundle"} {
			for _, done := range []bool{true, false} {
				handOver()
				if got, err := s.TakeOverRestored(ctx, of, now); err != nil || got != done {
					t.Errorf("restored: %t, %v", got, err)
				}
				want("restored", !done)
			}
		}
	})
}
