package store

import (
	"context"

	"gorm.io/gorm"

	"github.com/director-kaas/kaas/director/plan"
)

// OpenPlans returns the plans in the phases with their contents and without their states, the oldest first. Other plans
// are not read.
func (s *planStore) OpenPlans(ctx context.Context, phases ...plan.Phase) ([]plan.Plan, error) {
	return s.openPlans(s.read.WithContext(ctx), phases)
}

// OpenPlans returns the plans as the transaction sees them. It locks none: a plan that moves meanwhile may be in its
// former phase.
func (t *planTx) OpenPlans(phases ...plan.Phase) ([]plan.Plan, error) {
	return (&planStore{t.store}).openPlans(t.db, phases)
}

func (s *planStore) openPlans(db *gorm.DB, phases []plan.Phase) ([]plan.Plan, error) {
	var rows []planRow
	if err := db.Where("phase IN ?", phases).Order("created_at, id").Find(&rows).Error; err != nil {
		return nil, dbError("store.open_plans", "plans", err)
	}
	out := make([]plan.Plan, 0, len(rows))
	for _, r := range rows {
		content, err := s.contentOf(db, r)
		if err != nil {
			return nil, err
		}
		out = append(out, plan.Plan{
			ID: r.ID, CreatedAt: instant(r.CreatedAt), CreatedBy: r.CreatedBy, Hash: r.Hash, Content: content.lend(),
		})
	}
	return out, nil
}
