package steps

import (
	"context"
	"encoding/json"

	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// reserver is a player whose forks can be taken before a play.
type reserver interface {
	Reserve(
		ctx context.Context, plan string, limit []string, waits func(),
	) (reserved context.Context, release func(), err error)
}

// playHandler runs playbooks. It waits for forks before the step's time begins to run.
type playHandler struct {
	plan.Handler
	player Player
}

// Prepare takes the forks of the step's play.
func (h playHandler) Prepare(ctx context.Context, r plan.Run) (prepared context.Context, release func(), err error) {
	player, ok := h.player.(reserver)
	var p step.PlayParams
	if err := json.Unmarshal(r.Step.Params, &p); err != nil || !ok {
		return ctx, func() {}, nil //nolint:nilerr // Run says what is wrong with the parameters
	}
	return player.Reserve(ctx, r.Plan.ID, p.Limit, func() { r.Note(ctx, "waits for a free Ansible fork") })
}
