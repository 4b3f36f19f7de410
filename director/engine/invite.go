package engine

import (
	"context"
	"errors"
	"slices"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
)

// absentees are the attempts that could start and that no invitation was found for at the last tick.
type absentees map[plan.StepRef]bool

// inviteAgain queues every attempt that may start and had no invitation at this tick and at the one before: the queue
// may have handed out an invitation that could not be followed, and the journal is the truth. It returns what had none
// at this tick. A step that waits in the line of a budget needs none: its turn is called.
func (e *Engine) inviteAgain(ctx context.Context, before absentees) (absentees, error) {
	now, err := e.uninvited(ctx)
	if now == nil {
		return before, err
	}
	again := map[string][]string{} // steps by plan
	for ref := range now {
		if before[ref] {
			again[ref.Plan] = append(again[ref.Plan], ref.Step)
			delete(now, ref)
		}
	}
	for id, steps := range again {
		e.cfg.Log.WarnContext(ctx, "inviting steps again", "plan_id", id, "steps", len(steps))
		err = errors.Join(err, e.cfg.Store.Update(ctx, func(tx Tx) error {
			p, s, err := tx.Plan(id)
			if err != nil {
				return err
			}
			ready := slices.DeleteFunc(plan.Ready(
				&p, &s, e.cfg.Now(),
			), func(step string) bool { return !slices.Contains(steps, step) })
			return e.enqueue(ctx, tx, id, &s, ready)
		}))
	}
	return now, err
}

// uninvited returns the attempts that could start now, and are neither queued, nor in a line, nor being claimed here.
// What a peer is claiming may be among them. A plan that cannot be read does not hide the others.
func (e *Engine) uninvited(ctx context.Context) (absentees, error) {
	out := absentees{}
	ids, err := e.cfg.Store.Active(ctx)
	if err != nil {
		return nil, err
	}
	var unread error
	for _, id := range ids {
		p, s, err := e.cfg.Store.Plan(ctx, id)
		if err != nil {
			unread = errors.Join(unread, err)
			continue
		}
		for _, step := range plan.Ready(&p, &s, e.cfg.Now()) {
			out[plan.StepRef{Plan: id, Step: step, Attempt: s.Step(step).Attempt + 1}] = true
		}
	}
	e.mu.Lock()
	for ref := range e.running {
		delete(out, ref)
	}
	e.mu.Unlock()
	if len(out) == 0 {
		return out, unread
	}
	lines, err := e.cfg.Store.InLine(ctx)
	if err != nil {
		return nil, err
	}
	for _, ref := range lines {
		delete(out, ref)
	}
	if err := e.dropQueued(ctx, out); err != nil {
		return nil, err
	}
	return out, unread
}

// dropQueued removes the attempts that the queue has and has not handed out yet.
func (e *Engine) dropQueued(ctx context.Context, out absentees) error {
	params := river.NewJobListParams().Kinds(stepArgs{}.Kind()).First(mostQueued).
		States(
			rivertype.JobStateAvailable, rivertype.JobStatePending, rivertype.JobStateRetryable,
			rivertype.JobStateScheduled,
		)
	for len(out) > 0 {
		jobs, err := e.queue.JobList(ctx, params)
		if err != nil {
			return director.Errorf(director.KindUnavailable, "engine.queue", "the queue cannot be read: %w", err)
		}
		for _, job := range jobs.Jobs {
			if ref, err := invitation(job.EncodedArgs); err == nil {
				delete(out, ref)
			}
		}
		if len(jobs.Jobs) < mostQueued {
			return nil
		}
		params = params.After(jobs.LastCursor)
	}
	return nil
}
