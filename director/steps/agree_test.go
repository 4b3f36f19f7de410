package steps

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// pastEvents is a journal.
type pastEvents []plan.Event

func (p pastEvents) Events(_ context.Context, _ string, after int64, limit int) ([]plan.Event, error) {
	return p[min(int(after), len(p)):min(int(after)+limit, len(p))], nil
}

// journalOf numbers the events.
func journalOf(events ...plan.Event) pastEvents {
	for i := range events {
		events[i].Seq = int64(i + 1)
	}
	return events
}

// withPods is a cluster with pods that have run since before any time after old.
type withPods struct {
	API
	old  time.Time
	pods []string
}

func (w withPods) OldTrust(_ context.Context, t, own time.Time, away []string) ([]string, error) {
	if len(away) != 1 || !w.old.Before(t) || own.IsZero() || own.After(t) {
		return nil, nil
	}
	return w.pods, nil
}

func (withPods) Close() {}

func TestAgreementToAnotherAuthority(t *testing.T) {
	t.Parallel()
	const published, asks = "authorities_published_trust/demo", "authority.agree/use"
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	trusted := plan.Event{Step: published, Kind: plan.Succeeded, At: at}
	asked := plan.Event{Step: asks, Kind: plan.NeedsHuman}
	retried := plan.Event{Step: asks, Kind: plan.Retried, By: "ann"}
	other := plan.Event{Step: "x", Kind: plan.Retried, By: "ann"}
	early := plan.Event{Step: published, Kind: plan.Succeeded, At: at.Add(-48 * time.Hour)}
	skipped := plan.Event{Step: published, Kind: plan.SkipAsked, At: at}
	var many []string
	for i := range namedPods + 2 {
		many = append(many, fmt.Sprintf("shop/cart-%02d", i))
	}
	const signs, goes, asksFirst = step.AuthorityUse, step.AuthorityDrop, "key2 signs next"
	for name, tt := range map[string]struct {
		do      step.AuthorityVerb
		pods    []string
		journal pastEvents
		want    string // part of the question; empty if the plan goes on
	}{
		"no pod is left": {signs, nil, journalOf(trusted), ""},
		"a pod is left": {
			signs, many[:1], journalOf(trusted),
			"key2 signs next, and 1 pod has run since before all nodes trusted it: shop/cart-00",
		},
		"many pods are left": {
			signs, many, journalOf(trusted),
			"12 pods have run since before all nodes trusted it: shop/cart-00, shop/cart-01",
		},
		"many are counted":       {signs, many, journalOf(trusted), "shop/cart-09 and 2 more"},
		"a person has agreed":    {signs, many, journalOf(trusted, asked, retried), ""},
		"retried for a fault":    {signs, many, journalOf(trusted, retried), asksFirst},
		"asked again since":      {signs, many, journalOf(trusted, asked, retried, asked), asksFirst},
		"agreed to another step": {signs, many, journalOf(trusted, asked, other), asksFirst},
		"published again":        {signs, many, journalOf(early, trusted), asksFirst},
		"published left out":     {signs, many, journalOf(skipped), asksFirst},
		"it goes: always asked":  {goes, nil, journalOf(trusted), "nothing uses the former cluster authority"},
		"it goes, and pods are old": {
			goes, many[:2], journalOf(trusted),
			"2 pods have run since before all nodes trusted key2: shop/cart-00, shop/cart-01",
		},
		"it goes: agreed": {goes, many, journalOf(trusted, asked, retried), ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			env := waitingEnv(t, func([]byte) (API, error) {
				return withPods{old: at.Add(-time.Hour), pods: tt.pods}, nil
			})
			env.Journal = tt.journal
			r := quietRun()
			r.Plan, r.Step = &plan.Plan{ID: "p1"}, plan.Step{ID: asks}
			err := env.keys().authorityAgree(t.Context(), r, step.AgreeParams{
				UID: "u", Cluster: "demo", Endpoint: "127.0.0.1:6443", Authority: "cluster", Name: "key2", Do: tt.do,
				Since: published, Away: []string{"demo-worker-1"},
			})
			if tt.want == "" {
				if err != nil {
					t.Errorf("it asks: %v", err)
				}
				return
			}
			out := plan.OutcomeOf(err)
			if out.Kind != plan.NeedsHuman || !strings.Contains(director.MessageOf(err), tt.want) ||
				!strings.Contains(out.Text, "directorctl retry p1") {
				t.Errorf("%s: %q, next %q", out.Kind, director.MessageOf(err), out.Text)
			}
		})
	}
}
