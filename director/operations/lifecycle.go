package operations

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/engine"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/store"
)

// Approval says who has to agree to a plan that destroys something before it can be started.
type Approval string

// The kinds of approval.
const (
	ApprovalNone  Approval = "none"  // the start itself is the agreement
	ApprovalAny   Approval = "any"   // anybody who may run plans, also who made it
	ApprovalOther Approval = "other" // somebody else than who made it
)

// StartPlan starts the plan if hash is its hash and nothing that it was made from has moved.
func (o *Operations) StartPlan(ctx context.Context, actor, id, hash string) (plan.View, error) {
	if err := o.Start(ctx, actor, id, hash); err != nil {
		return plan.View{}, err
	}
	return o.Plans.Plan(ctx, id)
}

// Start is StartPlan without a look at the plan afterwards.
func (o *Operations) Start(ctx context.Context, actor, id, hash string) error {
	p, s, err := o.Store.Plan(ctx, id)
	if err != nil {
		return err
	}
	if err := sameHash(p, hash); err != nil {
		return err
	}
	if err := p.Readable(); err != nil {
		return err
	}
	now := o.Now()
	if err := o.startable(p, s, now); err != nil {
		return err
	}
	base, err := o.unmoved(ctx, p)
	if err != nil {
		return err
	}
	err = o.Engine.Begin(ctx, id, actor, func(etx engine.Tx, p *plan.Plan, _ *plan.State) error {
		tx, ok := etx.(*store.Tx)
		if !ok {
			return director.Errorf(director.KindInternal, "operations.start", "the engine works on another store")
		}
		if err := base.check(tx, id); err != nil {
			return err
		}
		// What they would do is done by this plan, or must not be done any more.
		err := tx.DiscardPlans(
			p.Cluster, "plan "+id+" was started after it", actor, now, plan.PhaseFailed, plan.PhaseCancelled,
		)
		if err != nil {
			return err
		}
		if err := o.declareLost(tx, p, actor); err != nil {
			return err
		}
		if err := reserve(tx, p, now); err != nil {
			return err
		}
		if err := tx.Witnessed(ctx, id); err != nil {
			return err
		}
		return tx.Audit(now, actor, "start", "Plan/"+id)
	})
	if director.KindOf(err) == director.KindConflict {
		if holder, herr := o.Store.Holder(ctx, p.Cluster); herr == nil && holder != "" && holder != id {
			return o.Store.HeldBy(ctx, "operations.start", holder, p.Cluster)
		}
	}
	return err
}

// WantsApproval reports whether a person has to agree to the plan before it starts. A plan that has expired is made
// again instead.
func (o *Operations) WantsApproval(p plan.Plan, s plan.State) bool {
	expired := o.PlanLife > 0 && o.Now().After(p.CreatedAt.Add(o.PlanLife))
	return s.Phase == plan.PhasePlanned && len(p.Approvals) > 0 && o.Approval != ApprovalNone && !expired
}

// startable refuses a plan that has expired or waits for an approval.
func (o *Operations) startable(p plan.Plan, s plan.State, now time.Time) error {
	if o.PlanLife > 0 && s.Phase != plan.PhaseDiscarded && now.After(p.CreatedAt.Add(o.PlanLife)) {
		return director.Errorf(
			director.KindConflict, "operations.start", "plan %s was made %s ago and has expired", p.ID,
			now.Sub(p.CreatedAt).Round(time.Minute),
		).
			WithHint("plan again: directorctl plan %s", p.Cluster)
	}
	if s.Phase == plan.PhasePlanned && len(p.Approvals) > 0 && o.Approval != ApprovalNone {
		return director.Errorf(
			director.KindConflict, "operations.start", "plan %s has to be approved first: %s", p.ID,
			strings.Join(p.Approvals, "; "),
		).
			WithHint("somebody who has read it says: directorctl approve %s", p.ID)
	}
	return nil
}

// reserve writes down the machines that the plan may make, unless they are there.
func reserve(tx *store.Tx, p *plan.Plan, now time.Time) error {
	if len(p.Facts) == 0 {
		return nil
	}
	facts, err := step.DecodeFacts(p.Content)
	if err != nil {
		return err
	}
	for _, m := range facts.Nodes {
		if err := tx.IntendMachine(m.Row(), now); err != nil {
			return err
		}
	}
	return nil
}

// unmoved makes the plan again and compares: the same content, or the world has moved. It returns what the comparison
// was based on.
func (o *Operations) unmoved(ctx context.Context, p plan.Plan) (pinned, error) {
	base, err := pin(ctx, o.Store, p.Cluster)
	if err != nil {
		return base, err
	}
	w, err := o.seen(ctx, p.Cluster, p.Request)
	if err != nil {
		return base, err
	}
	base.keep(p, w.World)
	now, err := o.content(ctx, w, p.Request)
	if err != nil {
		return base, err
	}
	if plan.HashOf(now) == p.Hash {
		return base, nil
	}
	return base, director.Errorf(
		director.KindConflict, "operations.start", "plan %s is out of date: %s", p.ID, moved(p.Content, now),
	).
		WithHint("plan again: directorctl plan %s", p.Cluster)
}

// moved says in which way two contents differ.
func moved(was, is plan.Content) string {
	var out []string
	gens := map[plan.ModelRef]bool{}
	for _, m := range was.Models {
		gens[m] = true
	}
	for _, m := range is.Models {
		if !gens[m] {
			out = append(out, fmt.Sprintf("%s/%s has changed (now generation %d)", m.Kind, m.Name, m.Generation))
		}
	}
	if was.Playbooks != is.Playbooks {
		out = append(out, "the director has other playbooks")
	}
	before := map[string]plan.Machine{}
	for _, m := range was.Machines {
		before[m.Name] = m
	}
	for _, m := range is.Machines {
		if b, ok := before[m.Name]; ok && b.Address != m.Address {
			out = append(out, fmt.Sprintf("%s would get %s instead of %s", m.Name, m.Address, b.Address))
		} else if ok && b.MAC != m.MAC {
			out = append(out, fmt.Sprintf("%s would get the MAC address %s instead of %s", m.Name, m.MAC, b.MAC))
		}
	}
	if len(was.Steps) != len(is.Steps) {
		out = append(out, fmt.Sprintf("it would have %d steps instead of %d", len(is.Steps), len(was.Steps)))
	}
	if len(out) == 0 {
		out = append(out, "sizes, capacity warnings or bundle contents have changed")
	}
	return strings.Join(out, "; ")
}

func sameHash(p plan.Plan, hash string) error {
	if hash == p.Hash {
		return nil
	}
	return director.Errorf(
		director.KindConflict, "operations.start", "plan %s has the hash %.12s, not %.12s", p.ID, p.Hash, hash,
	).
		WithHint("read the plan that you want to start: directorctl plans show %s", p.ID)
}

// supersede discards what was planned for the cluster and never started: it was made for a world that the new plan sees
// better.
func (o *Operations) supersede(ctx context.Context, actor, cluster, by string) error {
	ids, err := o.Store.Plans(ctx, store.PlanFilter{
		Cluster: cluster, Phases: []plan.Phase{plan.PhasePlanned, plan.PhaseApproved},
	})
	if err != nil {
		return err
	}
	for _, id := range ids {
		err := o.Engine.Discard(ctx, id, actor, "plan "+by+" was made in its place")
		// somebody has just started it: then the new plan will be refused
		if err != nil && director.KindOf(err) != director.KindConflict {
			return err
		}
	}
	return nil
}

// MovePlan does to the plan what the verb says.
func (o *Operations) MovePlan(ctx context.Context, actor, id string, m api.Move) (plan.View, error) {
	if err := o.move(ctx, actor, id, m); err != nil {
		return plan.View{}, err
	}
	object := "Plan/" + id
	if m.Step != "" {
		object += " " + m.Step
	}
	if err := o.Store.Update(ctx, func(
		tx *store.Tx,
	) error {
		return tx.Audit(o.Now(), actor, string(m.Verb), object)
	}); err != nil {
		return plan.View{}, err
	}
	return o.Plans.Plan(ctx, id)
}

func (o *Operations) move(ctx context.Context, actor, id string, m api.Move) error {
	switch m.Verb {
	case api.VerbApprove:
		return o.approve(ctx, actor, id, m.Hash)
	case api.VerbPause:
		return o.Engine.Pause(ctx, id, actor, m.Reason)
	case api.VerbCancel:
		return o.Engine.Cancel(ctx, id, actor, m.Now)
	case api.VerbRetry:
		return o.Engine.Retry(ctx, id, m.Step, actor)
	case api.VerbSkip:
		return o.Engine.Skip(ctx, id, m.Step, m.Reason, actor)
	case api.VerbUndo:
		return o.Engine.Undo(ctx, id, actor)
	case api.VerbDiscard:
		return o.Engine.Discard(ctx, id, actor, "")
	}
	return director.Errorf(director.KindInvalid, "operations.move", "there is no verb %q", m.Verb)
}

func (o *Operations) approve(ctx context.Context, actor, id, hash string) error {
	p, _, err := o.Store.Plan(ctx, id)
	if err != nil {
		return err
	}
	if err := sameHash(p, hash); err != nil {
		return err
	}
	if o.Approval == ApprovalOther && actor == p.CreatedBy {
		return director.Errorf(
			director.KindForbidden, "operations.approve", "plan %s was made by %s, who cannot approve it too", id,
			actor,
		).
			WithHint("ask a second person: directorctl approve %s", id)
	}
	return o.Engine.Approve(ctx, id, actor)
}
