package journal

import (
	"context"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
)

// Progress returns the status of the plan and the number of its last event, or not_found.
func (s *Service) Progress(ctx context.Context, id string) (plan.Status, int64, error) {
	return s.Store.Progress(ctx, id)
}

// Events returns the plan's events after a sequence number, waiting up to wait for the first.
func (s *Service) Events(ctx context.Context, id string, after int64, wait time.Duration) ([]plan.Event, error) {
	const most = 1000
	timer := time.NewTimer(wait)
	defer timer.Stop()
	if _, _, err := s.Store.Progress(ctx, id); err != nil {
		return nil, err
	}
	for {
		changed := s.Engine.Changed()
		events, err := s.Store.Events(ctx, id, after, most)
		if err != nil || len(events) > 0 {
			return events, err
		}
		select {
		case <-changed:
		case <-timer.C:
			return nil, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// Stream returns the part of the director's stream that the query asks for, waiting up to wait if there is nothing yet.
func (s *Service) Stream(
	ctx context.Context, q director.StreamQuery, wait time.Duration,
) (director.StreamPage, error) {
	timer := time.NewTimer(wait)
	defer timer.Stop()
	for {
		here, elsewhere := s.Store.News(), s.Engine.Changed() // the engine hears of what other directors do
		page, err := s.Store.Stream(ctx, q)
		if err != nil || len(page.Events) > 0 || page.Gap != nil || wait == 0 {
			return page, err
		}
		q.After, q.Tail = page.Last, 0 // what does not fit is looked at once
		select {
		case <-here:
		case <-elsewhere:
		case <-timer.C:
			return page, nil
		case <-ctx.Done():
			return page, ctx.Err()
		}
	}
}
