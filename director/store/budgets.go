package store

import (
	"context"
	"errors"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/director-kaas/kaas/director/plan"
)

type budgetUse struct{ Budget, PlanID, StepID string }

func (budgetUse) TableName() string { return "budget_uses" }

type budgetWait struct {
	PlanID, StepID, Budget string
	Attempt                int
	Since                  int64
}

func (budgetWait) TableName() string { return "budget_waits" }

// TakeBudgets takes one of each budget for the step, or none: then it returns the one that is used up, and the step
// waits in its line. limit returns how many a budget has; 0 is without bound.
func (t *planTx) TakeBudgets(
	ref plan.StepRef, budgets []string, limit func(string) int, now time.Time,
) (usedUp string, err error) {
	const op = "store.budget"
	if len(budgets) == 0 {
		return "", nil
	}
	if err := t.store.exclusive(t.db, lockBudgets); err != nil {
		return "", dbError(op, "budgets", err)
	}
	for _, b := range budgets {
		if limit(b) == 0 {
			continue
		}
		free, err := t.free(b, limit)
		if err != nil {
			return "", err
		}
		if free > 0 {
			continue
		}
		// The place in the line is kept over later tries.
		err = t.db.Clauses(clause.OnConflict{
			Columns:   []clause.Column{{Name: "plan_id"}, {Name: "step_id"}},
			DoUpdates: clause.AssignmentColumns([]string{"budget", "attempt"}),
		}).Create(&budgetWait{
			PlanID: ref.Plan, StepID: ref.Step, Budget: b, Attempt: ref.Attempt, Since: micros(now),
		}).Error
		return b, dbError(op, "budget "+b, err)
	}
	for _, b := range budgets {
		if limit(b) == 0 {
			continue
		}
		if err := t.db.Create(&budgetUse{Budget: b, PlanID: ref.Plan, StepID: ref.Step}).Error; err != nil {
			return "", dbError(op, "budget "+b, err)
		}
	}
	return "", t.LeaveLine(ref)
}

// LeaveLine removes the step from its line. No error if it is in none.
func (t *planTx) LeaveLine(ref plan.StepRef) error {
	err := t.db.Where("plan_id = ? AND step_id = ?", ref.Plan, ref.Step).Delete(&budgetWait{}).Error
	return dbError("store.budget", "step "+ref.Step, err)
}

// GiveBack returns what the step has taken.
func (t *planTx) GiveBack(ref plan.StepRef) error {
	err := t.db.Where("plan_id = ? AND step_id = ?", ref.Plan, ref.Step).Delete(&budgetUse{}).Error
	return dbError("store.budget", "step "+ref.Step, err)
}

// Next returns who is first in the lines of the budgets, as many as there is room for; nil budgets mean all for which
// steps wait.
func (t *planTx) Next(budgets []string, limit func(string) int) ([]plan.StepRef, error) {
	const op = "store.budget"
	if err := t.store.exclusive(t.db, lockBudgets); err != nil {
		return nil, dbError(op, "lines", err)
	}
	if budgets == nil {
		if err := t.db.Model(&budgetWait{}).Distinct().Pluck("budget", &budgets).Error; err != nil {
			return nil, dbError(op, "lines", err)
		}
	}
	var out []plan.StepRef
	for _, b := range budgets {
		free, err := t.free(b, limit)
		if err != nil {
			return nil, err
		}
		if free <= 0 {
			continue
		}
		var rows []budgetWait
		if err := t.db.Where("budget = ?", b).Order("since, plan_id, step_id").Limit(free).Find(
			&rows,
		).Error; err != nil {
			return nil, dbError(op, "budget "+b, err)
		}
		for _, r := range rows {
			out = append(out, plan.StepRef{Plan: r.PlanID, Step: r.StepID, Attempt: r.Attempt})
		}
	}
	return out, nil
}

// free returns how many of the budget are left. A budget without bound has room for everybody.
func (t *planTx) free(budget string, limit func(string) int) (int, error) {
	most := limit(budget)
	if most == 0 {
		return 1000, nil
	}
	var used int64
	err := t.db.Model(&budgetUse{}).Where("budget = ?", budget).Count(&used).Error
	return most - int(used), dbError("store.budget", "budget "+budget, err)
}

// BudgetWait is a step that waits in the line of a budget.
type BudgetWait struct {
	Step   string
	Budget string
	Since  time.Time
}

// BudgetWaits returns the steps of the plan that stand in a line.
func (s *planStore) BudgetWaits(ctx context.Context, planID string) ([]BudgetWait, error) {
	var rows []budgetWait
	if err := s.read.WithContext(ctx).Where("plan_id = ?", planID).Order("since, step_id").Find(
		&rows,
	).Error; err != nil {
		return nil, dbError("store.budget", "plan "+planID, err)
	}
	out := make([]BudgetWait, len(rows))
	for i, r := range rows {
		out[i] = BudgetWait{Step: r.StepID, Budget: r.Budget, Since: instant(r.Since)}
	}
	return out, nil
}

// InLine returns the steps that stand in a line, of all plans, with the attempts that they wait with.
func (s *planStore) InLine(ctx context.Context) ([]plan.StepRef, error) {
	var rows []budgetWait
	if err := s.read.WithContext(ctx).Find(&rows).Error; err != nil {
		return nil, dbError("store.budget", "lines", err)
	}
	out := make([]plan.StepRef, len(rows))
	for i, r := range rows {
		out[i] = plan.StepRef{Plan: r.PlanID, Step: r.StepID, Attempt: r.Attempt}
	}
	return out, nil
}

// BudgetUsers returns the ids of the plans that have taken of the budget.
func (s *planStore) BudgetUsers(ctx context.Context, budget string) ([]string, error) {
	var ids []string
	err := s.read.WithContext(ctx).Model(&budgetUse{}).Distinct().Where("budget = ?", budget).Order("plan_id").Pluck(
		"plan_id", &ids,
	).Error
	return ids, dbError("store.budget", "budget "+budget, err)
}

// Holders returns who runs the leased steps of the plan, by step id.
func (s *planStore) Holders(ctx context.Context, planID string) (map[string]string, error) {
	var rows []stepRow
	err := s.read.WithContext(ctx).Select("step_id", "lease_owner").Where(
		"plan_id = ? AND lease_owner <> ''", planID,
	).Find(&rows).Error
	out := make(map[string]string, len(rows))
	for _, r := range rows {
		out[r.StepID] = r.LeaseOwner
	}
	return out, dbError("store.holders", "plan "+planID, err)
}

type stepTime struct {
	Class   string `gorm:"primaryKey"`
	Micros  int64
	Samples int64
}

func (stepTime) TableName() string { return "step_times" }

// noteTime moves the class's usual time a fifth of the way towards what a step has just taken.
func (t *planTx) noteTime(class string, took time.Duration) error {
	var row stepTime
	err := t.db.Where("class = ?", class).Take(&row).Error
	if err != nil && !errors.Is(err, gorm.ErrRecordNotFound) {
		return dbError("store.times", "class "+class, err)
	}
	if row.Samples == 0 {
		row = stepTime{Class: class, Micros: took.Microseconds()}
	}
	row.Micros += (took.Microseconds() - row.Micros) / 5
	row.Samples++
	return dbError("store.times", "class "+class, t.db.Clauses(clause.OnConflict{UpdateAll: true}).Create(&row).Error)
}

// StepTimes returns how long recent steps of each class have usually taken. A class that never ran is missing.
func (s *planStore) StepTimes(ctx context.Context) (map[string]time.Duration, error) {
	var rows []stepTime
	err := s.read.WithContext(ctx).Find(&rows).Error
	out := make(map[string]time.Duration, len(rows))
	for _, r := range rows {
		out[r.Class] = time.Duration(r.Micros) * time.Microsecond
	}
	return out, dbError("store.times", "step times", err)
}
