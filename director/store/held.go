package store

import (
	"context"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
)

// HeldBy returns the conflict with the plan that holds the cluster. Who started it and when are looked up as far as
// they can be.
func (s *planStore) HeldBy(ctx context.Context, op, id, cluster string) error {
	h := &director.Holder{Plan: id, Cluster: cluster}
	page := director.Page{Limit: 1}
	if items, _, err := s.PlanPage(ctx, PlanQuery{IDPrefix: id}, page); err == nil && len(items) == 1 {
		p := items[0]
		h.Operation, h.Status, h.By = string(p.Plan.Operation), string(p.State.Status), p.Plan.CreatedBy
		h.Since = p.State.StartedAt
	}
	started := EventQuery{Kinds: []plan.EventKind{plan.PlanStarted}, Limit: 1}
	if events, _, err := s.EventPage(ctx, id, started); err == nil && len(events) == 1 {
		h.By = events[0].By
	}
	e := director.Errorf(director.KindConflict, op, "plan %s holds cluster %s", id, cluster).
		WithHint("follow it with: directorctl follow %s, or stop it with: directorctl cancel %s", id, id)
	e.Holder = h
	return e
}
