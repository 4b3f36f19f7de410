package schedule

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"time"

	"github.com/director-kaas/kaas/director"
)

// launch lets the job work behind the caller. The run is stored already.
func (s *Scheduler) launch(ctx context.Context, r director.ScheduleRun, work Work) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ctx = context.WithoutCancel(ctx)
	if s.stopping {
		s.giveUp(ctx)
		return
	}
	ctx, cancel := context.WithCancelCause(ctx)
	s.active[keyOf(r)] = cancel
	s.runs.Go(func() {
		defer cancel(nil)
		s.run(ctx, r, work)
		s.mu.Lock()
		delete(s.active, keyOf(r))
		s.mu.Unlock()
	})
}

// run does the work and stores its outcome.
func (s *Scheduler) run(ctx context.Context, r director.ScheduleRun, work Work) {
	log := s.cfg.Log.With("schedule", r.Schedule, "job", r.Job, "slot", r.Slot, "attempt", r.Attempt)
	log.InfoContext(ctx, "a scheduled run starts")
	result, err := safely(ctx, r, work)
	stored := context.WithoutCancel(ctx)
	switch cause := context.Cause(ctx); {
	case errors.Is(cause, errStopping):
		log.InfoContext(ctx, "a scheduled run was stopped with the director")
		s.giveUp(stored)
		return
	case errors.Is(cause, errLease):
		r.Status, r.Finished, r.Message = director.RunInterrupted, s.cfg.Now(),
			"the director could not keep its lease: the database did not answer"
		r.Hint = "see the director's log; run it again with: directorctl schedules run " + r.Schedule
		s.store(stored, r)
		return
	}
	r.Status, r.Finished, r.Message, r.Plan = director.RunDone, s.cfg.Now(), result.Message, result.Plan
	if err != nil {
		r.Status = director.RunFailed
		failure, hint := explain(err)
		r.Hint = hint
		if r.Message != "" {
			r.Message += "\n"
		}
		r.Message += failure
		log.ErrorContext(ctx, "a scheduled run failed", "err", err)
	}
	s.store(stored, r)
}

// safely turns a panic of the job into an error.
func safely(ctx context.Context, r director.ScheduleRun, work Work) (result Result, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &director.Error{
				Kind: director.KindInternal, Op: "schedule.run", Msg: "the job hit a defect of the director",
				Hint: "report it with the director's log",
				Err:  fmt.Errorf("panic: %v\n%s", v, debug.Stack()),
			}
		}
	}()
	return work(ctx, r)
}

// explain returns what people are shown of an error.
func explain(err error) (message, hint string) {
	e, ok := errors.AsType[*director.Error](err)
	if !ok {
		return err.Error(), ""
	}
	message = e.Msg
	for _, f := range e.Fields {
		message += "; " + f.String()
	}
	return message, director.HintOf(err)
}

// store writes the outcome, and tries again for as long as the lease holds: after that the run counts as interrupted.
func (s *Scheduler) store(ctx context.Context, r director.ScheduleRun) {
	deadline := time.Now().Add(s.cfg.Lease)
	for wait := 100 * time.Millisecond; ; wait = min(2*wait, 2*time.Second) {
		won, err := s.cfg.Store.EndRun(ctx, r)
		if err == nil {
			if !won {
				s.cfg.Log.WarnContext(
					ctx, "the outcome of a scheduled run came too late", "schedule", r.Schedule, "slot", r.Slot,
				)
			}
			return
		}
		s.cfg.Log.ErrorContext(ctx, "the outcome of a scheduled run was not stored", "schedule", r.Schedule, "err", err)
		if time.Now().Add(wait).After(deadline) {
			return
		}
		timer := time.NewTimer(wait)
		<-timer.C
	}
}

// giveUp ends the leases of this process at once.
func (s *Scheduler) giveUp(ctx context.Context) {
	if err := s.cfg.Store.LeaseRuns(ctx, s.owner, time.Time{}); err != nil {
		s.cfg.Log.WarnContext(ctx, "leases of scheduled runs were not given up; they end by themselves", "err", err)
	}
}
