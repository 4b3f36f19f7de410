package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/director-kaas/kaas/director/wire"
)

// Directors lists the other directors whose VMs this one makes.
func (c *planCalls) Directors(ctx context.Context) ([]wire.DirectorVM, error) {
	var list wire.DirectorVMs
	err := c.call(ctx, request{method: http.MethodGet, path: "/directors"}, &list)
	return list.Items, err
}

// MakeDirectorPlan freezes a plan for the VM of another director.
func (c *planCalls) MakeDirectorPlan(ctx context.Context, name string, r wire.DirectorPlanRequest) (wire.Plan, error) {
	return c.made(ctx, "/directors/"+url.PathEscape(name)+"/plans", r)
}
