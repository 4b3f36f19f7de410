package store

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/chain"
)

// One director at a time sends the audit trail, from the place that the one before it has noted.
func TestSending(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		one, other := open(), open()
		start := time.Unix(1000, 0)
		take := func(s *Store, owner string, after time.Duration, want bool, place chain.Place) {
			t.Helper()
			now := start.Add(after)
			p, ok, err := s.TakeSending(t.Context(), owner, now, now.Add(time.Minute))
			if err != nil || ok != want || p != place {
				t.Errorf("%s after %v: %+v, %v, %v; want %+v, %v", owner, after, p, ok, err, place, want)
			}
		}
		arrived := func(s *Store, owner string, p chain.Place, want bool) {
			t.Helper()
			err := s.Arrived(t.Context(), owner, p)
			if (err == nil) != want || err != nil && director.KindOf(err) != director.KindConflict {
				t.Errorf("%s %+v: %v, want %v", owner, p, err, want)
			}
		}
		three, four := chain.Place{ID: 3, Seq: 2}, chain.Place{ID: 4, Seq: 3}
		arrived(one, "a", three, false) // nobody sends
		take(one, "a", 0, true, chain.Place{})
		take(other, "b", time.Minute, false, chain.Place{})
		arrived(one, "a", three, true)
		arrived(other, "b", four, false)
		take(one, "a", time.Minute, true, three) // renewed
		take(other, "b", 2*time.Minute, false, chain.Place{})
		take(other, "b", 2*time.Minute+time.Microsecond, true, three)
		arrived(one, "a", four, false) // it is late
		take(one, "a", 2*time.Minute+time.Second, false, chain.Place{})
		arrived(other, "b", four, true)
		arrived(other, "b", three, false) // the place never moves back
		take(other, "b", 3*time.Minute, true, four)
	})
}

// Directors that begin together agree on one.
func TestSendingRace(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		now := time.Unix(1000, 0)
		var won atomic.Int64
		var all sync.WaitGroup
		for i, s := range []*Store{open(), open(), open(), open()} {
			all.Go(func() {
				_, ok, err := s.TakeSending(t.Context(), string(rune('a'+i)), now, now.Add(time.Minute))
				if err != nil {
					t.Error(err)
				}
				if ok {
					won.Add(1)
				}
			})
		}
		all.Wait()
		if won.Load() != 1 {
			t.Errorf("%d directors send", won.Load())
		}
	})
}

func TestAuditAfter(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s := open()
		unsent := func(want int64) {
			t.Helper()
			if n, err := s.AuditUnsent(t.Context()); err != nil || n != want {
				t.Errorf("%d entries have not arrived, %v; want %d", n, err, want)
			}
		}
		unsent(0)
		for i := range 5 {
			if err := s.AddAudit(t.Context(), AuditEntry{At: time.Unix(int64(9-i), 0), Actor: "ann"}); err != nil {
				t.Fatal(err)
			}
		}
		unsent(5)
		seqs := func(id int64, limit int) (out []int64, last int64) {
			t.Helper()
			entries, err := s.AuditAfter(t.Context(), id, limit)
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range entries {
				out, last = append(out, e.Seq), e.ID
			}
			return out, last
		}
		first, id := seqs(0, 2)
		rest, last := seqs(id, 9)
		none, _ := seqs(last, 9)
		if diff := cmp.Diff([][]int64{{1, 2}, {3, 4, 5}, nil}, [][]int64{first, rest, none}); diff != "" {
			t.Errorf("(-want +got)\n%s", diff)
		}
		now := time.Unix(1000, 0)
		if _, ok, err := s.TakeSending(t.Context(), "a", now, now.Add(time.Minute)); err != nil || !ok {
			t.Fatal(ok, err)
		}
		unsent(5)
		if err := s.Arrived(t.Context(), "a", chain.Place{ID: id, Seq: 2}); err != nil {
			t.Fatal(err)
		}
		unsent(3)
	})
}
