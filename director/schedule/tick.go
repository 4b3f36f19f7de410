package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
)

// Tick does what is due by the database's clock and returns when something will be due next, or zero for never. Jobs go
// on behind it. One schedule that cannot be run does not stop the others.
func (s *Scheduler) Tick(ctx context.Context) (next time.Time, err error) {
	if s.cfg.Held != nil && s.cfg.Held() {
		return time.Time{}, nil
	}
	now, err := s.cfg.Store.Clock(ctx)
	if err != nil {
		return time.Time{}, err
	}
	errs := []error{s.takeOver(ctx, now)}
	docs, err := s.cfg.Store.Documents(ctx, model.KindSchedule)
	if err != nil {
		return time.Time{}, errors.Join(append(errs, err)...)
	}
	for _, d := range docs {
		at, err := s.tick(ctx, d, now)
		if err != nil {
			errs = append(errs, fmt.Errorf("schedule %s: %w", d.Metadata.Name, err))
		}
		if !at.IsZero() && (next.IsZero() || at.Before(next)) {
			next = at
		}
	}
	return next, errors.Join(errs...)
}

// takeOver records the runs of directors that died, and makes those again that may be.
func (s *Scheduler) takeOver(ctx context.Context, now time.Time) error {
	lost, err := s.cfg.Store.LostRuns(ctx, now)
	if err != nil {
		return err
	}
	docs, err := s.cfg.Store.Documents(ctx, model.KindSchedule)
	if err != nil {
		return err
	}
	for _, r := range lost {
		if s.works(r) {
			continue // our own, and alive: a clock has jumped, or the database was away
		}
		r.Status, r.Finished = director.RunInterrupted, now
		r.Message = "the director that ran it stopped or died"
		work, again := s.again(r, docs)
		if !again {
			r.Hint = "run it again with: directorctl schedules run " + r.Schedule
			if _, err := s.cfg.Store.EndRun(ctx, r); err != nil {
				return err
			}
			continue
		}
		fresh := director.ScheduleRun{
			UID: r.UID, Schedule: r.Schedule, Slot: r.Slot, Attempt: r.Attempt + 1, Job: r.Job, By: r.By,
			Status: director.RunRunning, Started: now,
			Owner: s.owner, Lease: now.Add(s.cfg.Lease),
		}
		won, err := s.cfg.Store.EndRun(ctx, r, fresh)
		if err != nil {
			return err
		}
		if won {
			s.launch(ctx, fresh, work)
		}
	}
	return nil
}

// works tells whether the run is being worked on in this process.
func (s *Scheduler) works(r director.ScheduleRun) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, ok := s.active[keyOf(r)]
	return ok
}

// again returns the work of a lost run if it may be made again.
func (s *Scheduler) again(r director.ScheduleRun, docs []model.Stored) (Work, bool) {
	if r.Attempt >= attempts || !s.jobs[r.Job].Repeatable {
		return nil, false
	}
	for _, d := range docs {
		if d.UID == r.UID && d.Schedule.Job.Name == r.Job && !d.Schedule.Suspend {
			work, err := s.prepare(*d.Schedule)
			return work, err == nil
		}
	}
	return nil, false
}

func (s *Scheduler) prepare(d model.Schedule) (Work, error) {
	job, ok := s.jobs[d.Job.Name]
	if !ok {
		return nil, director.Errorf(director.KindInvalid, "schedule.run", "this director has no job %q", d.Job.Name).
			WithHint("upgrade the director, or delete the schedule")
	}
	p := NewParams(d.Job.Params)
	work := job.Prepare(p)
	return work, director.Invalid("schedule.run", "the parameters of the job are wrong", p.problems())
}

// Next returns the next slot of a schedule whose slots are dealt with up to cursor, and zero for one that is suspended
// or wrong.
func Next(d model.Stored, cursor time.Time) time.Time {
	slots, err := ParseSlots(*d.Schedule)
	if err != nil || d.Schedule.Suspend {
		return time.Time{}
	}
	return slots.Next(since(d, cursor))
}

// since is from when on slots count: what was due before the document last changed was another schedule's, or was
// suspended.
func since(d model.Stored, cursor time.Time) time.Time {
	if cursor.Before(d.Updated) {
		return d.Updated
	}
	return cursor
}

func (s *Scheduler) tick(ctx context.Context, d model.Stored, now time.Time) (next time.Time, err error) {
	if d.Schedule.Suspend {
		return time.Time{}, nil
	}
	slots, err := ParseSlots(*d.Schedule)
	if err != nil {
		return time.Time{}, err
	}
	cursor, err := s.cfg.Store.SlotCursor(ctx, d.UID)
	if err != nil {
		return time.Time{}, err
	}
	n, last, before := slots.Due(since(d, cursor), now)
	if n == 0 {
		return slots.Next(now), nil
	}
	work, err := s.prepare(*d.Schedule)
	if err != nil {
		return time.Time{}, err
	}
	busy, running, err := s.cfg.Store.RunningRun(ctx, d.UID)
	if err != nil {
		return time.Time{}, err
	}
	runs := []director.ScheduleRun{}
	missed := func(n int, slot time.Time, why string) {
		runs = append(runs, director.ScheduleRun{
			UID: d.UID, Schedule: d.Metadata.Name, Slot: slot, Attempt: 1, Job: d.Schedule.Job.Name,
			Status: director.RunMissed, Missed: n,
			Finished: now, Message: why,
		})
	}
	late := now.Sub(last)
	switch {
	case running:
		missed(n, last, "the run of "+busy.Slot.UTC().Format(time.RFC3339)+" had not ended")
	case late > time.Duration(d.Schedule.Deadline):
		missed(
			n, last,
			fmt.Sprintf(
				"no director was there, and %s is past the deadline of %s", late.Round(time.Second),
				d.Schedule.Deadline,
			),
		)
	default:
		if n > 1 {
			missed(n-1, before, "no director was there; the last slot is run late")
		}
		runs = append(runs, s.fresh(d, last, "", now))
	}
	won, err := s.cfg.Store.ClaimSlots(ctx, d.UID, cursor, last, runs)
	if err != nil {
		return time.Time{}, err
	}
	if won {
		s.tell(ctx, runs, work)
	}
	return slots.Next(now), nil
}

// fresh is the first attempt of a slot by this director.
func (s *Scheduler) fresh(d model.Stored, slot time.Time, by string, now time.Time) director.ScheduleRun {
	return director.ScheduleRun{
		UID: d.UID, Schedule: d.Metadata.Name, Slot: slot, Attempt: 1, Job: d.Schedule.Job.Name, By: by,
		Status: director.RunRunning, Started: now,
		Owner: s.owner, Lease: now.Add(s.cfg.Lease),
	}
}

// tell logs the missed runs and launches the one that runs.
func (s *Scheduler) tell(ctx context.Context, runs []director.ScheduleRun, work Work) {
	for _, r := range runs {
		if r.Status == director.RunMissed {
			s.cfg.Log.WarnContext(
				ctx, "slots of a schedule were missed", "schedule", r.Schedule, "slots", r.Missed, "last", r.Slot,
				"why", r.Message,
			)
			continue
		}
		s.launch(ctx, r, work)
	}
}

// RunNow runs the schedule's job once, in addition to its slots, also if it is suspended. Errors: conflict while a run
// of it has not ended.
func (s *Scheduler) RunNow(ctx context.Context, d model.Stored, actor string) (director.ScheduleRun, error) {
	work, err := s.prepare(*d.Schedule)
	if err != nil {
		return director.ScheduleRun{}, err
	}
	busy, running, err := s.cfg.Store.RunningRun(ctx, d.UID)
	if err != nil {
		return director.ScheduleRun{}, err
	}
	if running {
		return director.ScheduleRun{}, director.Errorf(director.KindConflict, "schedule.run",
			"schedule %s runs already, since %s", d.Metadata.Name,
			busy.Started.UTC().Format(time.RFC3339)).
			WithHint("see it with: directorctl schedules show %s", d.Metadata.Name)
	}
	now, err := s.cfg.Store.Clock(ctx)
	if err != nil {
		return director.ScheduleRun{}, err
	}
	slot := now
	if slot.Equal(slot.Truncate(time.Second)) {
		slot = slot.Add(time.Microsecond) // whole seconds are for the slots of the schedule
	}
	r := s.fresh(d, slot.UTC().Truncate(time.Microsecond), actor, now)
	won, err := s.cfg.Store.AddRun(ctx, r)
	if err == nil && !won {
		err = director.Errorf(
			director.KindConflict, "schedule.run", "schedule %s was run this moment", d.Metadata.Name,
		).
			WithHint("try again")
	}
	if err != nil {
		return director.ScheduleRun{}, err
	}
	s.launch(ctx, r, work)
	return r, nil
}
