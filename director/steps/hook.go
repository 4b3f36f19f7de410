package steps

import (
	"context"
	"fmt"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// Hooks knows what hooks were asked. The question itself is written with the journal, when the step is not ready.
type Hooks interface {
	// Asked returns the delivery by which the step asks now, or nil. One whose deadline has passed is expired by it.
	Asked(ctx context.Context, planID, stepID string) (*director.HookDelivery, error)
}

// hookPatience is how often an answer is looked for that came between two looks; usually the answer wakes the step.
const hookPatience = 5 * time.Second

// hookSteps tell and ask hooks.
type hookSteps struct {
	Installation
	Hooks Hooks
}

// hookAsk tells a hook by succeeding, or asks it by not being ready, until the answer or the deadline.
func (e hookSteps) hookAsk(ctx context.Context, r plan.Run, p step.HookParams) error {
	if !p.Blocks() {
		return nil
	}
	waits := fmt.Sprintf("waits for the answer of Hook/%s to %s", p.Hook, p.Phase)
	d, err := e.Hooks.Asked(ctx, r.Plan.ID, r.Step.ID)
	if err != nil {
		return err
	}
	most := p.Deadline + time.Hour
	if d == nil {
		return plan.AfterWithin(most, p.Deadline, waits)
	}
	switch d.State {
	case director.HookAnswered:
		said := fmt.Sprintf("%s answers for Hook/%s: %s", d.AnsweredBy, p.Hook, d.Decision)
		if d.Reason != "" {
			said += ": " + d.Reason
		}
		if d.Decision == director.HookContinues {
			r.Note(ctx, said)
			return nil
		}
		return hookPolicy(ctx, r, p, p.OnRefuse, said)
	case director.HookExpired:
		return hookPolicy(ctx, r, p, p.OnDeadline, fmt.Sprintf(
			"Hook/%s has not answered %s within %s%s", p.Hook, p.Phase, p.Deadline, because(d.Problem, d.Reason),
		))
	case director.HookFailed:
		return hookPolicy(ctx, r, p, p.OnDeadline, fmt.Sprintf(
			"Hook/%s cannot be asked%s", p.Hook, because(d.Problem),
		))
	}
	return plan.AfterWithin(most, min(hookPatience, max(time.Second, d.Deadline.Sub(e.Now()))), waits)
}

func because(reasons ...string) string {
	for _, r := range reasons {
		if r != "" {
			return ": " + r
		}
	}
	return ""
}

// hookPolicy does what the plan says about a refusal, or about silence.
func hookPolicy(ctx context.Context, r plan.Run, p step.HookParams, policy, what string) error {
	if policy == model.HookContinue {
		r.Note(ctx, what+"; the plan continues, as Hook/"+p.Hook+" says")
		return nil
	}
	err := director.Errorf(director.KindConflict, "steps.hook", "%s", what).
		WithHint("ask again: directorctl retry %s; or continue without it: directorctl skip %s --step %s --reason WHY",
			r.Plan.ID, r.Plan.ID, r.Step.ID)
	if policy == model.HookFail {
		return plan.Abort(err)
	}
	return plan.Park(err, "is the plan to continue?")
}
