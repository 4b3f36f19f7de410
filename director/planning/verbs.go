package planning

import (
	"context"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
)

// Verb is what a person can do to a plan.
type Verb string

// The verbs.
const (
	VerbApprove Verb = "approve" // agree to its start; Hash is the plan's that was read
	VerbPause   Verb = "pause"   // no step starts any more, the running ones end, the cluster stays held
	VerbCancel  Verb = "cancel"  // stop at the next step boundary, or end running steps too with Now
	VerbRetry   Verb = "retry"   // go on: what failed, parked or was undone runs again, or only Step
	VerbSkip    Verb = "skip"    // go on without Step, for a Reason
	VerbUndo    Verb = "undo"    // undo what its steps did, the last first
	VerbDiscard Verb = "discard" // give it up, so that its cluster is free
)

// Move is a verb with what it needs.
type Move struct {
	Verb   Verb
	Hash   string
	Step   string
	Reason string
	Now    bool
}

// MovePlan does to the plan what the verb says.
func (s *Service) MovePlan(ctx context.Context, actor, id string, m Move) (plan.View, error) {
	if err := s.move(ctx, actor, id, m); err != nil {
		return plan.View{}, err
	}
	object := "Plan/" + id
	if m.Step != "" {
		object += " " + m.Step
	}
	if err := s.Store.Update(ctx, func(tx *store.Tx) error {
		return tx.Audit(s.Now(), actor, string(m.Verb), object)
	}); err != nil {
		return plan.View{}, err
	}
	return s.Plans.Plan(ctx, id)
}

func (s *Service) move(ctx context.Context, actor, id string, m Move) error {
	if m.Verb == VerbRetry || m.Verb == VerbSkip || m.Verb == VerbUndo { // which have steps run
		p, _, err := s.Store.Plan(ctx, id)
		if err == nil {
			err = s.Claimed(ctx, p.Cluster)
		}
		if err != nil {
			return err
		}
	}
	switch m.Verb {
	case VerbApprove:
		return s.approve(ctx, actor, id, m.Hash)
	case VerbPause:
		return s.Engine.Pause(ctx, id, actor, m.Reason)
	case VerbCancel:
		return s.Engine.Cancel(ctx, id, actor, m.Now)
	case VerbRetry:
		return s.Engine.Retry(ctx, id, m.Step, actor)
	case VerbSkip:
		if err := s.drills().maySkip(ctx, id); err != nil {
			return err
		}
		return s.Engine.Skip(ctx, id, m.Step, m.Reason, actor)
	case VerbUndo:
		return s.Engine.Undo(ctx, id, actor)
	case VerbDiscard:
		if err := s.drills().mayDiscard(ctx, id); err != nil {
			return err
		}
		return s.Engine.Discard(ctx, id, actor, "")
	}
	return director.Errorf(director.KindInvalid, "planning.move", "there is no verb %q", m.Verb)
}

func (s *Service) approve(ctx context.Context, actor, id, hash string) error {
	p, _, err := s.Store.Plan(ctx, id)
	if err != nil {
		return err
	}
	if err := sameHash(p, hash); err != nil {
		return err
	}
	if err := s.MayApprove(actor, p); err != nil {
		return err
	}
	return s.Engine.Approve(ctx, id, actor)
}

// MayApprove returns why the actor may not agree to the start of the plan.
func (s *Service) MayApprove(actor string, p plan.Plan) error {
	if s.Approval != ApprovalOther || actor != p.CreatedBy {
		return nil
	}
	return director.Errorf(
		director.KindForbidden, "planning.approve", "plan %s was made by %s, who cannot approve it too", p.ID, actor,
	).
		WithHint("ask a second person: directorctl approve %s", p.ID)
}

// Approve agrees to the start of the plan if hash is its hash.
func (s *Service) Approve(ctx context.Context, actor, id, hash string) error {
	_, err := s.MovePlan(ctx, actor, id, Move{Verb: VerbApprove, Hash: hash})
	return err
}
