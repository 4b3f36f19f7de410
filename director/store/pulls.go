package store

import (
	"context"
	"errors"
	"slices"

	"gorm.io/gorm"

	"github.com/director-kaas/kaas/director/model"
)

// ProjectOfCluster returns the project of the cluster with the uid; empty for none, and without such a cluster.
func (s *documentStore) ProjectOfCluster(ctx context.Context, uid string) (project string, err error) {
	err = one(s.read.WithContext(ctx).Raw(
		"SELECT project FROM documents WHERE kind = ? AND uid = ?", model.KindCluster, uid,
	), &project)
	if errors.Is(err, gorm.ErrRecordNotFound) {
		err = nil
	}
	return project, dbError("store.document", "cluster "+uid, err)
}

// AnonymousPulls returns the uids of the clusters whose nodes were set up without credentials for the registry.
func (s *documentStore) AnonymousPulls(ctx context.Context) ([]string, error) {
	var uids []string
	err := s.read.WithContext(ctx).Raw("SELECT cluster_uid FROM anonymous_pulls ORDER BY cluster_uid").Scan(&uids).Error
	return uids, dbError("store.pulls", "clusters", err)
}

// EndAnonymousPulls records that every node of the cluster has credentials. No error if that is known.
func (s *documentStore) EndAnonymousPulls(ctx context.Context, uid string) error {
	return s.Update(ctx, func(tx *Tx) error { return tx.endAnonymousPulls(uid) })
}

func (t *documentTx) endAnonymousPulls(uid string) error {
	err := t.db.Exec("DELETE FROM anonymous_pulls WHERE cluster_uid = ?", uid).Error
	if err == nil {
		err = t.db.Exec("DELETE FROM pulls_shown WHERE cluster_uid = ?", uid).Error
	}
	return dbError("store.pulls", "cluster "+uid, err)
}

// NotePull records that credentials of the cluster were shown from the address. A cluster that was set up without them
// leaves AnonymousPulls as soon as they were shown from an address of each of its machines.
func (s *documentStore) NotePull(ctx context.Context, uid, address string) error {
	without, err := s.AnonymousPulls(ctx)
	if err != nil || !slices.Contains(without, uid) {
		return err
	}
	return s.Update(ctx, func(tx *Tx) error {
		const op = "store.pulls"
		err := tx.db.Exec(
			"INSERT INTO pulls_shown (cluster_uid, address) VALUES (?, ?) ON CONFLICT DO NOTHING", uid, address,
		).Error
		if err != nil {
			return dbError(op, "cluster "+uid, err)
		}
		var silent int64
		err = tx.db.Raw(`SELECT COUNT(*) FROM machines m WHERE m.cluster_uid = ? AND m.deleted_at = 0 AND NOT EXISTS (
			SELECT 1 FROM machine_nics n JOIN pulls_shown p ON p.address = n.address AND p.cluster_uid = m.cluster_uid
			WHERE n.machine_id = m.id)`, uid).Scan(&silent).Error
		if err != nil || silent > 0 {
			return dbError(op, "cluster "+uid, err)
		}
		return tx.endAnonymousPulls(uid)
	})
}
