// Package schedules shows the schedules with what they did, runs their jobs at once, and suspends them. Their slots are
// director/schedule's.
package schedules

import (
	"context"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/schedule"
	"github.com/director-kaas/kaas/director/store"
)

// Scheduler runs the jobs of schedules. *schedule.Scheduler implements it.
type Scheduler interface {
	RunNow(ctx context.Context, doc model.Stored, actor string) (director.ScheduleRun, error)
	Wake()
}

// Service shows and steers schedules. It is safe for concurrent use.
type Service struct {
	store     *store.Store
	scheduler Scheduler
	now       func() time.Time
}

// New returns the service.
func New(s *store.Store, scheduler Scheduler, now func() time.Time) *Service {
	return &Service{s, scheduler, now}
}

// View is a schedule with what it did.
type View struct {
	Document model.Stored
	Next     time.Time // of its slots; zero if none will come
	Runs     []director.ScheduleRun
}

// List returns every schedule by name, each with its newest runs, at most so many.
func (s *Service) List(ctx context.Context, runs int) ([]View, error) {
	docs, err := s.store.Documents(ctx, model.KindSchedule)
	if err != nil {
		return nil, err
	}
	out := make([]View, len(docs))
	for i, d := range docs {
		if out[i], err = s.view(ctx, d, runs); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// Get returns one schedule with its last runs, or not_found.
func (s *Service) Get(ctx context.Context, name string, runs int) (View, error) {
	d, err := s.document(ctx, name)
	if err != nil {
		return View{}, err
	}
	return s.view(ctx, d, runs)
}

func (s *Service) document(ctx context.Context, name string) (model.Stored, error) {
	return s.store.Document(ctx, model.Ref{Kind: model.KindSchedule, Name: name})
}

func (s *Service) view(ctx context.Context, d model.Stored, runs int) (View, error) {
	cursor, err := s.store.SlotCursor(ctx, d.UID)
	if err != nil {
		return View{}, err
	}
	v := View{Document: d, Next: schedule.Next(d, cursor)}
	v.Runs, err = s.store.Runs(ctx, d.UID, runs)
	return v, err
}

// Run runs the job of the schedule now, between its slots and also if it is suspended. Errors: conflict while it runs.
func (s *Service) Run(ctx context.Context, actor, name string) (director.ScheduleRun, error) {
	d, err := s.document(ctx, name)
	if err != nil {
		return director.ScheduleRun{}, err
	}
	r, err := s.scheduler.RunNow(ctx, d, actor)
	if err != nil {
		return r, err
	}
	return r, s.store.Update(ctx, func(tx *store.Tx) error { return tx.Audit(s.now(), actor, "run", d.Ref().String()) })
}

// Suspend lets no slot of the schedule run any more, or lets them run again. It is the document that says so.
// No error if it is so already.
func (s *Service) Suspend(ctx context.Context, actor, name string, suspend bool) (View, error) {
	ref := model.Ref{Kind: model.KindSchedule, Name: name}
	err := s.store.Update(ctx, func(tx *store.Tx) error {
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
			if err := tx.PutDocument(d.Document, actor, s.now()); err != nil {
				return err
			}
			return tx.Audit(s.now(), actor, map[bool]string{true: "suspend", false: "resume"}[suspend], ref.String())
		}
		return director.Errorf(director.KindNotFound, "schedules.suspend", "there is no %s", ref)
	})
	if err != nil {
		return View{}, err
	}
	s.scheduler.Wake()
	return s.Get(ctx, name, 1)
}
