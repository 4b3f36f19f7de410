package store

import (
	"context"
	"time"

	"github.com/director-kaas/kaas/director/plan"
)

// finishedStatuses are those of plans that can never continue.
var finishedStatuses = []plan.Status{plan.StatusDone, plan.StatusUndone, plan.StatusDiscarded}

// PruneEvents removes the events of plans that are done or given up and ended before the time. The plans themselves
// stay, with the state of each step. It returns how many plans and events that were. Each plan is a transaction of its
// own, so that writers wait for one at most.
func (s *trailStore) PruneEvents(ctx context.Context, before time.Time) (plans, events int64, err error) {
	var ids []string
	err = s.read.WithContext(ctx).Model(&planRow{}).
		Where(
			"phase IN ? AND finished_at > 0 AND finished_at < ? AND EXISTS (SELECT 1 FROM events WHERE "+
				"events.plan_id = plans.id)",
			finishedStatuses, micros(before),
		).
		Order("finished_at").Pluck("id", &ids).Error
	if err != nil {
		return 0, 0, dbError("store.prune", "events", err)
	}
	for _, id := range ids {
		res := s.write.WithContext(ctx).Where("plan_id = ?", id).Delete(&eventRow{})
		if res.Error != nil {
			return plans, events, dbError("store.prune", "events", res.Error)
		}
		plans, events = plans+1, events+res.RowsAffected
	}
	return plans, events, nil
}

// KeptLogs returns the ids of plans whose run logs are kept: unfinished plans, and those that ended after the time.
func (s *trailStore) KeptLogs(ctx context.Context, before time.Time) (map[string]bool, error) {
	var ids []string
	err := s.read.WithContext(ctx).Model(&planRow{}).Where(
		"phase NOT IN ? OR finished_at >= ?", finishedStatuses, micros(before),
	).Pluck("id", &ids).Error
	if err != nil {
		return nil, dbError("store.prune", "plans", err)
	}
	kept := make(map[string]bool, len(ids))
	for _, id := range ids {
		kept[id] = true
	}
	return kept, nil
}

// PruneSessions removes tokens that ended before the time, and returns how many.
func (s *userStore) PruneSessions(ctx context.Context, before time.Time) (int64, error) {
	res := s.write.WithContext(ctx).Where("expires_at < ?", micros(before)).Delete(&tokenRow{})
	return res.RowsAffected, dbError("store.prune", "tokens", res.Error)
}

// PrunePhases removes the tasks of outer plans whose outcome has been final since before the time, and returns how
// many.
func (s *planStore) PrunePhases(ctx context.Context, before time.Time) (int64, error) {
	res := s.write.WithContext(ctx).Where("finished_at > 0 AND finished_at < ?", micros(before)).Delete(&phaseRow{})
	return res.RowsAffected, dbError("store.prune", "tasks of outer plans", res.Error)
}

// PruneRuns removes the records of runs of schedules that ended before the time, and returns how many.
func (s *scheduleStore) PruneRuns(ctx context.Context, before time.Time) (int64, error) {
	res := s.write.WithContext(ctx).Where("status <> 'running' AND slot < ?", micros(before)).Delete(&runRow{})
	return res.RowsAffected, dbError("store.prune", "runs of schedules", res.Error)
}
