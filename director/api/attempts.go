package api

import (
	"context"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director/audit"
)

// Audit records attempts. Changes are recorded where they are made. It is safe for concurrent use.
type Audit interface {
	// Attempt records the attempt. It bounds how many refused ones it records.
	Attempt(ctx context.Context, a audit.Attempt) error
}

// named notes what the request is about, before anyone is refused.
func (s *server) named(operation string) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		note(ctx.Context()).action = operation
		next(ctx)
	}
}

// attempted records a request that was refused or failed. It is refused all the same if that cannot be recorded.
func (s *server) attempted(ctx context.Context, err error) {
	n := note(ctx)
	_ = s.audited(ctx, n.user, n.action, n.object, err)
}

// audited records an attempt, and logs and returns why it cannot be recorded.
func (s *server) audited(ctx context.Context, actor, action, object string, err error) error {
	return s.recorded(ctx, audit.Attempt{Actor: actor, Action: action, Object: object, Err: err})
}

// recorded is audited for an attempt that says more.
func (s *server) recorded(ctx context.Context, a audit.Attempt) error {
	if s.Audit == nil {
		return nil
	}
	failed := s.Audit.Attempt(ctx, a)
	if failed != nil {
		s.Log.ErrorContext(ctx, "an attempt cannot be recorded in the audit trail", "request_id", requestID(ctx),
			"action", a.Action, "err", failed)
	}
	return failed
}
