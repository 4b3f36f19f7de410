package store

import (
	"bytes"
	"context"
	"crypto/ed25519"
	"io"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/chain"
)

// The trail is listed by every field, part by part and in both directions.
func TestAuditList(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s := open()
		day := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
		for i, e := range []AuditEntry{
			{Actor: "ann", Action: "apply", Object: "Cluster/demo", Outcome: chain.OK},
			{Actor: "ann", Action: "apply", Object: "Cluster/demo_2", Outcome: chain.Failed},
			{Actor: "bob", Action: "skip", Object: "Cluster/demo step 3", Outcome: chain.OK},
			{Action: "login", Object: "User/eve", Outcome: chain.Refused},
			{Actor: "bob", Action: "delete", Object: "ClusterX/demo", Outcome: chain.OK},
		} {
			e.At = day.AddDate(0, 0, i)
			if err := s.AddAudit(t.Context(), e); err != nil {
				t.Fatal(err)
			}
		}
		for name, c := range map[string]struct {
			query AuditQuery
			want  []int64
		}{
			"all":          {want: []int64{1, 2, 3, 4, 5}},
			"actor":        {query: AuditQuery{Actor: "bob"}, want: []int64{3, 5}},
			"action":       {query: AuditQuery{Action: "apply", Actor: "ann"}, want: []int64{1, 2}},
			"object":       {query: AuditQuery{Object: "Cluster/demo"}, want: []int64{1, 3}},
			"kind":         {query: AuditQuery{Object: "Cluster/"}, want: []int64{1, 2, 3}},
			"no wildcards": {query: AuditQuery{Object: "%/"}},
			"outcome":      {query: AuditQuery{Outcome: chain.Refused}, want: []int64{4}},
			"time": {
				query: AuditQuery{From: day.AddDate(0, 0, 1), Until: day.AddDate(0, 0, 3)},
				want:  []int64{2, 3},
			},
		} {
			if got := listed(t, s, c.query, director.Page{}); !cmp.Equal(got, c.want) {
				t.Errorf("%s: got %v, want %v", name, got, c.want)
			}
		}
		if got := listed(t, s, AuditQuery{}, director.Page{Limit: 2, Desc: true}); !cmp.Equal(got,
			[]int64{5, 4, 3, 2, 1}) {
			t.Errorf("by parts, the newest first: %v", got)
		}
		_, _, err := s.AuditList(t.Context(), AuditQuery{}, director.Page{After: &director.Place{Name: "x"}})
		if director.KindOf(err) != director.KindInvalid {
			t.Errorf("a place that is no number: %v", err)
		}
	})
}

// listed returns the numbers of all entries that a query finds, read part by part.
func listed(t *testing.T, s *Store, q AuditQuery, p director.Page) (all []int64) {
	t.Helper()
	for {
		entries, next, err := s.AuditList(t.Context(), q, p)
		if err != nil {
			t.Fatal(err)
		}
		for _, e := range entries {
			all = append(all, e.Seq)
		}
		if next == nil {
			return all
		}
		p.After = next
	}
}

// A part of the trail begins at a signed entry and ends with one, so that it can be verified alone.
func TestWriteAudit(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s := open()
		day := time.Date(2026, 11, 1, 0, 0, 0, 0, time.UTC)
		for i := range 10 {
			e := AuditEntry{At: day.AddDate(0, 0, i), Actor: "ann", Object: "Cluster/demo"}
			if err := s.AddAudit(t.Context(), e); err != nil {
				t.Fatal(err)
			}
			if i == 3 {
				sign(t, s, 4)
			}
		}
		signer := func(_ context.Context, seq int64) error {
			sign(t, s, seq)
			return nil
		}
		key := chain.Key{Installation: s.DirectorID(), Public: auditKey.Public().(ed25519.PublicKey)}
		for name, c := range map[string]struct {
			from                time.Time
			until               int64
			first, last, signed int64
		}{
			"all":                 {until: 10, first: 1, last: 10, signed: 10},
			"a part":              {from: day.AddDate(0, 0, 6), until: 8, first: 5, last: 8, signed: 8},
			"before a checkpoint": {from: day.AddDate(0, 0, 2), until: 3, first: 1, last: 3, signed: 3},
		} {
			start, err := s.AuditStart(t.Context(), c.from)
			if err != nil {
				t.Fatal(err)
			}
			var out bytes.Buffer
			if _, _, err := s.WriteAudit(t.Context(), &out, start, c.until, signer); err != nil {
				t.Fatal(err)
			}
			r, err := chain.VerifyLines(func() (io.ReadCloser, error) {
				return io.NopCloser(bytes.NewReader(out.Bytes())), nil
			}, key)
			if err != nil || !r.Good() || r.First != c.first || r.Last != c.last || r.Signed != c.signed {
				t.Errorf("%s: %+v, %v\n%s", name, r, err, out.Bytes())
			}
		}
	})
}
