package planning

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/engine"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
)

// The conflict names the plan in the way, who started it (and not who made it) and since when; and what is not known of
// it is left out.
func TestHeldByNamesThePlanInTheWay(t *testing.T) {
	t.Parallel()
	s := openLab(t, 0, 0)
	at := time.Unix(1000, 0).UTC()
	p := plan.Plan{
		ID: "p1", CreatedAt: at.Add(-time.Hour), CreatedBy: "ann",
		Content: plan.Content{Operation: plan.ClusterCreate, Cluster: "demo"},
	}
	other := plan.Plan{
		ID: "p2", CreatedAt: at, CreatedBy: "eve",
		Content: plan.Content{Operation: plan.ClusterDelete, Cluster: "demo"},
	}
	err := s.Store.Update(t.Context(), func(tx *store.Tx) error {
		st := plan.NewState(&p)
		return errors.Join(
			tx.AddPlan(p), tx.AddPlan(other),
			tx.Append(&st, plan.Event{Plan: "p1", Kind: plan.PlanStarted, At: at, By: "bob"}),
		)
	})
	if err != nil {
		t.Fatal(err)
	}
	for id, want := range map[string]director.Holder{
		"p1": {
			Plan: "p1", Cluster: "demo", Operation: string(plan.ClusterCreate), Status: string(plan.StatusRunning),
			By: "bob", Since: at,
		},
		"gone": {Plan: "gone", Cluster: "demo"},
	} {
		err := s.Store.HeldBy(t.Context(), "t", id, "demo")
		e, ok := errors.AsType[*director.Error](err)
		if !ok || e.Kind != director.KindConflict || e.Hint == "" || e.Holder == nil {
			t.Fatalf("%s: %v", id, err)
		}
		if diff := cmp.Diff(want, *e.Holder); diff != "" {
			t.Errorf("%s: %s", id, diff)
		}
	}
}

// A plan that nobody started in time is no longer what a person agreed to.
func TestAPlanExpires(t *testing.T) {
	t.Parallel()
	s := openLab(t, 0, 0)
	made := time.Now()
	p := plan.Plan{ID: "p1", Hash: "h", CreatedAt: made, Content: plan.Content{Cluster: "demo"}}
	if err := s.Store.Update(t.Context(), func(tx *store.Tx) error { return tx.AddPlan(p) }); err != nil {
		t.Fatal(err)
	}
	s.PlanLife, s.Now = 24*time.Hour, func() time.Time { return made.Add(25 * time.Hour) }
	_, err := s.StartPlan(t.Context(), "admin", p.ID, p.Hash)
	if director.KindOf(err) != director.KindConflict || !strings.Contains(err.Error(), "25h0m0s ago and has expired") ||
		director.HintOf(err) != "make it again, and compare: directorctl plans again p1" {
		t.Errorf("%v, hint %q", err, director.HintOf(err))
	}
}

// A plan that changes the document of its cluster starts by its campaign alone, where more than the start is agreed to.
func TestAPlanOfACampaignIsNotStartedByHand(t *testing.T) {
	t.Parallel()
	s := openLab(t, 0, 0)
	p := plan.Plan{ID: "p1", Hash: "h", CreatedAt: time.Now(), Content: plan.Content{
		Cluster: "demo", Request: plan.Request{Change: []byte(`{"release":"next"}`)},
	}}
	if err := s.Store.Update(t.Context(), func(tx *store.Tx) error { return tx.AddPlan(p) }); err != nil {
		t.Fatal(err)
	}
	_, err := s.StartPlan(t.Context(), "admin", p.ID, p.Hash)
	if director.KindOf(err) != director.KindConflict || !strings.Contains(err.Error(), "is of a campaign") ||
		director.HintOf(err) == "" {
		t.Errorf("%v, hint %q", err, director.HintOf(err))
	}
}

// adapted is the store as the engine wants it.
type adapted struct{ *store.Store }

func (s adapted) Update(ctx context.Context, fn func(engine.Tx) error) error {
	return s.Store.Update(ctx, func(tx *store.Tx) error { return fn(tx) })
}

func (s adapted) Active(ctx context.Context) ([]string, error) {
	return s.Plans(ctx, store.PlanFilter{Statuses: plan.Driven()})
}

// What waited for the cluster is discarded with the new plan or not at all: who sees a plan go finds what was made in
// its place, and without a new plan the older one stays.
func TestANewPlanTakesThePlaceOfTheOlderOne(t *testing.T) {
	t.Parallel()
	s := openLab(t, 0, 0)
	e, err := engine.New(t.Context(), engine.Config{
		Director: s.Director.ID, Store: adapted{s.Store}, Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	s.Engine = e
	made := func(id string) *plan.Plan {
		return &plan.Plan{ID: id, CreatedAt: time.Now(), CreatedBy: "ann", Content: plan.Content{
			Operation: plan.ClusterScale, Cluster: "demo", Steps: []plan.Step{{ID: "a", Kind: "a", Attempts: 1}},
		}}
	}
	statuses := func() (all []plan.Status) {
		t.Helper()
		for _, id := range []string{"p1", "p2", "p3"} {
			_, state, err := s.Store.Plan(t.Context(), id)
			if err != nil && director.KindOf(err) != director.KindNotFound {
				t.Fatal(err)
			}
			all = append(all, state.Status)
		}
		return all
	}
	of := model.Ref{Kind: model.KindCluster, Name: "demo"}
	full := errors.New("the disk is full")
	for _, c := range []struct {
		id   string
		err  error
		want []plan.Status
	}{
		{id: "p1", want: []plan.Status{plan.StatusPlanned, "", ""}},
		{id: "p2", err: full, want: []plan.Status{plan.StatusPlanned, "", ""}},
		{id: "p3", want: []plan.Status{plan.StatusDiscarded, "", plan.StatusPlanned}},
	} {
		err := s.starts().keep(t.Context(), made(c.id), of, func(*store.Tx, string) error { return c.err })
		if !errors.Is(err, c.err) {
			t.Fatalf("%s: %v, want %v", c.id, err, c.err)
		}
		if diff := cmp.Diff(c.want, statuses()); diff != "" {
			t.Fatalf("after %s: %s", c.id, diff)
		}
	}
}
