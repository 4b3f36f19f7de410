package client

import (
	"context"
	"io"
	"net/http"
	"net/url"
	"strconv"

	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
)

// MakePlan freezes a plan for the cluster. Without an operation it is what brings the cluster to its document.
func (c *planCalls) MakePlan(ctx context.Context, cluster string, r plan.Request) (wire.Plan, error) {
	return c.made(ctx, "/clusters/"+cluster+"/plans", wire.PlanRequestOf(r))
}

// made has a plan made at a path, and reads its steps and machines: the answer to the request has none.
func (c *planCalls) made(ctx context.Context, path string, body any) (wire.Plan, error) {
	var p wire.Plan
	err := c.call(ctx, request{method: http.MethodPost, path: path, body: body, once: true}, &p)
	if err != nil || p.StepsTotal == len(p.Steps) {
		return p, err
	}
	return c.Plan(ctx, p.ID)
}

// PlanAgain makes a plan again that was not started, for the world as it is now. The older one is discarded.
func (c *planCalls) PlanAgain(ctx context.Context, id string) (wire.Plan, error) {
	return c.made(ctx, "/plans/"+id+"/again", nil)
}

// RehearsePlan tells what the plan's drains that have not ended would move away now, and what would block them.
func (c *planCalls) RehearsePlan(ctx context.Context, id string) (wire.PlanDrains, error) {
	var out wire.PlanDrains
	err := c.call(ctx, request{method: http.MethodGet, path: "/plans/" + id + "/drains"}, &out)
	return out, err
}

// ComparePlans tells how the plan differs from an older one of its cluster.
func (c *planCalls) ComparePlans(ctx context.Context, id, older string) (wire.PlanComparison, error) {
	var out wire.PlanComparison
	err := c.call(ctx, request{
		method: http.MethodGet, path: "/plans/" + id + "/compare", query: url.Values{"older": {older}},
	}, &out)
	return out, err
}

// Plan returns one plan with the state of its run.
func (c *planCalls) Plan(ctx context.Context, id string) (wire.Plan, error) {
	var p wire.Plan
	err := c.call(ctx, request{method: http.MethodGet, path: "/plans/" + id}, &p)
	return p, err
}

// verb does something to a plan. The plan that it returns has no steps and no machines.
func (c *planCalls) verb(ctx context.Context, id, verb string, body any) (wire.Plan, error) {
	var p wire.Plan
	err := c.call(ctx, request{method: http.MethodPost, path: "/plans/" + id + "/" + verb, body: body, once: true}, &p)
	return p, err
}

// StartPlan starts the plan with the hash. The plan that this and the other verbs return has no steps and no machines.
func (c *planCalls) StartPlan(ctx context.Context, id, hash string) (wire.Plan, error) {
	return c.verb(ctx, id, "start", wire.PlanStart{Hash: hash})
}

// CancelPlan stops the plan between steps, or ends its running steps too.
func (c *planCalls) CancelPlan(ctx context.Context, id string, now bool) (wire.Plan, error) {
	return c.verb(ctx, id, "cancel", wire.PlanCancel{Now: now})
}

// ApprovePlan agrees to the start of the plan with the hash.
func (c *planCalls) ApprovePlan(ctx context.Context, id, hash string) (wire.Plan, error) {
	return c.verb(ctx, id, "approve", wire.PlanStart{Hash: hash})
}

// PausePlan keeps further steps from starting.
func (c *planCalls) PausePlan(ctx context.Context, id, reason string) (wire.Plan, error) {
	return c.verb(ctx, id, "pause", wire.PlanPause{Reason: reason})
}

// RetryPlan continues a stopped plan: with step only that one runs again, otherwise every step that failed, was parked
// or was undone.
func (c *planCalls) RetryPlan(ctx context.Context, id, step string) (wire.Plan, error) {
	return c.verb(ctx, id, "retry", wire.PlanRetry{Step: step})
}

// SkipStep leaves the step out of the plan.
func (c *planCalls) SkipStep(ctx context.Context, id, step, reason string) (wire.Plan, error) {
	return c.verb(ctx, id, "skip", wire.PlanSkip{Step: step, Reason: reason})
}

// UndoPlan undoes what the stopped plan did.
func (c *planCalls) UndoPlan(ctx context.Context, id string) (wire.Plan, error) {
	return c.verb(ctx, id, "undo", nil)
}

// DiscardPlan gives up a plan that does not run.
func (c *planCalls) DiscardPlan(ctx context.Context, id string) (wire.Plan, error) {
	return c.verb(ctx, id, "discard", nil)
}

// StepLog opens the log of a step from a byte offset to where it ends now; attempt 0 is the latest. The caller closes
// it.
func (c *planCalls) StepLog(ctx context.Context, id, step string, attempt int, offset int64) (io.ReadCloser, error) {
	q := url.Values{"step": {step}}
	if attempt > 0 {
		q.Set("attempt", strconv.Itoa(attempt))
	}
	if offset > 0 {
		q.Set("offset", strconv.FormatInt(offset, 10))
	}
	resp, err := c.open(ctx, request{
		method: http.MethodGet, path: "/plans/" + id + "/log", query: q, accept: "application/x-ndjson",
	})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}

// Archive opens the archive of a plan, a tar.gz. The caller closes it.
func (c *planCalls) Archive(ctx context.Context, id string) (io.ReadCloser, error) {
	resp, err := c.open(ctx, request{
		method: http.MethodGet, path: "/plans/" + id + "/archive", accept: "application/gzip",
	})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
