package store

import "context"

// PlansThatLeft returns the plans that are over for good, and have begun more steps of the kind that makes something
// than they have done of the kind that removes it again; the newest first.
func (s *planStore) PlansThatLeft(ctx context.Context, makes, removes string) ([]string, error) {
	count := func(which string) string {
		return "SUM(CASE WHEN plan_steps.step_id LIKE ? AND plan_steps." + which + " THEN 1 ELSE 0 END)"
	}
	made, removed := "%"+makes+"/%", "%"+removes+"/%"
	var ids []string
	err := s.read.WithContext(ctx).Model(&planRow{}).Joins("JOIN plan_steps ON plan_steps.plan_id = plans.id").
		Where("plans.phase IN ? AND plans.started_at > 0", finishedStatuses).
		Where("plan_steps.step_id LIKE ? OR plan_steps.step_id LIKE ?", made, removed).
		Group("plans.id, plans.created_at").
		Having(count("started_at > 0")+" > "+count("status = 'done'"), made, removed).
		Order("plans.created_at DESC, plans.id").Pluck("plans.id", &ids).Error
	return ids, dbError("store.plans", "plans", err)
}
