package planning

import (
	"context"

	"github.com/director-kaas/kaas/director/plan"
)

// Begin makes a plan of the operation and starts it, for a schedule. It returns "" if nothing is to be done.
func (s *Service) Begin(ctx context.Context, actor, cluster string, op plan.Operation) (string, error) {
	v, err := s.MakePlan(ctx, actor, cluster, plan.Request{Operation: op})
	if err != nil || len(v.Plan.Steps) == 0 {
		return "", err
	}
	_, err = s.StartPlan(ctx, actor, v.Plan.ID, v.Plan.Hash)
	return v.Plan.ID, err
}
