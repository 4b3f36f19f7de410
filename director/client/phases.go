package client

import (
	"context"
	"net/http"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/wire"
)

// AskPhase tells the director what an outer plan is about to do with a host, or has done. It can be repeated: the id is
// the caller's own, and each happens once.
func (c *clusterCalls) AskPhase(ctx context.Context, id string, r director.PhaseRequest) (wire.PhaseTask, error) {
	var t wire.PhaseTask
	err := c.call(ctx, request{method: http.MethodPost, path: "/phases", body: wire.PhaseRequestOf(id, r)}, &t)
	return t, err
}

// Phase returns the task. A waiting task continues if it can.
func (c *clusterCalls) Phase(ctx context.Context, id string) (wire.PhaseTask, error) {
	var t wire.PhaseTask
	err := c.call(ctx, request{method: http.MethodGet, path: "/phases/" + id}, &t)
	return t, err
}
