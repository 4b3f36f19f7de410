package operations

import (
	"context"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
)

// ListPlans lists plans without their steps.
func (o *Operations) ListPlans(ctx context.Context, q api.PlanQuery) ([]plan.Item, *director.Place, error) {
	list := o.Store.PlanPage
	if q.Archived {
		list = o.Store.PlanArchives
	}
	items, next, err := list(ctx, store.PlanQuery{
		Cluster: q.Cluster, IDPrefix: q.IDPrefix, Phases: q.Phases, Operations: q.Operations,
	}, q.Page)
	out := make([]plan.Item, len(items))
	for i, item := range items {
		out[i] = plan.Item{
			View: plan.View{Plan: item.Plan, State: item.State}, Done: item.Done, Total: item.Total,
		}
	}
	return out, next, err
}

// SearchEvents returns the events of a plan that fit.
func (o *Operations) SearchEvents(ctx context.Context, id string, q api.EventQuery) ([]plan.Event, int64, error) {
	return o.Store.EventPage(ctx, id, store.EventQuery(q))
}
