package store

import (
	"context"
	"time"

	"gorm.io/gorm/clause"

	"github.com/director-kaas/kaas/director"
)

type creationRow struct {
	PlanID, StepID, Provider, Machine string
	At                                int64
}

func (creationRow) TableName() string { return "creations" }

// longestSpan is how long creations are remembered. No allowance looks further back.
const longestSpan = 31 * 24 * time.Hour

// TakeCreation writes down that a VM is about to be asked for, if every allowance has room for it. Otherwise it returns
// the allowance that is used up the longest, and when it has room again. A step that took one has it: trying again
// takes nothing.
func (s *machineStore) TakeCreation(
	ctx context.Context, c director.Creation, limits []director.Allowance, now time.Time,
) (usedUp *director.Allowance, until time.Time, err error) {
	const op = "store.creation"
	err = s.Update(ctx, func(tx *Tx) error {
		usedUp, until = nil, time.Time{}
		if err := s.exclusive(tx.db, lockCreations); err != nil {
			return err
		}
		var n int64
		if err := tx.db.Model(&creationRow{}).Where("plan_id = ? AND step_id = ?", c.Plan, c.Step).Count(
			&n,
		).Error; err != nil || n > 0 {
			return dbError(op, "creations", err)
		}
		for _, l := range limits {
			if l.Most <= 0 || l.Provider != "" && l.Provider != c.Provider {
				continue
			}
			q := tx.db.Model(&creationRow{}).Where("at > ?", micros(now.Add(-l.Per)))
			if l.Provider != "" {
				q = q.Where("provider = ?", l.Provider)
			}
			var nth []int64 // the newest that has to be past for the next one
			if err := q.Order("at DESC").Offset(l.Most-1).Limit(1).Pluck("at", &nth).Error; err != nil {
				return dbError(op, "creations", err)
			}
			if len(nth) == 0 {
				continue
			}
			if free := instant(nth[0]).Add(l.Per); usedUp == nil || free.After(until) {
				usedUp, until = &l, free
			}
		}
		if usedUp != nil {
			return nil
		}
		if err := tx.db.Where("at < ?", micros(now.Add(-longestSpan))).Delete(&creationRow{}).Error; err != nil {
			return dbError(op, "creations", err)
		}
		row := creationRow{PlanID: c.Plan, StepID: c.Step, Provider: c.Provider, Machine: c.Machine, At: micros(now)}
		return dbError(op, "creations", tx.db.Clauses(clause.OnConflict{DoNothing: true}).Create(&row).Error)
	})
	return usedUp, until, err
}
