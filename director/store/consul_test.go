package store

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
)

// One director compares a Consul in each period, and how it went is what all of them show. The database is one from
// before there were Consuls.
func TestConsulStates(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s := open()
		ctx := t.Context()
		if err := s.write.Exec("DROP TABLE consul_states").Error; err != nil {
			t.Fatal(err)
		}
		if err := s.write.Exec("DELETE FROM schema_migrations WHERE version = '0054_consul'").Error; err != nil {
			t.Fatal(err)
		}
		s = open()
		now := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
		claim := func(at time.Time, want bool) {
			t.Helper()
			if got, err := s.ClaimConsul(ctx, "dc1", at.Add(-time.Minute), at); err != nil || got != want {
				t.Errorf("claimed: %v, %v", got, err)
			}
		}
		claim(now, true)
		claim(now.Add(59*time.Second), false)
		claim(now.Add(61*time.Second), true)
		want := director.ConsulState{
			Consul: "dc1", At: now, Success: now, Problem: "p", Hint: "h", Wanted: 3, Written: 2,
			Removed: 1, Failing: 1,
			Held: &director.Removals{ID: "x", Count: 2, Total: 3, Sample: []string{"a/b"}},
		}
		if err := s.SaveConsul(ctx, want); err != nil {
			t.Fatal(err)
		}
		states, err := s.ConsulStates(ctx)
		if diff := cmp.Diff(map[string]director.ConsulState{"dc1": want}, states); diff != "" || err != nil {
			t.Errorf("%v\n%s", err, diff)
		}
		if err := s.ConfirmConsul(ctx, "dc1", "x"); err != nil {
			t.Fatal(err)
		}
		if id, err := s.ConfirmedConsul(ctx, "dc1"); id != "x" || err != nil {
			t.Errorf("confirmed is %q, %v", id, err)
		}
		claim(now.Add(62*time.Second), true) // a confirmation waits for no period
	})
}
