package planning

import (
	"context"
	"errors"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
)

// CheckView is what keeps a plan from working.
type CheckView struct {
	Cluster   string
	Operation plan.Operation // that would be planned; empty if none could be
	Summary   string
	Steps     int
	Problems  []director.Field
	Warnings  []string
	Addresses []AddressCheck // how the addresses were looked at that a plan would give away
}

// AddressCheck is how the addresses of a network were looked at.
type AddressCheck struct {
	Network   string
	Addresses int      // how many
	Ways      []string // ledger, hypervisor, ssh port, arp
}

// Check looks at everything that a plan for the request would be refused for, and returns all of it. Nothing is stored.
// What could not be looked at because of something else that is wrong is not in it: an invalid document has no plan
// whose room could be asked for.
func (s *Service) Check(ctx context.Context, cluster string, r plan.Request) (CheckView, error) {
	v := CheckView{Cluster: cluster}
	add := v.add
	doc, err := s.Store.Document(ctx, model.Ref{Kind: model.KindCluster, Name: cluster})
	if err != nil {
		return v, err
	}
	holder, err := s.drills().holder(ctx, cluster, r.Operation)
	if err != nil {
		return v, err
	}
	if holder != "" {
		add(s.Store.HeldBy(ctx, "planning.check", holder, cluster), doc.Ref().String())
	}
	r, err = s.drills().newest(ctx, cluster, r)
	if err != nil {
		return v, err
	}
	w, err := s.facts().seen(ctx, cluster, r)
	if ctx.Err() != nil {
		return v, ctx.Err()
	}
	add(err, "Release/"+doc.Cluster.Release)
	prechecked := false
	if err == nil {
		content, err := s.draft(w.World, r)
		if err == nil {
			v.Addresses, err = s.check(ctx, w, &content)
		}
		v.Operation, v.Summary, v.Warnings, v.Steps = content.Operation, content.Summary, content.Warnings,
			len(content.Steps)
		add(err, doc.Ref().String())
		e, _ := errors.AsType[*director.Error](err)
		prechecked = err == nil || e != nil && e.Op == opPrecheck
	}
	if prechecked {
		return v, ctx.Err()
	}
	if w.Image.Image != nil { // what can be told without a plan
		problems, warnings := s.prechecks().checkImage(ctx, w.World)
		v.Problems, v.Warnings = append(v.Problems, problems...), append(v.Warnings, warnings...)
	}
	if w.Provider.Provider != nil && w.Cluster.Cluster != nil {
		v.Problems = append(v.Problems, s.prechecks().checkQuota(w, r.Operation)...)
		_, err := w.VMs(ctx)
		add(err, w.Provider.Ref().String())
	}
	return v, ctx.Err()
}
