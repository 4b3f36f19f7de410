package store

import (
	"context"
	"errors"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/director-kaas/kaas/director"
)

type runRow struct {
	UID                           string `gorm:"column:uid;primaryKey"`
	Slot                          int64  `gorm:"primaryKey;autoIncrement:false"`
	Attempt                       int64  `gorm:"primaryKey;autoIncrement:false"`
	Schedule, Job, AskedBy        string
	Status                        string
	Missed, StartedAt, FinishedAt int64
	Message, Hint, PlanID, Owner  string
	LeaseUntil                    int64
}

func (runRow) TableName() string { return "schedule_runs" }

func runRowOf(r director.ScheduleRun) runRow {
	return runRow{
		UID: r.UID, Slot: micros(
			r.Slot,
		), Attempt: int64(r.Attempt), Schedule: r.Schedule, Job: r.Job, AskedBy: r.By, Status: string(r.Status),
		Missed: int64(r.Missed), StartedAt: micros(r.Started), FinishedAt: micros(r.Finished), Message: r.Message,
		Hint: r.Hint, PlanID: r.Plan,
		Owner: r.Owner, LeaseUntil: micros(r.Lease),
	}
}

func (r runRow) toDomain() director.ScheduleRun {
	return director.ScheduleRun{
		UID: r.UID, Slot: instant(r.Slot), Attempt: int(r.Attempt), Schedule: r.Schedule, Job: r.Job, By: r.AskedBy,
		Status: director.RunStatus(r.Status),
		Missed: int(r.Missed), Started: instant(r.StartedAt), Finished: instant(r.FinishedAt), Message: r.Message,
		Hint: r.Hint, Plan: r.PlanID,
		Owner: r.Owner, Lease: instant(r.LeaseUntil),
	}
}

// errLost ends a transaction after another director was quicker.
var errLost = errors.New("store: another director was quicker")

// won runs fn in a transaction and reports whether no other director was quicker.
func (s *scheduleStore) won(ctx context.Context, fn func(db *gorm.DB) error) (bool, error) {
	err := s.retried(ctx, func() error { return s.write.WithContext(ctx).Transaction(fn) })
	if errors.Is(err, errLost) {
		return false, nil
	}
	return err == nil, dbError("store.schedule", "the runs of a schedule", err)
}

func addRuns(db *gorm.DB, runs []director.ScheduleRun) error {
	for _, r := range runs {
		row := runRowOf(r)
		res := db.Clauses(clause.OnConflict{DoNothing: true}).Create(&row)
		if res.Error != nil {
			return res.Error
		}
		if res.RowsAffected == 0 {
			return errLost
		}
	}
	return nil
}

// SlotCursor returns the time up to which the slots of the schedule have been dealt with, and zero for none.
func (s *scheduleStore) SlotCursor(ctx context.Context, uid string) (time.Time, error) {
	var at []int64
	err := s.read.WithContext(ctx).Raw("SELECT position FROM schedule_cursors WHERE uid = ?", uid).Scan(&at).Error
	if err != nil || len(at) == 0 {
		return time.Time{}, dbError("store.schedule", "schedule "+uid, err)
	}
	return instant(at[0]), nil
}

// ClaimSlots moves the schedule's cursor from one slot to another and stores the runs of the slots between, all or
// nothing. It returns false if another director has moved the cursor, or stored a run of the same slot and attempt.
func (s *scheduleStore) ClaimSlots(
	ctx context.Context, uid string, from, to time.Time, runs []director.ScheduleRun,
) (bool, error) {
	return s.won(ctx, func(db *gorm.DB) error {
		err := db.Exec(
			"INSERT INTO schedule_cursors (uid, position) VALUES (?, ?) ON CONFLICT (uid) DO NOTHING", uid,
			micros(from),
		).Error
		if err != nil {
			return err
		}
		res := db.Exec(
			"UPDATE schedule_cursors SET position = ? WHERE uid = ? AND position = ?", micros(to), uid, micros(from),
		)
		if res.Error != nil {
			return res.Error
		}
		if res.RowsAffected == 0 {
			return errLost
		}
		return addRuns(db, runs)
	})
}

// AddRun stores a run that no slot asked for. It returns false if one of the same slot and attempt is there.
func (s *scheduleStore) AddRun(ctx context.Context, r director.ScheduleRun) (bool, error) {
	return s.won(ctx, func(db *gorm.DB) error { return addRuns(db, []director.ScheduleRun{r}) })
}

// EndRun stores the outcome of a run if its owner still has it, and in the same transaction what follows it. It returns
// false if another director has ended the run, and stores nothing then.
func (s *scheduleStore) EndRun(
	ctx context.Context, r director.ScheduleRun, follow ...director.ScheduleRun,
) (bool, error) {
	return s.won(ctx, func(db *gorm.DB) error {
		res := db.Model(&runRow{}).Where(
			"uid = ? AND slot = ? AND attempt = ? AND owner = ? AND status = 'running'", r.UID, micros(r.Slot),
			r.Attempt, r.Owner,
		).
			Updates(map[string]any{
				"status": string(r.Status), "finished_at": micros(r.Finished), "message": r.Message, "hint": r.Hint,
				"plan_id": r.Plan, "lease_until": 0,
			})
		if res.Error != nil {
			return res.Error
		}
		if res.RowsAffected == 0 {
			return errLost
		}
		return addRuns(db, follow)
	})
}

// LeaseRuns extends the leases of every run of owner; the zero time gives them up.
func (s *scheduleStore) LeaseRuns(ctx context.Context, owner string, until time.Time) error {
	err := s.write.WithContext(ctx).Model(&runRow{}).Where("owner = ? AND status = 'running'", owner).Update(
		"lease_until", micros(until),
	).Error
	return dbError("store.schedule", "leases of runs", err)
}

// LostRuns returns the runs whose lease has ended without an outcome.
func (s *scheduleStore) LostRuns(ctx context.Context, now time.Time) ([]director.ScheduleRun, error) {
	return s.runs(
		s.read.WithContext(ctx).Where("status = 'running' AND lease_until < ?", micros(now)).Order("slot, uid"),
	)
}

// Runs returns the newest runs of the schedule first, at most limit.
func (s *scheduleStore) Runs(ctx context.Context, uid string, limit int) ([]director.ScheduleRun, error) {
	return s.runs(s.read.WithContext(ctx).Where("uid = ?", uid).Order("slot DESC, attempt DESC").Limit(limit))
}

// RunningRun returns the run of the schedule that has not ended, and false if there is none.
func (s *scheduleStore) RunningRun(ctx context.Context, uid string) (director.ScheduleRun, bool, error) {
	runs, err := s.runs(
		s.read.WithContext(ctx).Where("uid = ? AND status = 'running'", uid).Order("slot DESC").Limit(1),
	)
	if err != nil || len(runs) == 0 {
		return director.ScheduleRun{}, false, err
	}
	return runs[0], true, nil
}

func (s *scheduleStore) runs(q *gorm.DB) ([]director.ScheduleRun, error) {
	var rows []runRow
	if err := q.Find(&rows).Error; err != nil {
		return nil, dbError("store.schedule", "runs of schedules", err)
	}
	out := make([]director.ScheduleRun, len(rows))
	for i, r := range rows {
		out[i] = r.toDomain()
	}
	return out, nil
}

// Once runs fn in a transaction if it has not been run under that name on this database before.
func (s *scheduleStore) Once(ctx context.Context, name string, fn func(*Tx) error) error {
	return s.Update(ctx, func(tx *Tx) error {
		res := tx.db.Exec(
			"INSERT INTO meta (name, value) VALUES (?, 'done') ON CONFLICT (name) DO NOTHING", "once:"+name,
		)
		if res.Error != nil || res.RowsAffected == 0 {
			return dbError("store.once", name, res.Error)
		}
		return fn(tx)
	})
}
