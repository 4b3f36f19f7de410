package operations

import (
	"context"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/schedule"
	"github.com/director-kaas/kaas/director/store"
)

// Schedules is what can be asked of the schedules, and what their jobs ask of the director. It implements
// api.Schedules and schedule.Plans.
type Schedules struct {
	*Operations
	Scheduler *schedule.Scheduler
}

var (
	_ api.Schedules  = Schedules{}
	_ schedule.Plans = (*Operations)(nil)
)

// Schedules lists every schedule by name, with its last runs.
func (s Schedules) Schedules(ctx context.Context, runs int) ([]api.ScheduleView, error) {
	docs, err := s.Store.Documents(ctx, model.KindSchedule)
	if err != nil {
		return nil, err
	}
	out := make([]api.ScheduleView, len(docs))
	for i, d := range docs {
		if out[i], err = s.view(ctx, d, runs); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Schedule returns one schedule with its last runs, or not_found.
func (s Schedules) Schedule(ctx context.Context, name string, runs int) (api.ScheduleView, error) {
	d, err := s.document(ctx, name)
	if err != nil {
		return api.ScheduleView{}, err
	}
	return s.view(ctx, d, runs)
}

func (s Schedules) document(ctx context.Context, name string) (model.Stored, error) {
	return s.Store.Document(ctx, model.Ref{Kind: model.KindSchedule, Name: name})
}

func (s Schedules) view(ctx context.Context, d model.Stored, runs int) (api.ScheduleView, error) {
	cursor, err := s.Store.SlotCursor(ctx, d.UID)
	if err != nil {
		return api.ScheduleView{}, err
	}
	v := api.ScheduleView{Document: d, Next: schedule.Next(d, cursor)}
	v.Runs, err = s.Store.Runs(ctx, d.UID, runs)
	return v, err
}

// RunSchedule runs the job of the schedule now, beside its slots.
func (s Schedules) RunSchedule(ctx context.Context, actor, name string) (director.ScheduleRun, error) {
	d, err := s.document(ctx, name)
	if err != nil {
		return director.ScheduleRun{}, err
	}
	r, err := s.Scheduler.RunNow(ctx, d, actor)
	if err != nil {
		return r, err
	}
	return r, s.Store.Update(ctx, func(tx *store.Tx) error { return tx.Audit(s.Now(), actor, "run", d.Ref().String()) })
}

// SuspendSchedule lets no slot of the schedule run any more, or lets them run again. It is the document that says so.
// No error if it is so already.
func (s Schedules) SuspendSchedule(ctx context.Context, actor, name string, suspend bool) (api.ScheduleView, error) {
	ref := model.Ref{Kind: model.KindSchedule, Name: name}
	err := s.Store.Update(ctx, func(tx *store.Tx) error {
		docs, err := tx.Documents() // as the transaction sees them: an apply at the same time must not be undone
		if err != nil {
			return err
		}
		for _, d := range docs {
			if d.Ref() != ref {
				continue
			}
			if d.Schedule.Suspend == suspend {
				return nil
			}
			d.Schedule.Suspend = suspend
			if err := tx.PutDocument(d.Document, actor, s.Now()); err != nil {
				return err
			}
			return tx.Audit(s.Now(), actor, map[bool]string{true: "suspend", false: "resume"}[suspend], ref.String())
		}
		return director.Errorf(director.KindNotFound, "operations.suspend", "there is no %s", ref)
	})
	if err != nil {
		return api.ScheduleView{}, err
	}
	s.Scheduler.Wake()
	return s.Schedule(ctx, name, 1)
}

// Begin makes a plan of the operation and starts it, for a schedule. It returns "" if nothing is to be done.
func (o *Operations) Begin(ctx context.Context, actor, cluster string, op plan.Operation) (string, error) {
	v, err := o.MakePlan(ctx, actor, cluster, plan.Request{Operation: op})
	if err != nil || len(v.Plan.Steps) == 0 {
		return "", err
	}
	_, err = o.StartPlan(ctx, actor, v.Plan.ID, v.Plan.Hash)
	return v.Plan.ID, err
}
