package store

import (
	"context"
	"encoding/json"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/director-kaas/kaas/director"
)

type phaseRow struct {
	ID                          string `gorm:"primaryKey"`
	Request, AskedBy            string
	State, Message, Hint, Parts string
	StartedAt, FinishedAt       int64
	Revision                    int64
}

func (phaseRow) TableName() string { return "phase_tasks" }

func phaseRowOf(t director.PhaseTask) phaseRow {
	return phaseRow{
		ID: t.ID, Request: marshal(t.Request), AskedBy: t.By, State: string(t.State), Message: text(t.Message),
		Hint: text(t.Hint), Parts: marshal(t.Parts),
		StartedAt: micros(t.Started), FinishedAt: micros(t.Finished), Revision: t.Revision,
	}
}

func (r phaseRow) toDomain() (director.PhaseTask, error) {
	t := director.PhaseTask{
		ID: r.ID, By: r.AskedBy, State: director.PhaseState(r.State), Message: r.Message, Hint: r.Hint,
		Started: instant(r.StartedAt), Finished: instant(r.FinishedAt), Revision: r.Revision,
	}
	err := json.Unmarshal([]byte(r.Request), &t.Request)
	if err == nil {
		err = json.Unmarshal([]byte(r.Parts), &t.Parts)
	}
	if err != nil {
		return t, &director.Error{
			Kind: director.KindInternal, Op: "store.phase", Msg: "the stored task " + r.ID + " cannot be read",
			Err: err,
		}
	}
	return t, nil
}

// PhaseTask returns the task of an outer plan, or not_found.
func (s *planStore) PhaseTask(ctx context.Context, id string) (director.PhaseTask, error) {
	var row phaseRow
	if err := s.read.WithContext(ctx).Where("id = ?", id).Take(&row).Error; err != nil {
		return director.PhaseTask{}, dbError("store.phase", "task "+id, err)
	}
	return row.toDomain()
}

// AddPhaseTask stores a new task. It returns false, and stores nothing, if there is one with the id.
func (t *planTx) AddPhaseTask(task director.PhaseTask) (bool, error) {
	row := phaseRowOf(task)
	res := t.db.Clauses(clause.OnConflict{DoNothing: true}).Create(&row)
	return res.RowsAffected > 0, dbError("store.phase", "task "+task.ID, res.Error)
}

// PutPhaseTask stores the state of the task, as the revision after the one that the caller has. It fails with stale, so
// that nothing of the transaction is stored, if someone else has changed the task meanwhile.
func (t *planTx) PutPhaseTask(task director.PhaseTask) error {
	row := phaseRowOf(task)
	res := t.db.Model(&phaseRow{}).Where("id = ? AND revision = ?", task.ID, task.Revision).Updates(map[string]any{
		"state": row.State, "message": row.Message, "hint": row.Hint, "parts": row.Parts, "finished_at": row.FinishedAt,
		"revision": task.Revision + 1,
	})
	if res.Error == nil && res.RowsAffected == 0 {
		return director.Errorf(director.KindStale, "store.phase", "someone else has changed task %s", task.ID).
			WithHint("look at it again")
	}
	return dbError("store.phase", "task "+task.ID, res.Error)
}

// OpenPhaseTasks returns the tasks of the phase whose outcome is not final, the oldest first.
func (s *planStore) OpenPhaseTasks(ctx context.Context, phase director.PhaseName) ([]director.PhaseTask, error) {
	return openPhaseTasks(s.read.WithContext(ctx), phase)
}

// OpenPhaseTasks is that of the store. Until the transaction ends, no other one of any director gets them.
func (t *planTx) OpenPhaseTasks(phase director.PhaseName) ([]director.PhaseTask, error) {
	if err := t.store.exclusive(t.db, lockPhases); err != nil {
		return nil, dbError("store.phase", "tasks", err)
	}
	return openPhaseTasks(t.db, phase)
}

func openPhaseTasks(db *gorm.DB, phase director.PhaseName) ([]director.PhaseTask, error) {
	var rows []phaseRow
	if err := db.Where("finished_at = 0").Order("started_at, id").Find(&rows).Error; err != nil {
		return nil, dbError("store.phase", "tasks", err)
	}
	var out []director.PhaseTask
	for _, row := range rows {
		task, err := row.toDomain()
		if err != nil {
			return nil, err
		}
		if task.Request.Phase == phase {
			out = append(out, task)
		}
	}
	return out, nil
}
