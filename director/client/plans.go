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

func (c *planCalls) MakePlan(ctx context.Context, cluster string, r plan.Request) (wire.Plan, error) {
	var p wire.Plan
	err := c.call(ctx, request{
		method: http.MethodPost, path: "/clusters/" + cluster + "/plans", body: wire.PlanRequestOf(r), once: true,
	}, &p)
	return p, err
}

func (c *planCalls) Plan(ctx context.Context, id string) (wire.Plan, error) {
	var p wire.Plan
	err := c.call(ctx, request{method: http.MethodGet, path: "/plans/" + id}, &p)
	return p, err
}

func (c *planCalls) verb(ctx context.Context, id, verb string, body any) (wire.Plan, error) {
	var p wire.Plan
	err := c.call(ctx, request{method: http.MethodPost, path: "/plans/" + id + "/" + verb, body: body, once: true}, &p)
	return p, err
}

func (c *planCalls) StartPlan(ctx context.Context, id, hash string) (wire.Plan, error) {
	return c.verb(ctx, id, "start", wire.PlanStart{Hash: hash})
}

func (c *planCalls) CancelPlan(ctx context.Context, id string, now bool) (wire.Plan, error) {
	return c.verb(ctx, id, "cancel", wire.PlanCancel{Now: now})
}

func (c *planCalls) ApprovePlan(ctx context.Context, id, hash string) (wire.Plan, error) {
	return c.verb(ctx, id, "approve", wire.PlanStart{Hash: hash})
}

func (c *planCalls) PausePlan(ctx context.Context, id, reason string) (wire.Plan, error) {
	return c.verb(ctx, id, "pause", wire.PlanPause{Reason: reason})
}

func (c *planCalls) RetryPlan(ctx context.Context, id, step string) (wire.Plan, error) {
	return c.verb(ctx, id, "retry", wire.PlanRetry{Step: step})
}

func (c *planCalls) SkipStep(ctx context.Context, id, step, reason string) (wire.Plan, error) {
	return c.verb(ctx, id, "skip", wire.PlanSkip{Step: step, Reason: reason})
}

func (c *planCalls) UndoPlan(ctx context.Context, id string) (wire.Plan, error) {
	return c.verb(ctx, id, "undo", nil)
}

func (c *planCalls) DiscardPlan(ctx context.Context, id string) (wire.Plan, error) {
	return c.verb(ctx, id, "discard", nil)
}

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

func (c *planCalls) Archive(ctx context.Context, id string) (io.ReadCloser, error) {
	resp, err := c.open(ctx, request{
		method: http.MethodGet, path: "/plans/" + id + "/archive", accept: "application/gzip",
	})
	if err != nil {
		return nil, err
	}
	return resp.Body, nil
}
