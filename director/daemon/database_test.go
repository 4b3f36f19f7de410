package daemon

import (
	"context"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/store/storetest"
)

// PostgreSQL is away while a plan runs: the director says so to everybody who asks, and the plan continues by itself
// when the database is back. Each of its steps succeeds once.
func TestDatabaseIsAwayInAPlan(t *testing.T) {
	t.Parallel()
	server := storetest.New(t)
	l, d := makeLost(t, server.Database(t))
	api := connect(t, l.Config, d)
	run(t, api, plan.ClusterCreate)
	half := scaling(t, api) // which takes at least as long as its VM boots
	if err := server.Crash(); err != nil {
		t.Fatal(err)
	}
	_, err := api.Plan(t.Context(), half)
	if director.KindOf(err) != director.KindUnavailable || director.HintOf(err) == "" {
		t.Errorf("a question without the database: %v (%s)", err, director.HintOf(err))
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	wantReady := func(want bool) {
		t.Helper()
		tick := time.NewTicker(100 * time.Millisecond)
		defer tick.Stop()
		for err := api.Ready(ctx); (err == nil) != want; err = api.Ready(ctx) {
			select {
			case <-tick.C:
			case <-ctx.Done():
				t.Fatalf("ready: want %t, got %v", want, err)
			}
		}
	}
	wantReady(false)
	if err := server.Restart(); err != nil {
		t.Fatal(err)
	}
	wantReady(true)
	wantPlanDone(t, api, half)
	succeeded := store.EventQuery{Kinds: []plan.EventKind{plan.Succeeded}, Limit: 1000}
	events, _, err := d.services.db.EventPage(ctx, half, succeeded)
	if err != nil {
		t.Fatal(err)
	}
	p, _, err := d.services.db.Plan(ctx, half)
	if err != nil {
		t.Fatal(err)
	}
	times := map[string]int{}
	for _, e := range events {
		times[e.Step]++
	}
	for _, st := range p.Steps {
		if times[st.ID] != 1 {
			t.Errorf("step %s succeeded %d times", st.ID, times[st.ID])
		}
	}
}
