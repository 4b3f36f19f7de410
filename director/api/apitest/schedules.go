package apitest

import (
	"context"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/documents"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/schedules"
)

// Schedules implements api.Schedules over the documents of Operations. A run is over as soon as it is asked for; the
// job "broken" fails.
type Schedules struct {
	*Operations
	// Next is the next slot of every schedule that is not suspended.
	Next time.Time

	runs map[string][]director.ScheduleRun
}

var _ api.Schedules = (*Schedules)(nil)

func (s *Schedules) find(ctx context.Context, name string) (model.Stored, error) {
	return s.Document(ctx, model.Ref{Kind: model.KindSchedule, Name: name})
}

// List lists schedules.
func (s *Schedules) List(ctx context.Context, runs int) ([]schedules.View, error) {
	docs, _, err := s.ListDocuments(ctx, documents.Query{Kind: model.KindSchedule})
	out := make([]schedules.View, len(docs))
	for i, d := range docs {
		if out[i], err = s.Get(ctx, d.Metadata.Name, runs); err != nil {
			return nil, err
		}
	}
	return out, err
}

// Get returns a schedule.
func (s *Schedules) Get(ctx context.Context, name string, runs int) (schedules.View, error) {
	d, err := s.find(ctx, name)
	if err != nil {
		return schedules.View{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	v := schedules.View{Document: d, Runs: s.runs[name][:min(len(s.runs[name]), runs)]}
	if !d.Schedule.Suspend {
		v.Next = s.Next
	}
	return v, nil
}

// Run adds a run.
func (s *Schedules) Run(ctx context.Context, actor, name string) (director.ScheduleRun, error) {
	d, err := s.find(ctx, name)
	if err != nil {
		return director.ScheduleRun{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now().UTC()
	r := director.ScheduleRun{
		Schedule: name, Slot: now, Attempt: 1, Job: d.Schedule.Job.Name, By: actor, Status: director.RunDone,
		Started:  now,
		Finished: now.Add(3 * time.Second), Message: "removed 2 events of 1 plan",
	}
	if r.Job == "broken" {
		r.Status, r.Message, r.Hint = director.RunFailed, "the disk is full", "free some space"
	}
	if s.runs == nil {
		s.runs = map[string][]director.ScheduleRun{}
	}
	s.runs[name] = append([]director.ScheduleRun{r}, s.runs[name]...)
	r.Status, r.Finished, r.Message, r.Hint = director.RunRunning, time.Time{}, "", ""
	return r, nil
}

// Suspend changes the document.
func (s *Schedules) Suspend(ctx context.Context, _, name string, suspend bool) (schedules.View, error) {
	d, err := s.find(ctx, name)
	if err != nil {
		return schedules.View{}, err
	}
	spec := *d.Schedule
	spec.Suspend = suspend
	s.mu.Lock()
	d.Schedule, d.Generation = &spec, d.Generation+1
	s.docs[d.Ref()] = d
	s.mu.Unlock()
	return s.Get(ctx, name, 1)
}
