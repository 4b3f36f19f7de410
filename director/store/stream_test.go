package store

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"gorm.io/gorm"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store/storetest"
)

func stream(t *testing.T, s *Store, q director.StreamQuery) director.StreamPage {
	t.Helper()
	if q.Limit == 0 {
		q.Limit = 100
	}
	page, err := s.Stream(t.Context(), q)
	if err != nil {
		t.Fatal(err)
	}
	return page
}

func audit(t *testing.T, s *Store, at int64, object string) {
	t.Helper()
	if err := update(t, s, func(tx *Tx) error {
		return tx.Audit(time.Unix(at, 0), "ann", "apply", object)
	}); err != nil {
		t.Fatal(err)
	}
}

func TestStream(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s, at := open(), time.Unix(100, 0).UTC()
		p := plan.Plan{ID: "p", Content: plan.Content{Cluster: "c", Steps: []plan.Step{{ID: "a"}}}}
		news := s.News()
		err := update(t, s, func(tx *Tx) error {
			st := plan.NewState(&p)
			var errs []error
			add := func(e plan.Event) {
				e.Plan, e.At, e.By = "p", at, "d1"
				errs = append(errs, tx.Append(&st, e))
			}
			errs = append(errs, tx.AddPlan(p), tx.Audit(at, "ann", "start", "Plan/p"))
			add(plan.Event{Kind: plan.PlanStarted})
			add(plan.Event{Kind: plan.Started, Step: "a", Attempt: 1})
			add(plan.Event{Kind: plan.Noted, Step: "a", Attempt: 1, Message: "waits"})
			add(plan.Event{Kind: plan.NotReady, Step: "a", Attempt: 1, Message: "waits"})
			add(plan.Event{Kind: plan.Started, Step: "a", Attempt: 2})
			add(plan.Event{Kind: plan.Aborted, Step: "a", Attempt: 2, Message: "bad \xff", Hint: "mend"})
			errs = append(
				errs, tx.Audit(at, "bob", "skip", "Plan/p a"), tx.Audit(at, "bob", "apply", "Cluster/c"),
				tx.Audit(at, "bob", "apply", "Network/n"),
			)
			return errors.Join(errs...)
		})
		if err != nil {
			t.Fatal(err)
		}
		select {
		case <-news:
		default:
			t.Error("nobody is told of news")
		}
		of := func(what, by, step string, attempt int, seq int64) director.StreamEvent {
			return director.StreamEvent{
				At: at, Source: director.SourcePlan, Kind: "Plan", Name: "p", Cluster: "c", What: what, By: by,
				Step: step, Attempt: attempt, Seq: seq,
			}
		}
		want := []director.StreamEvent{
			of("start", "ann", "", 0, 0), of("plan_started", "d1", "", 0, 1), of("started", "d1", "a", 1, 2),
			of("started", "d1", "a", 2, 5),
			of("aborted", "d1", "a", 2, 6), of("skip", "bob", "a", 0, 0),
			{At: at, Kind: "Cluster", Name: "c", Cluster: "c", What: "apply", By: "bob"},
			{At: at, Kind: "Network", Name: "n", What: "apply", By: "bob"},
		}
		want[4].Message, want[4].Hint = "bad \uFFFD", "mend"
		for _, i := range []int{0, 5, 6, 7} {
			want[i].Source = director.SourceAudit
		}
		for i := range want {
			want[i].ID = int64(i + 1)
		}
		if diff := cmp.Diff(
			director.StreamPage{Events: want, Last: 8}, stream(t, s, director.StreamQuery{}),
		); diff != "" {
			t.Error(diff)
		}
		for _, c := range []struct {
			q     director.StreamQuery
			first int64
			n     int
			last  int64
		}{
			{director.StreamQuery{After: 2, Limit: 3}, 3, 3, 5},
			{director.StreamQuery{Tail: 3}, 6, 3, 8},
			{director.StreamQuery{Tail: 30}, 1, 8, 8},
			{director.StreamQuery{Tail: 1, Kinds: []string{"Plan"}}, 6, 1, 8},
			{director.StreamQuery{Cluster: "c", Limit: 2, After: 5}, 6, 2, 7},
			{director.StreamQuery{Kinds: []string{"Cluster", "Network"}}, 7, 2, 8},
			{director.StreamQuery{Cluster: "none"}, 0, 0, 8},
			{director.StreamQuery{After: 8}, 0, 0, 8},
		} {
			page := stream(t, s, c.q)
			first := int64(0)
			if len(page.Events) > 0 {
				first = page.Events[0].ID
			}
			if first != c.first || len(page.Events) != c.n || page.Last != c.last || page.Gap != nil {
				t.Errorf("%+v: %d from %d, last %d, gap %v", c.q, len(page.Events), first, page.Last, page.Gap)
			}
		}
	})
}

func TestAFailedTransactionIsNotInTheStream(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s, boom := open(), errors.New("boom")
		news := s.News()
		err := update(t, s, func(tx *Tx) error {
			return errors.Join(tx.Audit(time.Unix(1, 0), "ann", "apply", "Network/n"), boom)
		})
		if page := stream(t, s, director.StreamQuery{}); !errors.Is(err, boom) || len(page.Events) != 0 {
			t.Errorf("%v, %+v", err, page)
		}
		select {
		case <-news:
			t.Error("there is no news")
		default:
		}
	})
}

// A transaction with more events than a statement takes.
func TestStreamOfALargeTransaction(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s, n := open(), 1203
		if err := update(t, s, func(tx *Tx) error {
			var errs []error
			for i := range n {
				errs = append(errs, tx.Audit(time.Unix(1, 0), "ann", "apply", fmt.Sprintf("Network/n%d", i)))
			}
			return errors.Join(errs...)
		}); err != nil {
			t.Fatal(err)
		}
		page := stream(t, s, director.StreamQuery{Limit: 2 * n})
		if len(page.Events) != n || page.Events[0].Name != "n0" || page.Events[n-1].Name != fmt.Sprintf("n%d", n-1) {
			t.Errorf("%d events", len(page.Events))
		}
	})
}

func TestPruneStream(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s := open()
		for i := range 6 {
			audit(t, s, int64(100+i), "Network/n")
		}
		prune := func(before, want int64) {
			t.Helper()
			if n, err := s.PruneStream(t.Context(), time.Unix(before, 0)); n != want || err != nil {
				t.Errorf("%d pruned, %v; want %d", n, err, want)
			}
		}
		gap := func(after, through, first int64) {
			t.Helper()
			page, want := stream(t, s, director.StreamQuery{After: after}), (*director.StreamGap)(nil)
			if through > 0 {
				want = &director.StreamGap{After: after, Through: through}
			}
			if diff := cmp.Diff(want, page.Gap); diff != "" {
				t.Errorf("after %d: %s", after, diff)
			}
			if got := int64(7 - len(page.Events)); got != first || page.Last != 6 {
				t.Errorf("after %d: from %d, last %d", after, got, page.Last)
			}
		}
		gap(2, 0, 3)
		prune(103, 3)
		prune(103, 0)
		gap(0, 0, 4) // whoever begins misses nothing
		gap(2, 3, 4)
		gap(3, 0, 4)
		gap(9, 6, 7) // of another database
		prune(1000, 3)
		gap(0, 0, 7)
		gap(3, 6, 7)
		gap(6, 0, 7)
		audit(t, s, 2000, "Network/n")
		if page := stream(t, s, director.StreamQuery{
			After: 6,
		}); len(page.Events) != 1 || page.Events[0].ID <= 6 || page.Gap != nil {
			t.Errorf("ids begin anew: %+v", page)
		}
	})
}

// A reader who continues from the last id that it saw misses nothing, however many write at once.
func TestStreamIsInTheOrderOfCommits(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		stores, each := []*Store{open(), open(), open()}, 30
		if stores[0].pool == nil {
			stores = []*Store{stores[0], stores[0], stores[0]} // one process
		}
		var writers sync.WaitGroup
		for w, s := range stores {
			for g := range 2 {
				writers.Go(func() {
					for i := range each {
						if err := s.Update(t.Context(), func(tx *Tx) error {
							return tx.Audit(time.Unix(1, 0), fmt.Sprint(w, g), "apply", fmt.Sprintf("Network/%d", i))
						}); err != nil {
							t.Error(err)
						}
					}
				})
			}
		}
		done := make(chan struct{})
		go func() { writers.Wait(); close(done) }()
		next := map[string]int{}
		after, seen := int64(0), 0
		for ended := false; ; {
			page, err := stores[0].Stream(t.Context(), director.StreamQuery{After: after, Limit: 7})
			if err != nil {
				t.Fatal(err)
			}
			for _, e := range page.Events {
				if e.ID <= after || e.Name != fmt.Sprint(next[e.By]) {
					t.Fatalf("event %d of %s is %s after %d, want %d", e.ID, e.By, e.Name, after, next[e.By])
				}
				after = e.ID
				next[e.By]++
				seen++
			}
			if after = page.Last; ended && len(page.Events) == 0 {
				break
			}
			select {
			case <-done:
				ended = true
			default:
			}
		}
		if want := len(stores) * 2 * each; seen != want {
			t.Errorf("%d events seen, want %d", seen, want)
		}
	})
}

// A transaction does not take an id while another that has one is not committed.
func TestStreamWritersWaitForEachOther(t *testing.T) {
	t.Parallel()
	s, err := OpenPostgres(t.Context(), Postgres{URL: storetest.Postgres(t)}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	second := make(chan error, 1)
	err = s.write.Transaction(func(db *gorm.DB) error {
		first := newTx(&txn{db: db, store: s.database})
		first.announceAudit(time.Unix(1, 0), "first", "apply", "Network/n")
		if err := first.flushStream(); err != nil {
			return err
		}
		go func() {
			second <- s.Update(ctx, func(tx *Tx) error {
				return tx.Audit(time.Unix(1, 0), "second", "apply", "Network/n")
			})
		}()
		for waiting := int64(0); waiting == 0; {
			select {
			case err := <-second:
				t.Errorf("the second did not wait: %v", err)
				return nil
			default:
			}
			if err := s.read.WithContext(ctx).Raw(
				"SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND NOT granted",
			).Scan(&waiting).Error; err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if !t.Failed() {
		if err := <-second; err != nil {
			t.Fatal(err)
		}
	}
	if page := stream(t, s, director.StreamQuery{}); len(page.Events) != 2 || page.Events[0].By != "first" {
		t.Errorf("%+v", page.Events)
	}
}
