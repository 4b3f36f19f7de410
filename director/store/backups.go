package store

import (
	"context"
	"encoding/json"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/backup"
)

type backupRow struct {
	ID         string `gorm:"primaryKey"`
	Cluster    string
	ClusterUID string
	Target     string
	MadeAt     int64
	PlanID     string
	Manifest   string
	VerifiedAt int64
	Problem    string
}

func (backupRow) TableName() string { return "backups" }

// BackupFilter narrows Backups; an empty field selects all.
type BackupFilter struct {
	ID, Cluster, ClusterUID, Target string
}

// Backups lists backups, the newest first.
func (s *machineStore) Backups(ctx context.Context, f BackupFilter) ([]backup.Entry, error) {
	return backupEntries(s.read.WithContext(ctx), f)
}

// Backups lists them as the transaction sees them.
func (t *machineTx) Backups(f BackupFilter) ([]backup.Entry, error) { return backupEntries(t.db, f) }

func backupEntries(q *gorm.DB, f BackupFilter) ([]backup.Entry, error) {
	q = q.Order("made_at DESC, id")
	for column, value := range map[string]string{
		"id": f.ID, "cluster": f.Cluster, "cluster_uid": f.ClusterUID, "target": f.Target,
	} {
		if value != "" {
			q = q.Where(column+" = ?", value)
		}
	}
	var rows []backupRow
	if err := q.Find(&rows).Error; err != nil {
		return nil, dbError("store.backups", "backups", err)
	}
	out := make([]backup.Entry, len(rows))
	for i, r := range rows {
		out[i] = backup.Entry{Target: r.Target, Problem: r.Problem}
		if r.VerifiedAt != 0 {
			out[i].Verified = instant(r.VerifiedAt)
		}
		if err := json.Unmarshal([]byte(r.Manifest), &out[i].Manifest); err != nil {
			return nil, director.Errorf(
				director.KindInternal, "store.backups", "the row of backup %s cannot be read: %w", r.ID, err,
			)
		}
	}
	return out, nil
}

// PutBackup writes a complete backup down. One of the same id is replaced.
func (t *machineTx) PutBackup(e backup.Entry) error {
	text, err := json.Marshal(e.Manifest)
	if err != nil {
		return err
	}
	row := backupRow{
		ID: e.ID, Cluster: e.Cluster, ClusterUID: e.ClusterUID, Target: e.Target, MadeAt: micros(e.Made),
		PlanID: e.Plan, Manifest: string(text), VerifiedAt: micros(e.Verified), Problem: e.Problem,
	}
	return dbError(
		"store.put_backup", "backup "+e.ID, t.db.Clauses(clause.OnConflict{UpdateAll: true}).Create(&row).Error,
	)
}

// VerifiedBackup writes down what a look at the whole archive showed.
func (t *machineTx) VerifiedBackup(id string, at time.Time, problem string) error {
	return dbError("store.verified_backup", "backup "+id, t.db.Model(&backupRow{}).Where("id = ?", id).Updates(
		map[string]any{"verified_at": micros(at), "problem": problem},
	).Error)
}

// ForgetBackup takes the backup off the list. No error if it is not on it.
func (t *machineTx) ForgetBackup(id string) error {
	return dbError("store.forget_backup", "backup "+id, t.db.Where("id = ?", id).Delete(&backupRow{}).Error)
}
