package store

import (
	"context"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/chain"
)

// TakeSending makes the owner the only one that sends the audit trail until the time, and returns the place up to which
// it has arrived. ok is false while another one sends.
func (s *trailStore) TakeSending(
	ctx context.Context, owner string, now, until time.Time,
) (p chain.Place, ok bool, err error) {
	const op = "store.sending"
	db := s.write.WithContext(ctx)
	err = db.Exec(
		"INSERT INTO audit_sent (one, id, seq, owner, until) VALUES (1, 0, 0, '', 0) ON CONFLICT DO NOTHING",
	).Error
	if err != nil {
		return p, false, dbError(op, "the place", err)
	}
	res := db.Exec(
		"UPDATE audit_sent SET owner = ?, until = ? WHERE owner = ? OR until < ?", owner, micros(until), owner,
		micros(now),
	)
	if res.Error != nil || res.RowsAffected == 0 {
		return p, false, dbError(op, "the place", res.Error)
	}
	err = db.Raw("SELECT id, seq FROM audit_sent").Row().Scan(&p.ID, &p.Seq)
	return p, err == nil, dbError(op, "the place", err)
}

// Arrived moves the place of the owner; conflict if another one sends.
func (s *trailStore) Arrived(ctx context.Context, owner string, p chain.Place) error {
	res := s.write.WithContext(ctx).Exec(
		"UPDATE audit_sent SET id = ?, seq = ? WHERE owner = ? AND id <= ?", p.ID, p.Seq, owner, p.ID,
	)
	if res.Error == nil && res.RowsAffected == 0 {
		return director.Errorf(director.KindConflict, "store.sending", "another director sends the audit trail")
	}
	return dbError("store.sending", "the place", res.Error)
}

// AuditAfter returns entries of the audit trail behind the id, in order.
func (s *trailStore) AuditAfter(ctx context.Context, id int64, limit int) ([]chain.Entry, error) {
	return auditEntries(s.read.WithContext(ctx).Table("audit").Where("id > ?", id).Order("id").Limit(limit))
}

// AuditUnsent returns how many entries have not arrived at the log server.
func (s *trailStore) AuditUnsent(ctx context.Context) (n int64, err error) {
	err = s.read.WithContext(ctx).Raw(
		"SELECT COUNT(*) FROM audit WHERE id > COALESCE((SELECT id FROM audit_sent), 0)",
	).Row().Scan(&n)
	return n, dbError("store.sending", "the audit trail", err)
}
