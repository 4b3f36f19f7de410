package store

import (
	"context"
	"time"

	"gorm.io/gorm"

	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
)

// Version tells one state of a document from every other one, also from a document of the same name that was made
// later.
type Version struct {
	UID        string
	Generation int64
}

// Versions returns the version of every document.
func (s *planStore) Versions(ctx context.Context) (map[model.Ref]Version, error) {
	return versions(s.read.WithContext(ctx))
}

// Versions returns the version of every document. Until the transaction ends, no other one changes any.
func (t *planTx) Versions() (map[model.Ref]Version, error) {
	if err := t.store.exclusive(t.db, lockDocuments); err != nil {
		return nil, dbError("store.versions", "documents", err)
	}
	return versions(t.db)
}

func versions(db *gorm.DB) (map[model.Ref]Version, error) {
	var rows []documentRow
	if err := db.Select("kind", "name", "uid", "generation").Find(&rows).Error; err != nil {
		return nil, dbError("store.versions", "documents", err)
	}
	out := make(map[model.Ref]Version, len(rows))
	for _, r := range rows {
		out[model.Ref{Kind: model.Kind(r.Kind), Name: r.Name}] = Version{r.UID, r.Generation}
	}
	return out, nil
}

// DocumentUID returns the uid of the document, or "" if there is none. Until the transaction ends, no other one changes
// any document.
func (t *planTx) DocumentUID(ref model.Ref) (string, error) {
	if err := t.store.exclusive(t.db, lockDocuments); err != nil {
		return "", dbError("store.document", ref.String(), err)
	}
	var uids []string
	err := t.db.Model(&documentRow{}).Where("kind = ? AND name = ?", ref.Kind, ref.Name).Pluck("uid", &uids).Error
	if err != nil || len(uids) == 0 {
		return "", dbError("store.document", ref.String(), err)
	}
	return uids[0], nil
}

// NewestStarted returns the id of the cluster's plan of the lane that was started last, or "".
func (s *planStore) NewestStarted(ctx context.Context, cluster string, of Lane) (string, error) {
	return newestStarted(s.read.WithContext(ctx), cluster, of)
}

// NewestStarted returns the id of the cluster's plan of the lane that was started last, or "".
func (t *planTx) NewestStarted(cluster string, of Lane) (string, error) {
	return newestStarted(t.db, cluster, of)
}

func newestStarted(db *gorm.DB, cluster string, of Lane) (string, error) {
	var ids []string
	err := inLane(db.Model(&planRow{}), of).Where("cluster = ? AND started_at > 0", cluster).Order(
		"started_at DESC, id DESC",
	).Limit(1).Pluck("id", &ids).Error
	if err != nil || len(ids) == 0 {
		return "", dbError("store.newest_started", "plans", err)
	}
	return ids[0], nil
}

// DiscardPlans gives up the cluster's plans with the statuses.
func (t *planTx) DiscardPlans(cluster, reason, by string, at time.Time, statuses ...plan.Status) error {
	return t.DiscardPlansOf("", cluster, reason, by, at, statuses...)
}

// DiscardPlansOf is DiscardPlans for the plans of a lane.
func (t *planTx) DiscardPlansOf(lane Lane, cluster, reason, by string, at time.Time, statuses ...plan.Status) error {
	ids, err := t.plansIn(lane, cluster, statuses)
	if err != nil {
		return err
	}
	for _, id := range ids {
		_, s, err := t.Plan(id)
		if err != nil {
			return err
		}
		discarded := plan.Event{Plan: id, Kind: plan.PlanDiscarded, At: at.UTC(), By: by, Message: reason}
		if err := t.Append(&s, discarded); err != nil {
			return err
		}
	}
	return nil
}

// PlansIn returns the ids of the cluster's plans with the statuses, the oldest first.
func (t *planTx) PlansIn(cluster string, statuses ...plan.Status) ([]string, error) {
	return t.plansIn("", cluster, statuses)
}

func (t *planTx) plansIn(lane Lane, cluster string, statuses []plan.Status) ([]string, error) {
	var ids []string
	plans := inLane(t.db.Model(&planRow{}), lane).Where("cluster = ? AND phase IN ?", cluster, statuses)
	err := plans.Order("created_at, id").Pluck("id", &ids).Error
	return ids, dbError("store.plans", "plans", err)
}

// Living returns the names of the cluster's machines that exist or are reserved, in order.
func (t *planTx) Living(clusterUID string) ([]string, error) {
	var names []string
	err := t.db.Model(&machineRow{}).Where("cluster_uid = ? AND deleted_at = 0", clusterUID).Order("name").Pluck(
		"name", &names,
	).Error
	return names, dbError("store.living", "the machines of cluster "+clusterUID, err)
}

// SkippedSteps returns the steps of the plan that a person has had skipped.
func (s *planStore) SkippedSteps(ctx context.Context, planID string) (map[string]bool, error) {
	var ids []string
	err := s.read.WithContext(ctx).Model(&stepRow{}).Where(
		"plan_id = ? AND status = ?", planID, string(plan.Skipped),
	).Pluck("step_id", &ids).Error
	out := make(map[string]bool, len(ids))
	for _, id := range ids {
		out[id] = true
	}
	return out, dbError("store.skipped", "plan "+planID, err)
}
