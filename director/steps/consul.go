package steps

import (
	"context"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// Registrar writes and removes the entries of a cluster in a Consul, by the name of its document. Both are idempotent.
type Registrar interface {
	Register(ctx context.Context, consul, uid string) error
	Deregister(ctx context.Context, consul, uid string) error
}

// consulRegister writes the entries of a cluster that has just come up.
func (e Env) consulRegister(ctx context.Context, r plan.Run, p step.ConsulParams) error {
	if e.Registrar == nil {
		return nil
	}
	return left(ctx, r, "registering the cluster", p, e.Registrar.Register(ctx, p.Consul, p.UID))
}

// consulDeregister removes the entries of a cluster whose VMs are gone.
func (e Env) consulDeregister(ctx context.Context, r plan.Run, p step.ConsulParams) error {
	if e.Registrar == nil {
		return nil
	}
	return left(ctx, r, "removing the cluster's entries", p, e.Registrar.Deregister(ctx, p.Consul, p.UID))
}

// left leaves to the next comparison what a Consul did not take: no plan fails for it, or waits.
func left(ctx context.Context, r plan.Run, what string, p step.ConsulParams, err error) error {
	if err == nil || ctx.Err() != nil {
		return ctx.Err()
	}
	r.Note(ctx, what+" is left to the comparison of Consul/"+p.Consul+": "+director.MessageOf(err))
	return nil
}
