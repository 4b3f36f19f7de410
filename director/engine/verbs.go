package engine

import (
	"context"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
)

// Begin starts the plan: prepare runs in the same transaction, before the plan is marked as started, and may refuse.
// Steps that are ready are queued with it.
func (e *Engine) Begin(ctx context.Context, id, by string, prepare func(Tx, *plan.Plan, *plan.State) error) error {
	return e.move(ctx, id, func(tx Tx, p *plan.Plan, s *plan.State) error {
		if err := p.Readable(); err != nil {
			return err
		}
		if prepare != nil {
			if err := prepare(tx, p, s); err != nil {
				return err
			}
		}
		return e.append(tx, s, plan.Event{Plan: id, Kind: plan.PlanStarted, By: by})
	})
}

// Cancel asks the plan to stop at its next step boundary. With now, running steps are ended too. No error if the plan
// has ended.
func (e *Engine) Cancel(ctx context.Context, id, by string, now bool) error {
	err := e.move(ctx, id, func(tx Tx, _ *plan.Plan, s *plan.State) error {
		if now {
			if err := tx.Stop(id); err != nil { // for steps that other engines run
				return err
			}
		}
		if s.Status == plan.StatusCancelling || s.Status.Ended() {
			return nil
		}
		return e.append(tx, s, plan.Event{Plan: id, Kind: plan.PlanCancel, By: by})
	})
	if err == nil && now {
		e.mu.Lock()
		for ref, cancel := range e.running {
			if ref.Plan == id {
				cancel(errCancelled)
			}
		}
		e.mu.Unlock()
	}
	return err
}

// Pause keeps further steps from starting; the running ones end, and the plan keeps its cluster. No error if it is
// paused.
func (e *Engine) Pause(ctx context.Context, id, by, reason string) error {
	return e.move(ctx, id, func(tx Tx, _ *plan.Plan, s *plan.State) error {
		if s.Status == plan.StatusPaused {
			return nil
		}
		if s.Status == plan.StatusUndoing {
			// A pause keeps what is whole; a plan that is being undone is not, and a resume would have to know in which
			// direction.
			return director.Errorf(
				director.KindConflict, "engine.pause", "plan %s is being undone, and comes to its end", id,
			).
				WithHint("wait for it: directorctl follow %s", id)
		}
		return e.append(tx, s, plan.Event{Plan: id, Kind: plan.PlanPaused, By: by, Message: reason})
	})
}

// Wake lets a step that is not ready run now: what it waits for has come. do runs in the same transaction, before the
// event, and may refuse. A step that does not wait is left as it is; it sees for itself what do has changed.
func (e *Engine) Wake(ctx context.Context, ref plan.StepRef, by, why string, do func(Tx) error) error {
	return e.move(ctx, ref.Plan, func(tx Tx, _ *plan.Plan, s *plan.State) error {
		if err := do(tx); err != nil {
			return err
		}
		if st := s.Step(ref.Step); st == nil || st.Status != plan.Waiting {
			return nil
		}
		return e.append(tx, s, plan.Event{Plan: ref.Plan, Step: ref.Step, Kind: plan.Woken, By: by, Message: why})
	})
}

// Approve notes that a person agrees to the plan's start.
func (e *Engine) Approve(ctx context.Context, id, by string) error {
	return e.move(ctx, id, func(tx Tx, _ *plan.Plan, s *plan.State) error {
		return e.append(tx, s, plan.Event{Plan: id, Kind: plan.PlanApproved, By: by})
	})
}

// Retry lets a paused, failed, parked or cancelled plan continue: what failed, parked or was undone runs again,
// finished steps do not. With step, only that one runs again, and the plan continues if nothing else holds it. Steps of
// nodes that were rolled back, or are on their way, do not run again: a plan with nothing else to do refuses.
func (e *Engine) Retry(ctx context.Context, id, step, by string) error {
	return e.move(ctx, id, func(tx Tx, p *plan.Plan, s *plan.State) error {
		if err := e.current(tx, p, s); err != nil {
			return err
		}
		if step != "" {
			if _, err := held(s, step); err != nil {
				return err
			}
		}
		returning := plan.Returning(p, s)
		if returning[step] {
			return putBack(p, s, step)
		}
		for i := range s.Steps {
			st := s.Steps[i]
			if returning[st.ID] {
				continue
			}
			if _, err := st.Status.Next(plan.Retried); err != nil || (step != "" && st.ID != step) {
				if st.ID == step {
					return refused(s, st, "run again")
				}
				continue
			}
			if err := e.append(tx, s, plan.Event{Plan: id, Step: st.ID, Kind: plan.Retried, By: by}); err != nil {
				return err
			}
		}
		if s.Status == plan.StatusFailed && len(returning) > 0 && !plan.Resumable(p, s) {
			return putBack(p, s, "")
		}
		return e.resume(tx, p, s, by)
	})
}

// putBack is the error of asking again for steps of a node that was rolled back. The plan was made for a node that had
// not been touched, so another one is due.
func putBack(p *plan.Plan, s *plan.State, step string) error {
	what := "plan " + p.ID + " has nothing to try again: what failed was rolled back"
	if step != "" {
		what = "step " + step + " cannot run again: its node was rolled back, or is on its way"
	}
	if p.Operation == plan.ClusterDrill {
		return director.Errorf(director.KindConflict, "engine.retry", "%s; the plan is %s", what, s.Status).
			WithHint("fix the cause, and make another drill: directorctl backup drill %s", p.Cluster)
	}
	return director.Errorf(director.KindConflict, "engine.retry", "%s; the plan is %s", what, s.Status).
		WithHint("fix the cause, and continue from there: %s", p.Command())
}

// Skip lets the plan go on without the step, for a reason that is journaled. A step that runs, or is done, cannot be
// skipped, nor can one that only records what was done.
func (e *Engine) Skip(ctx context.Context, id, step, reason, by string) error {
	return e.move(ctx, id, func(tx Tx, p *plan.Plan, s *plan.State) error {
		if err := e.current(tx, p, s); err != nil {
			return err
		}
		st, err := held(s, step)
		if err != nil {
			return err
		}
		if plan.Returning(p, s)[step] {
			return putBack(p, s, step)
		}
		if _, err := st.Status.Next(plan.SkipAsked); err != nil {
			return refused(s, *st, "be skipped")
		}
		if of, ok := p.Step(step); ok {
			if _, records := e.cfg.Handlers[of.Kind].(plan.Recorder); records {
				return director.Errorf(
					director.KindConflict, "engine.skip",
					"step %s cannot be skipped: it only writes down what was done", step,
				).
					WithHint("retry it, or give the plan up: directorctl discard %s", id)
			}
		}
		if err := e.append(tx, s, plan.Event{
			Plan: id, Step: step, Kind: plan.SkipAsked, By: by, Message: reason,
		}); err != nil {
			return err
		}
		return e.resume(tx, p, s, by)
	})
}

// resume lets a stopped plan go on unless a step still holds it up. A plan that runs, or has not begun, is left as it
// is.
func (e *Engine) resume(tx Tx, p *plan.Plan, s *plan.State, by string) error {
	id := p.ID
	if _, err := s.Status.Next(plan.PlanResumed); err != nil {
		if s.Status == plan.StatusRunning || s.Status == plan.StatusPlanned || s.Status == plan.StatusApproved {
			return nil
		}
		return e.append(tx, s, plan.Event{Plan: id, Kind: plan.PlanResumed, By: by}) // for its error
	}
	returning := plan.Returning(p, s)
	for _, st := range s.Steps {
		if returning[st.ID] {
			continue
		}
		if st.Status == plan.Failed || st.Status == plan.Stuck ||
			(st.Status == plan.Parked && s.Status == plan.StatusParked) {
			return nil
		}
	}
	return e.append(tx, s, plan.Event{Plan: id, Kind: plan.PlanResumed, By: by})
}

// Undo undoes what the steps of a stopped plan did, the last first, as far as their kinds can. Nodes of a window that
// are half way go back by the steps that the plan has for it; those that are through stay. Errors: conflict if the plan
// moves or has come to its end, or if it has done nothing that can be undone.
func (e *Engine) Undo(ctx context.Context, id, by string) error {
	return e.move(ctx, id, func(tx Tx, p *plan.Plan, s *plan.State) error {
		if err := e.current(tx, p, s); err != nil {
			return err
		}
		if err := e.append(tx, s, plan.Event{Plan: id, Kind: plan.PlanUndo, By: by}); err != nil {
			return err
		}
		undone := map[string]bool{} // by rollback steps
		for _, step := range p.Steps {
			for _, u := range step.Undoes {
				undone[u] = true
			}
		}
		asked := 0
		for i, step := range p.Steps {
			st := s.Steps[i]
			if step.Back() && st.Status == plan.Parked {
				if err := e.append(tx, s, plan.Event{Plan: id, Step: st.ID, Kind: plan.Retried, By: by}); err != nil {
					return err
				}
			}
			if step.Back() || undone[step.ID] || step.Keep {
				continue
			}
			if st.Status == plan.UndoDue {
				asked++
			}
			if _, can := e.cfg.Handlers[step.Kind].(plan.Undoer); !can || (st.Attempt == 0) {
				continue
			}
			if _, err := st.Status.Next(plan.UndoAsked); err != nil {
				continue
			}
			asked++
			if err := e.append(tx, s, plan.Event{Plan: id, Step: st.ID, Kind: plan.UndoAsked, By: by}); err != nil {
				return err
			}
		}
		if asked == 0 && len(plan.Ready(p, s, e.cfg.Now())) == 0 {
			return director.Errorf(
				director.KindConflict, "engine.undo", "plan %s has done nothing that can be undone", id,
			).
				WithHint("give it up with: directorctl discard %s", id)
		}
		return nil
	})
}

// current refuses to move on a plan that is of a newer format, or of a former time of its cluster.
func (e *Engine) current(tx Tx, p *plan.Plan, s *plan.State) error {
	if err := p.Readable(); err != nil {
		return err
	}
	return e.cfg.Current(tx, p, s)
}

func held(s *plan.State, step string) (*plan.StepState, error) {
	st := s.Step(step)
	if st == nil {
		return nil, director.Errorf(director.KindNotFound, "engine.move", "the plan has no step %q", step).
			WithHint("list its steps with: directorctl plans show PLAN")
	}
	return st, nil
}

func refused(s *plan.State, st plan.StepState, what string) error {
	return director.Errorf(
		director.KindConflict, "engine.move", "step %s is %s in a plan that is %s, so it cannot %s", st.ID, st.Status,
		s.Status, what,
	)
}

// Discard gives the plan up for good. reason may be empty.
func (e *Engine) Discard(ctx context.Context, id, by, reason string) error {
	return e.move(ctx, id, func(tx Tx, _ *plan.Plan, s *plan.State) error {
		return e.append(tx, s, plan.Event{Plan: id, Kind: plan.PlanDiscarded, By: by, Message: reason})
	})
}

// DiscardIn is Discard within a transaction of the caller, for a plan that was never started. It is a conflict for one
// that was; the transaction may go on after that.
func (e *Engine) DiscardIn(tx Tx, id, by, reason string) error {
	_, s, err := tx.Plan(id)
	if err != nil {
		return err
	}
	return e.append(tx, &s, plan.Event{Plan: id, Kind: plan.PlanDiscarded, By: by, Message: reason})
}
