package daemon

import (
	"context"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/wire"
)

// The journal of a plan that is done was pruned: whoever follows it from its beginning, or from its middle, is told
// what is gone and how it ended.
func TestFollowOfAPrunedPlanEnds(t *testing.T) {
	t.Parallel()
	c := simulating(t, threeHosts)
	d, api := created(t, c)
	plans, err := api.Plans(t.Context(), client.PlanFilter{Limit: 1})
	if err != nil {
		t.Fatal(err)
	}
	p, err := api.Plan(t.Context(), plans[0].ID)
	if err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(t.Context(), filepath.Join(c.StateDir, "director.db"), d.log)
	if err != nil {
		t.Fatal(err)
	}
	_, n, err := db.PruneEvents(t.Context(), time.Now().Add(time.Hour))
	if cerr := db.Close(); err != nil || cerr != nil || n != p.LastEvent {
		t.Fatalf("pruned %d of %d events: %v, %v", n, p.LastEvent, err, cerr)
	}
	for _, after := range []int64{0, 3} {
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		var gaps []wire.EventGap
		status, err := api.Follow(ctx, p.ID, after, func(e wire.Event) error {
			t.Errorf("event %d", e.Seq)
			return nil
		}, func(g wire.EventGap) { gaps = append(gaps, g) }, nil)
		if err != nil || status != string(plan.StatusDone) {
			t.Errorf("behind %d the plan ends as %q: %v", after, status, err)
		}
		if diff := cmp.Diff([]wire.EventGap{{After: after, Through: p.LastEvent}}, gaps); diff != "" {
			t.Error(diff)
		}
	}
}
