package planning

import (
	"context"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/engine"
	"github.com/director-kaas/kaas/director/model"
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
	ApprovalOther Approval = "other" // another person than the one who made it
)

// starts check a plan before its start, and start it.
type starts struct{ *Service }

func (s *Service) starts() starts { return starts{s} }

// PlanAgain makes the plan again from what it was asked for, and from the world as it is now. The older plan is
// discarded if it still waits. It is a conflict for a plan that was started, or that belongs to a campaign, which makes
// its plans by itself.
func (s *Service) PlanAgain(ctx context.Context, actor, id string) (plan.View, error) {
	p, state, err := s.Store.Plan(ctx, id)
	if err != nil {
		return plan.View{}, err
	}
	switch {
	case len(p.Request.Change) > 0:
		return plan.View{}, director.Errorf(
			director.KindConflict, "planning.again", "plan %s is of a campaign, which makes its plans by itself", id,
		).WithHint("see its campaign: directorctl campaign list")
	case !state.StartedAt.IsZero():
		return plan.View{}, director.Errorf(
			director.KindConflict, "planning.again", "plan %s was started, and is not made again", id,
		).WithHint("plan what is left to do: %s", p.Command())
	}
	return s.MakePlan(ctx, actor, p.Cluster, p.Request)
}

// StartPlan starts the plan if hash is its hash and nothing that it was made from has moved.
func (s *Service) StartPlan(ctx context.Context, actor, id, hash string) (plan.View, error) {
	if err := s.Start(ctx, actor, id, hash); err != nil {
		return plan.View{}, err
	}
	return s.Plans.Plan(ctx, id)
}

// Start is StartPlan without a look at the plan afterwards.
// A plan that changes the document of its cluster is a conflict: its campaign starts it, once a person who may change
// the document has agreed.
func (s *Service) Start(ctx context.Context, actor, id, hash string) error {
	p, _, err := s.Store.Plan(ctx, id)
	if err != nil {
		return err
	}
	if len(p.Request.Change) > 0 {
		return director.Errorf(
			director.KindConflict, "planning.start", "plan %s is of a campaign, and changes the document of cluster %s",
			id,
			p.Cluster,
		).WithHint("agree to its wave: directorctl campaign list")
	}
	return s.StartWith(ctx, actor, id, hash, func(*store.Tx) error { return nil })
}

// StartWith is Start; with belongs to the transaction that starts the plan.
func (s *Service) StartWith(ctx context.Context, actor, id, hash string, with func(*store.Tx) error) error {
	p, state, err := s.Store.Plan(ctx, id)
	if err != nil {
		return err
	}
	if err := sameHash(p, hash); err != nil {
		return err
	}
	if err := s.may(ctx, p.Cluster); err != nil {
		return err
	}
	if err := p.Readable(); err != nil {
		return err
	}
	now := s.Now()
	if err := s.starts().startable(p, state, now); err != nil {
		return err
	}
	base, err := s.starts().unmoved(ctx, p)
	if err != nil {
		return err
	}
	err = s.Engine.Begin(ctx, id, actor, func(etx engine.Tx, p *plan.Plan, _ *plan.State) error {
		tx, ok := etx.(*store.Tx)
		if !ok {
			return director.Errorf(director.KindInternal, "planning.start", "the engine works on another store")
		}
		if err := with(tx); err != nil {
			return err
		}
		return s.starts().begin(ctx, tx, p, &base, actor, now)
	})
	if director.KindOf(err) == director.KindConflict {
		if holder, herr := s.drills().holder(ctx, p.Cluster, p.Operation); herr == nil && holder != "" && holder != id {
			return s.Store.HeldBy(ctx, "planning.start", holder, p.Cluster)
		}
	}
	return err
}

// begin writes down what a start means, in its transaction.
func (s starts) begin(
	ctx context.Context, tx *store.Tx, p *plan.Plan, base *pinned, actor string, now time.Time,
) error {
	if err := base.check(tx, p.ID); err != nil {
		return err
	}
	// What they would do is done by this plan, or must not be done any more.
	err := tx.DiscardPlansOf(
		store.LaneOf(p.Operation), p.Cluster, "plan "+p.ID+" was started after it", actor, now, plan.StatusFailed,
		plan.StatusCancelled,
	)
	if err != nil {
		return err
	}
	if err := s.facts().declareLost(tx, p, actor); err != nil {
		return err
	}
	if err := reserve(tx, p, now); err != nil {
		return err
	}
	if err := s.storeChange(tx, p, base.document, actor, now); err != nil {
		return err
	}
	if err := tx.Witnessed(ctx, p.ID); err != nil {
		return err
	}
	return tx.Audit(now, actor, "start", "Plan/"+p.ID)
}

// WantsApproval reports whether a person has to agree to the plan before it starts. A plan that has expired is made
// again instead.
func (s *Service) WantsApproval(p plan.Plan, state plan.State) bool {
	expired := s.PlanLife > 0 && s.Now().After(p.CreatedAt.Add(s.PlanLife))
	return state.Status == plan.StatusPlanned && len(p.Approvals) > 0 && s.Approval != ApprovalNone && !expired
}

// startable refuses a plan that has expired or waits for an approval.
func (s starts) startable(p plan.Plan, state plan.State, now time.Time) error {
	if err := s.unexpired(p, state, now); err != nil {
		return err
	}
	if state.Status == plan.StatusPlanned && len(p.Approvals) > 0 && s.Approval != ApprovalNone {
		return director.Errorf(
			director.KindConflict, "planning.start", "plan %s has to be approved first: %s", p.ID,
			strings.Join(p.Approvals, "; "),
		).
			WithHint("read it, and then run: directorctl approve %s", p.ID)
	}
	return nil
}

// unexpired refuses a plan that was made too long ago.
func (s starts) unexpired(p plan.Plan, state plan.State, now time.Time) error {
	if s.PlanLife > 0 && state.Status != plan.StatusDiscarded && now.After(p.CreatedAt.Add(s.PlanLife)) {
		return director.Errorf(
			director.KindConflict, "planning.start", "plan %s was made %s ago and has expired", p.ID,
			now.Sub(p.CreatedAt).Round(time.Minute),
		).
			WithHint("make it again, and compare: directorctl plans again %s", p.ID)
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
func (s starts) unmoved(ctx context.Context, p plan.Plan) (pinned, error) {
	base, err := pin(ctx, s.Store, p)
	if err != nil {
		return base, err
	}
	w, err := s.facts().seen(ctx, p.Cluster, p.Request)
	if err != nil {
		return base, err
	}
	base.keep(p, w.World)
	base.document = w.Cluster
	now, err := s.content(ctx, w, p.Request)
	if err != nil {
		return base, err
	}
	if plan.HashOf(now) == p.Hash {
		return base, nil
	}
	return base, director.Errorf(
		director.KindConflict, "planning.start", "plan %s is out of date: %s", p.ID,
		strings.Join(plan.Reasons(p.Content, now), "; "),
	).
		WithHint("make it again, and compare: directorctl plans again %s", p.ID)
}

// Difference says in which way a plan differs from a newer one of its cluster; empty if a start would do the same.
func Difference(was, is plan.Plan) string {
	if was.Hash == is.Hash {
		return ""
	}
	return strings.Join(plan.Reasons(was.Content, is.Content), "; ")
}

// Moved returns a conflict that says why the plan would not be started as it is: it has expired, or the world has
// moved.
func (s *Service) Moved(ctx context.Context, p plan.Plan, state plan.State) error {
	if err := s.starts().unexpired(p, state, s.Now()); err != nil {
		return err
	}
	_, err := s.starts().unmoved(ctx, p)
	return err
}

func sameHash(p plan.Plan, hash string) error {
	if hash == p.Hash {
		return nil
	}
	return director.Errorf(
		director.KindConflict, "planning.start", "plan %s has the hash %.12s, not %.12s", p.ID, p.Hash, hash,
	).
		WithHint("read the plan that you want to start: directorctl plans show %s", p.ID)
}

// keep stores the plan for the cluster of that document, and discards what waited for the cluster before: both or
// neither.
func (s starts) keep(
	ctx context.Context, p *plan.Plan, of model.Ref, with func(tx *store.Tx, id string) error,
) error {
	older, err := s.Store.Plans(ctx, store.PlanFilter{
		Cluster: p.Cluster, Statuses: []plan.Status{plan.StatusPlanned, plan.StatusApproved},
		Of: store.LaneOf(p.Operation),
	})
	if err != nil {
		return err
	}
	return s.Store.Update(ctx, func(tx *store.Tx) error {
		if err := s.supersede(tx, older, p); err != nil {
			return err
		}
		if err := tx.AddPlan(*p); err != nil {
			return err
		}
		if err := tx.Witnessed(ctx, p.ID); err != nil {
			return err
		}
		if err := with(tx, p.ID); err != nil {
			return err
		}
		return tx.Audit(s.Now(), p.CreatedBy, "plan "+string(p.Operation), of.String())
	})
}

// supersede discards plans that never started: they were made for a world that the new plan sees better.
func (s starts) supersede(tx *store.Tx, older []string, by *plan.Plan) error {
	for _, id := range older {
		err := s.Engine.DiscardIn(tx, id, by.CreatedBy, "plan "+by.ID+" was made in its place")
		// it has just been started: then the new plan will be refused
		if err != nil && director.KindOf(err) != director.KindConflict {
			return err
		}
	}
	return nil
}
