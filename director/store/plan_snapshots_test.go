package store

import (
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director/plan"
)

// A plan has left what it began to make and did not remove, once it is over for good.
func TestPlansThatLeft(t *testing.T) {
	const take, remove, removeInUndo = "snapshot.take/w1", "snapshot.delete/w1", "undo/snapshot.delete/w1"
	begun := func(step string) []plan.Event { return []plan.Event{{Step: step, Kind: plan.Started}} }
	did := func(step string) []plan.Event {
		return append(begun(step), plan.Event{Step: step, Kind: plan.Succeeded})
	}
	given := []plan.Event{{Kind: plan.PlanFailed}, {Kind: plan.PlanDiscarded}}
	both(t, func(t *testing.T, open func() *Store) {
		s, at := open(), time.Unix(1000, 0)
		for _, tt := range []struct {
			id     string
			events [][]plan.Event
		}{
			{"not-begun", [][]plan.Event{given}},
			{"runs", [][]plan.Event{did(take)}},
			{"failed", [][]plan.Event{did(take), given[:1]}},
			{"left", [][]plan.Event{did(take), given}},
			{"left-half", [][]plan.Event{begun(take), {{Step: take, Kind: plan.Interrupted}}, given}},
			{"removed", [][]plan.Event{did(take), did(remove), given}},
			{"removed-in-undo", [][]plan.Event{did(take), did(removeInUndo), given}},
		} {
			p := plan.Plan{ID: tt.id, CreatedAt: at, Content: plan.Content{Cluster: tt.id, Steps: []plan.Step{
				{ID: take, Kind: "snapshot.take"},
				{ID: remove, Kind: "snapshot.delete"},
				{ID: removeInUndo, Kind: "snapshot.delete"},
			}}}
			at = at.Add(time.Second)
			state := plan.NewState(&p)
			if err := update(t, s, func(tx *Tx) error {
				err := tx.AddPlan(p)
				for _, ev := range slices.Concat(append([][]plan.Event{{{Kind: plan.PlanStarted}}}, tt.events...)...) {
					if err == nil {
						ev.Plan, ev.At = tt.id, at
						err = tx.Append(&state, ev)
					}
				}
				return err
			}); err != nil {
				t.Fatalf("%s: %v", tt.id, err)
			}
		}
		got, err := s.PlansThatLeft(t.Context(), "snapshot.take", "snapshot.delete")
		if diff := cmp.Diff([]string{"left-half", "left"}, got); diff != "" || err != nil {
			t.Errorf("%v (-want +got)\n%s", err, diff)
		}
	})
}
