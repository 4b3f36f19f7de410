package store

import (
	"context"
	"time"

	"gorm.io/gorm/clause"

	"github.com/director-kaas/kaas/director/backup"
)

type drillRow struct {
	PlanID     string `gorm:"primaryKey"`
	Cluster    string
	ClusterUID string
	Backup     string
	BeganAt    int64
	AnsweredAt int64
	EndedAt    int64
	Problem    string
	Keys       int64
}

func (drillRow) TableName() string { return "drills" }

func (r drillRow) toDomain() backup.Drill {
	d := backup.Drill{
		Plan: r.PlanID, Cluster: r.Cluster, ClusterUID: r.ClusterUID, Backup: r.Backup, Began: instant(r.BeganAt),
		Problem: r.Problem, Keys: r.Keys,
	}
	if r.AnsweredAt != 0 {
		d.Answered = instant(r.AnsweredAt)
	}
	if r.EndedAt != 0 {
		d.Ended = instant(r.EndedAt)
	}
	return d
}

// DrillFilter narrows Drills; an empty field selects all.
type DrillFilter struct {
	ClusterUID, Plan string
	Limit            int // 0 for all
}

// Drills lists restore drills, the newest first.
func (s *machineStore) Drills(ctx context.Context, f DrillFilter) ([]backup.Drill, error) {
	q := s.read.WithContext(ctx).Order("began_at DESC, plan_id DESC")
	if f.ClusterUID != "" {
		q = q.Where("cluster_uid = ?", f.ClusterUID)
	}
	if f.Plan != "" {
		q = q.Where("plan_id = ?", f.Plan)
	}
	if f.Limit > 0 {
		q = q.Limit(f.Limit)
	}
	var rows []drillRow
	if err := q.Find(&rows).Error; err != nil {
		return nil, dbError("store.drills", "restore drills", err)
	}
	out := make([]backup.Drill, len(rows))
	for i, r := range rows {
		out[i] = r.toDomain()
	}
	return out, nil
}

// LastDrill returns the newest drill of the cluster that succeeded; the zero value if none did.
func (s *machineStore) LastDrill(ctx context.Context, uid string) (backup.Drill, error) {
	var rows []drillRow
	err := s.read.WithContext(ctx).Where("cluster_uid = ? AND answered_at > 0 AND problem = ''", uid).
		Order("answered_at DESC").Limit(1).Find(&rows).Error
	if err != nil || len(rows) == 0 {
		return backup.Drill{}, dbError("store.last_drill", "restore drills", err)
	}
	return rows[0].toDomain(), nil
}

// BeginDrill writes a drill down, unless it is.
func (t *machineTx) BeginDrill(d backup.Drill) error {
	return dbError("store.begin_drill", "drill "+d.Plan, t.db.Clauses(clause.OnConflict{DoNothing: true}).Create(
		&drillRow{
			PlanID: d.Plan, Cluster: d.Cluster, ClusterUID: d.ClusterUID, Backup: d.Backup, BeganAt: micros(d.Began),
		},
	).Error)
}

// AnswerDrill writes down when the drill had its answer, and what is wrong with it.
func (t *machineTx) AnswerDrill(plan string, at time.Time, keys int64, problem string) error {
	return t.setDrill(plan, map[string]any{"answered_at": micros(at), "keys": keys, "problem": problem})
}

// EndDrill writes down that the VM of the drill is gone. A drill without an answer has the problem.
func (t *machineTx) EndDrill(plan string, at time.Time, problem string) error {
	if err := t.setDrill(plan, map[string]any{"ended_at": micros(at)}); err != nil {
		return err
	}
	return dbError("store.end_drill", "drill "+plan, t.db.Model(&drillRow{}).Where(
		"plan_id = ? AND answered_at = 0 AND problem = ''", plan,
	).Update("problem", problem).Error)
}

func (t *machineTx) setDrill(plan string, set map[string]any) error {
	return dbError("store.drill", "drill "+plan, t.db.Model(&drillRow{}).Where("plan_id = ?", plan).Updates(set).Error)
}
