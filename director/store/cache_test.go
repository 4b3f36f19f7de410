package store

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director/plan"
)

// What comes from the cache is what stands in the tables, whoever wrote it, and whatever became of the transaction.
func TestCachedPlanIsTheStoredOne(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		ours, peer := open(), open()
		p := plan.Plan{ID: "p", Hash: "h", CreatedAt: time.Unix(1, 0).UTC(), Content: plan.Content{
			Cluster: "c", Steps: []plan.Step{{ID: "a", Params: []byte(`{"n":1}`)}, {ID: "b", Needs: []string{"a"}}},
		}}
		if err := update(t, ours, func(tx *Tx) error { return tx.AddPlan(p) }); err != nil {
			t.Fatal(err)
		}
		at := time.Date(2026, 1, 2, 3, 4, 5, 678_901_234, time.FixedZone("east", 3600))
		appendTo := func(s *Store, e plan.Event, after error) {
			t.Helper()
			err := update(t, s, func(tx *Tx) error {
				_, state, err := tx.Plan("p")
				if err != nil {
					return err
				}
				e.Plan, e.At = "p", at
				if err := tx.Append(&state, e); err != nil {
					return err
				}
				_, again, err := tx.Plan("p")
				if err != nil {
					return err
				}
				if diff := cmp.Diff(state, again); diff != "" {
					t.Errorf("within the transaction (-appended +read):\n%s", diff)
				}
				return after
			})
			if !errors.Is(err, after) {
				t.Fatal(err)
			}
			at = at.Add(1_234_567 * time.Nanosecond)
		}
		aborted := errors.New("aborted")
		for i, turn := range []struct {
			by    *Store
			after error
			e     plan.Event
		}{
			{ours, nil, plan.Event{Kind: plan.PlanStarted}},
			{ours, aborted, plan.Event{Kind: plan.Started, Step: "b", Attempt: 1}},
			{ours, nil, plan.Event{Kind: plan.Started, Step: "a", Attempt: 1}},
			{peer, nil, plan.Event{Kind: plan.Noted, Step: "a", Attempt: 1, Message: "half way"}},
			{
				peer, nil,
				plan.Event{
					Kind: plan.Retry, Step: "a", Attempt: 1, Message: "failed\x00", NotBefore: at.Add(time.Minute),
				},
			},
			{ours, nil, plan.Event{Kind: plan.Started, Step: "a", Attempt: 2}},
			{ours, nil, plan.Event{Kind: plan.Succeeded, Step: "a", Attempt: 2}},
			{peer, aborted, plan.Event{Kind: plan.PlanPaused}},
			{peer, nil, plan.Event{Kind: plan.Started, Step: "b", Attempt: 1}},
		} {
			appendTo(turn.by, turn.e, turn.after)
			fresh := open()
			wantPlan, want, err := fresh.Plan(t.Context(), "p")
			if err != nil {
				t.Fatal(err)
			}
			for name, s := range map[string]*Store{"ours": ours, "peer": peer} {
				gotPlan, got, err := s.Plan(t.Context(), "p")
				if err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(want, got); diff != "" {
					t.Errorf("turn %d, %s: the state (-stored +cached):\n%s", i, name, diff)
				}
				if diff := cmp.Diff(wantPlan, gotPlan); diff != "" {
					t.Errorf("turn %d, %s: the plan (-stored +cached):\n%s", i, name, diff)
				}
				gotPlan.Steps[0].ID, got.Steps[0].Status = "changed by a caller", plan.Stuck
				gotPlan.Steps[0].Params = append(gotPlan.Steps[0].Params, "changed"...)
			}
		}
		events, err := ours.Events(t.Context(), "p", 0, 100)
		if err != nil {
			t.Fatal(err)
		}
		folded, err := plan.Fold(&p, events)
		if err != nil {
			t.Fatal(err)
		}
		_, state, err := ours.Plan(t.Context(), "p")
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(folded, state); diff != "" {
			t.Errorf("the state is not the fold of the journal (-fold +state):\n%s", diff)
		}
	})
}

// A state that is behind by more events than the journal still has comes from the rows.
func TestCachedPlanSurvivesAPrunedJournal(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		ours, peer := open(), open()
		p := plan.Plan{ID: "p", Content: plan.Content{Cluster: "c", Steps: []plan.Step{{ID: "a"}}}}
		if err := update(t, ours, func(tx *Tx) error { return tx.AddPlan(p) }); err != nil {
			t.Fatal(err)
		}
		if _, _, err := ours.Plan(t.Context(), "p"); err != nil { // now it is known
			t.Fatal(err)
		}
		err := update(t, peer, func(tx *Tx) error {
			_, s, err := tx.Plan("p")
			for _, e := range []plan.Event{
				{Kind: plan.PlanStarted},
				{Kind: plan.Started, Step: "a", Attempt: 1},
				{Kind: plan.Succeeded, Step: "a", Attempt: 1},
			} {
				if e.Plan = "p"; err == nil {
					err = tx.Append(&s, e)
				}
			}
			return err
		})
		if err == nil {
			err = peer.write.Exec("DELETE FROM events WHERE seq <= 2").Error
		}
		if err != nil {
			t.Fatal(err)
		}
		_, got, err := ours.Plan(t.Context(), "p")
		if err != nil || got.Seq != 3 || got.Steps[0].Status != plan.Done {
			t.Errorf("got %+v, %v", got, err)
		}
	})
}

func TestPlanCacheIsBounded(t *testing.T) {
	t.Parallel()
	c := newPlanCache(100)
	const content = `{"summary":"s"}`
	for i := range 50 {
		if _, err := c.put(fmt.Sprint(i), "h", content); err != nil {
			t.Fatal(err)
		}
		if c.get("0", "h") == nil {
			t.Fatal("what is used all the time was dropped")
		}
	}
	if n := len(c.plans); n != 100/len(content) || c.order.Len() != n || c.size != n*len(content) {
		t.Errorf("%d plans of %d bytes, want %d", n, c.size, 100/len(content))
	}
	if c.get("0", "another hash") != nil || c.get("0", "h") != nil {
		t.Error("a content was handed out under another hash")
	}
	large := `{"summary":"` + fmt.Sprintf("%200d", 1) + `"}`
	if p, err := c.put("large", "h", large); err != nil || p.content.Summary == "" || c.get("large", "h") != nil {
		t.Errorf("got %v, %v: it is read, and not kept", p, err)
	}
}
