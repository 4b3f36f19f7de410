package store

import (
	"context"

	"gorm.io/gorm"

	"github.com/director-kaas/kaas/director/plan"
)

// OpenPlans returns the contents of the plans that have one of the statuses, without their states, the oldest first.
// Other plans are not read.
func (s *planStore) OpenPlans(ctx context.Context, statuses ...plan.Status) ([]plan.Plan, error) {
	return s.openPlans(s.read.WithContext(ctx), statuses)
}

// OpenPlans returns the plans as the transaction sees them. It locks none: a plan that moves meanwhile may be in its
// former status.
func (t *planTx) OpenPlans(statuses ...plan.Status) ([]plan.Plan, error) {
	return (&planStore{t.store}).openPlans(t.db, statuses)
}

func (s *planStore) openPlans(db *gorm.DB, statuses []plan.Status) ([]plan.Plan, error) {
	var rows []planRow
	if err := db.Where("phase IN ?", statuses).Order("created_at, id").Find(&rows).Error; err != nil {
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

// BusyClusters returns the names of clusters with a plan that runs, in no order and so many at most.
func (s *planStore) BusyClusters(ctx context.Context, limit int) (names []string, err error) {
	q := s.read.WithContext(ctx).Model(&planRow{}).Where("phase = ?", plan.StatusRunning).Distinct("cluster")
	err = q.Limit(limit).Pluck("cluster", &names).Error
	return names, dbError("store.busy_clusters", "plans", err)
}
