package store

import (
	"context"
	"strings"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
)

// ArchiveFile is a file that holds what was taken out of the database.
type ArchiveFile struct {
	Host, File string // the director that has it, and its path there
	SHA256     string
	Size       int64
	At         time.Time // it was written
}

// PlanArchive is a plan that is in a file and no longer in the database.
type PlanArchive struct {
	PlanItem
	ArchiveFile
}

type planArchiveRow struct {
	PlanID                      string `gorm:"primaryKey"`
	Operation, Cluster, Project string
	Summary                     string
	Status                      string `gorm:"column:phase"`
	CreatedAt                   int64  `gorm:"autoCreateTime:false"`
	CreatedBy                   string
	StartedAt, FinishedAt       int64
	Done, Total                 int
	ArchivedAt                  int64
	Host, File                  string
	SHA256                      string `gorm:"column:sha256"`
	Size                        int64
}

func (planArchiveRow) TableName() string { return "plan_archives" }

func (r planArchiveRow) toDomain() PlanArchive {
	p := planRow{
		ID: r.PlanID, Operation: r.Operation, Cluster: r.Cluster, Summary: r.Summary, Status: r.Status,
		CreatedAt: r.CreatedAt, CreatedBy: r.CreatedBy, StartedAt: r.StartedAt, FinishedAt: r.FinishedAt,
	}
	a := PlanArchive{
		p.toItem(), ArchiveFile{Host: r.Host, File: r.File, SHA256: r.SHA256, Size: r.Size, At: instant(r.ArchivedAt)},
	}
	a.Done, a.Total = r.Done, r.Total
	return a
}

// Retention says which plans leave the database.
type Retention struct {
	Before time.Time // all that ended before
	Recent time.Time // none that ended after
	Most   int       // of the others so many of each cluster stay, the newest; 0 for all
}

// Archivable returns the plans that are over for good and may leave the database, the oldest first. The plan of a
// cluster that was started last stays, and so does one that kept disks, a running schedule or an unfinished task of an
// outer plan name.
func (s *trailStore) Archivable(ctx context.Context, r Retention) ([]string, error) {
	const op = "store.archivable"
	db := s.read.WithContext(ctx)
	var rows []planRow
	err := db.Select("id", "cluster", "phase", "created_at", "started_at", "finished_at").Where(
		"phase IN ? AND finished_at > 0", finishedStatuses,
	).
		Order("created_at DESC, id DESC").Find(&rows).Error
	if err != nil || len(rows) == 0 {
		return nil, dbError(op, "plans", err)
	}
	named, err := s.namedPlans(db)
	if err != nil {
		return nil, dbError(op, "plans", err)
	}
	var ids []string
	seen := map[string]int{} // newer ones of the cluster
	for _, p := range rows {
		seen[p.Cluster]++
		old := p.FinishedAt < micros(r.Before) || r.Most > 0 && seen[p.Cluster] > r.Most
		if old && p.FinishedAt < micros(r.Recent) && !named(p.ID) {
			ids = append([]string{p.ID}, ids...)
		}
	}
	return ids, nil
}

// namedPlans returns a function that reports whether something unfinished names the plan.
func (s *trailStore) namedPlans(db *gorm.DB) (func(id string) bool, error) {
	var ids, tasks []string
	for _, statement := range []string{
		"SELECT id FROM plans JOIN (SELECT cluster, MAX(started_at) AS started_at FROM plans WHERE started_at > 0 " +
			"GROUP BY cluster) AS newest " +
			"ON newest.cluster = plans.cluster AND newest.started_at = plans.started_at",
		"SELECT plan_id FROM kept_disks", "SELECT plan_id FROM schedule_runs WHERE status = 'running'",
	} {
		var some []string
		if err := db.Raw(statement).Scan(&some).Error; err != nil {
			return nil, err
		}
		ids = append(ids, some...)
	}
	if err := db.Model(&phaseRow{}).Where("finished_at = 0").Pluck("parts", &tasks).Error; err != nil {
		return nil, err
	}
	named := make(map[string]bool, len(ids))
	for _, id := range ids {
		named[id] = true
	}
	parts := strings.Join(tasks, "\n")
	return func(id string) bool { return named[id] || strings.Contains(parts, `"`+id+`"`) }, nil
}

// ArchivePlan takes the plan with all that belongs to it out of the database, once its file is written. No error if
// that has happened. Conflict if the plan is not over for good.
func (s *trailStore) ArchivePlan(ctx context.Context, id string, f ArchiveFile, actor string) error {
	const op = "store.archive"
	return s.Update(ctx, func(tx *Tx) error {
		var rows []planRow
		if err := tx.locked().Where("id = ?", id).Find(&rows).Error; err != nil || len(rows) == 0 {
			return dbError(op, "plan "+id, err)
		}
		r := rows[0]
		var steps struct{ Done, Total int }
		err := tx.db.Raw(countSteps+" plan_id = ?", string(plan.Pending), plan.UndoPattern, id).Scan(&steps).Error
		if err != nil {
			return dbError(op, "plan "+id, err)
		}
		if !over(plan.Status(r.Status)) {
			return director.Errorf(director.KindConflict, op, "plan %s is %s, and not over for good", id, r.Status)
		}
		err = tx.db.Clauses(clause.OnConflict{DoNothing: true}).Create(&planArchiveRow{
			PlanID: id, Operation: r.Operation, Cluster: r.Cluster, Project: r.Project, Status: r.Status,
			Summary:   r.Summary,
			CreatedAt: r.CreatedAt, CreatedBy: r.CreatedBy,
			StartedAt: r.StartedAt, FinishedAt: r.FinishedAt, Done: steps.Done, Total: steps.Total,
			ArchivedAt: micros(f.At), Host: f.Host, File: f.File, SHA256: f.SHA256, Size: f.Size,
		}).Error
		if err == nil {
			// its steps, events, content and machines go with it
			err = tx.db.Where("id = ?", id).Delete(&planRow{}).Error
		}
		if err != nil {
			return dbError(op, "plan "+id, err)
		}
		return tx.Audit(f.At, actor, "archive", "Plan/"+id)
	})
}

// PlanArchived returns where the plan was archived to, and false if it was not.
func (s *trailStore) PlanArchived(ctx context.Context, id string) (PlanArchive, bool, error) {
	return planArchived(s.read.WithContext(ctx), id)
}

func planArchived(db *gorm.DB, id string) (PlanArchive, bool, error) {
	var rows []planArchiveRow
	if err := db.Where("plan_id = ?", id).Find(&rows).Error; err != nil || len(rows) == 0 {
		return PlanArchive{}, false, dbError("store.archive", "plan "+id, err)
	}
	return rows[0].toDomain(), true, nil
}

// PlanArchives lists the archived plans in the page's order. next is nil at the end of the list.
func (s *trailStore) PlanArchives(
	ctx context.Context, f PlanQuery, p director.Page,
) (items []PlanItem, next *director.Place, err error) {
	q, by, err := narrowPlans(s.read.WithContext(ctx).Model(&planArchiveRow{}), "plan_id", f, p)
	if err != nil {
		return nil, nil, err
	}
	var rows []planArchiveRow
	if err := q.Find(&rows).Error; err != nil {
		return nil, nil, dbError("store.archive", "plans", err)
	}
	for _, r := range rows {
		items = append(items, r.toDomain().PlanItem)
	}
	if p.Limit > 0 && len(rows) > p.Limit {
		items, next = items[:p.Limit], placeOf(items[p.Limit-1], by)
	}
	return items, next, nil
}

// noPlan is the error for a plan that is not in the database: it tells of an archived one where it is.
func noPlan(db *gorm.DB, id string, err error) error {
	err = dbError("store.plan", "plan "+id, err)
	if director.KindOf(err) != director.KindNotFound {
		return err
	}
	a, there, aerr := planArchived(db.Session(&gorm.Session{NewDB: true}), id)
	if aerr != nil || !there {
		return err
	}
	return director.Errorf(
		director.KindNotFound, "store.plan", "plan %s was archived on %s, to %s on host %s", id,
		a.At.Format(time.DateOnly), a.File, a.Host,
	).
		WithHint("%s", "see it on that director: directorctl plans show "+id)
}
