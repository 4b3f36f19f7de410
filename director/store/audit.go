package store

import (
	"context"
	"math"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/chain"
)

// AuditEntry is an entry of the audit trail.
type AuditEntry = chain.Entry

// Audit notes who did what to which object: Kind/name, and a step of a plan behind a space.
func (t *documentTx) Audit(now time.Time, actor, action, object string) error {
	return t.AuditChange(now, actor, action, object, "")
}

// AuditChange notes a change with the difference that it made. A difference must not hold a secret.
func (t *documentTx) AuditChange(now time.Time, actor, action, object, diff string) error {
	t.announceAudit(now, actor, action, object)
	t.AuditAttempt(AuditEntry{At: now, Actor: actor, Action: action, Object: object, Outcome: chain.OK, Diff: diff})
	return nil
}

// AuditAttempt notes an attempt that changed nothing: the stream does not tell of it.
func (t *documentTx) AuditAttempt(e AuditEntry) {
	if e.Source == "" && e.Request == "" {
		e.Source, e.Request = t.origin.Address, t.origin.Request
	}
	t.audit = append(t.audit, e.Bounded())
}

// AuditHead is the end of the audit trail.
type AuditHead struct {
	Seq      int64
	Hash     chain.Hash
	BeforeID int64 // the last row from before the chain
}

// flushAudit adds the entries of the transaction to the chain, at its very end. From here to the commit no other
// director adds any: the row of the head is locked.
func (t *txn) flushAudit() error {
	if len(t.audit) == 0 {
		return nil
	}
	head, err := auditHead(t.locked())
	if err != nil {
		return err
	}
	const columns = "at, actor, action, object, seq, outcome, problem, source, request, attempts, diff, hash"
	const batch = 500 // SQLite takes 32766 parameters
	for rows := t.audit; len(rows) > 0; rows = rows[min(batch, len(rows)):] {
		var values []string
		var args []any
		for _, e := range rows[:min(batch, len(rows))] {
			head.Seq++
			e.Seq = head.Seq
			e.Hash = e.After(head.Hash)
			head.Hash = e.Hash
			values = append(values, "(?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)")
			args = append(args, micros(e.At), e.Actor, e.Action, e.Object, e.Seq, e.Outcome, e.Problem, e.Source,
				e.Request, e.Count, e.Diff, e.Hash[:])
		}
		err := t.db.Exec("INSERT INTO audit ("+columns+") VALUES "+strings.Join(values, ", "), args...).Error
		if err != nil {
			return dbError("store.audit", "the audit log", err)
		}
	}
	err = t.db.Exec("UPDATE audit_head SET seq = ?, hash = ? WHERE id = 1", head.Seq, head.Hash[:]).Error
	return dbError("store.audit", "the audit log", err)
}

func auditHead(db *gorm.DB) (AuditHead, error) {
	var row struct {
		Seq, BeforeID int64
		Hash          []byte
	}
	err := db.Table("audit_head").Select("seq, hash, before_id").Where("id = 1").Take(&row).Error
	h := AuditHead{Seq: row.Seq, BeforeID: row.BeforeID}
	copy(h.Hash[:], row.Hash)
	return h, dbError("store.audit", "the head of the audit log", err)
}

// AddAudit adds attempts that changed nothing to the audit trail, in a transaction of their own.
func (s *trailStore) AddAudit(ctx context.Context, entries ...AuditEntry) error {
	return s.Update(ctx, func(tx *Tx) error {
		for _, e := range entries {
			tx.AuditAttempt(e)
		}
		return nil
	})
}

// AuditSeen is the audit trail at one moment. Its rows are read page by page.
type AuditSeen struct {
	Head        AuditHead
	LastID      int64
	Checkpoints []chain.Checkpoint
}

// SeeAudit returns the head of the audit trail, its checkpoints, and the last row that belongs to them.
func (s *trailStore) SeeAudit(ctx context.Context) (seen AuditSeen, err error) {
	const op = "store.audit"
	err = s.read.WithContext(ctx).Transaction(func(db *gorm.DB) error {
		if seen.Head, err = auditHead(db); err != nil {
			return err
		}
		if seen.Checkpoints, err = checkpoints(db, 0); err != nil {
			return err
		}
		return dbError(op, "the audit log", db.Raw("SELECT COALESCE(MAX(id), 0) FROM audit").Scan(&seen.LastID).Error)
	}, s.snapshot())
	return seen, err
}

// AuditProgress returns the number of the last entry, and the last checkpoint: one of entry 0 if there is none.
func (s *trailStore) AuditProgress(ctx context.Context) (seq int64, last chain.Checkpoint, err error) {
	db := s.read.WithContext(ctx)
	head, err := auditHead(db)
	if err != nil {
		return 0, last, err
	}
	all, err := checkpoints(db.Where("seq = (SELECT MAX(seq) FROM audit_checkpoints)"), 0)
	if len(all) > 0 {
		last = all[0]
	}
	return head.Seq, last, err
}

// AuditCheckpoints returns the checkpoints at the entry from and later ones.
func (s *trailStore) AuditCheckpoints(ctx context.Context, from int64) ([]chain.Checkpoint, error) {
	return checkpoints(s.read.WithContext(ctx), from)
}

func checkpoints(db *gorm.DB, from int64) ([]chain.Checkpoint, error) {
	var rows []struct {
		Seq, At   int64
		Director  string
		Hash      []byte
		Signature []byte
	}
	err := db.Table("audit_checkpoints").Where("seq >= ?", from).Order("seq").Find(&rows).Error
	out := make([]chain.Checkpoint, len(rows))
	for i, r := range rows {
		out[i] = chain.Checkpoint{Director: r.Director, Seq: r.Seq, At: instant(r.At), Signature: r.Signature}
		copy(out[i].Hash[:], r.Hash)
	}
	return out, dbError("store.audit", "the checkpoints of the audit log", err)
}

// AddCheckpoint stores the checkpoint. The first one at an entry stays.
func (s *trailStore) AddCheckpoint(ctx context.Context, c chain.Checkpoint) error {
	err := s.write.WithContext(ctx).Exec(
		"INSERT INTO audit_checkpoints (seq, director, hash, at, signature) VALUES (?, ?, ?, ?, ?) "+
			"ON CONFLICT DO NOTHING",
		c.Seq, c.Director, c.Hash[:], micros(c.At), c.Signature,
	).Error
	return dbError("store.audit", "a checkpoint of the audit log", err)
}

// AuditHash returns the hash of the entry, and not_found if it is not in the database.
func (s *trailStore) AuditHash(ctx context.Context, seq int64) (hash chain.Hash, err error) {
	var b []byte
	err = s.read.WithContext(ctx).Raw("SELECT hash FROM audit WHERE seq = ? AND seq > 0", seq).Row().Scan(&b)
	copy(hash[:], b)
	return hash, dbError("store.audit", "an entry of the audit log", err)
}

// OldestAudit returns the time of the first entry of the audit trail, and zero if it is empty.
func (s *trailStore) OldestAudit(ctx context.Context) (time.Time, error) {
	var us int64
	err := s.read.WithContext(ctx).Raw("SELECT COALESCE((SELECT at FROM audit ORDER BY id LIMIT 1), 0)").Scan(&us).Error
	return instant(us), dbError("store.audit", "the audit log", err)
}

// AuditEnd returns the id of the last entry ahead of the first one at or after the time. The entries up to it are a
// part of the chain without a gap, also if clocks did not agree.
func (s *trailStore) AuditEnd(ctx context.Context, until time.Time) (id int64, err error) {
	err = s.read.WithContext(ctx).Raw(
		"SELECT COALESCE(MAX(id), 0) FROM audit WHERE id < COALESCE((SELECT MIN(id) FROM audit WHERE at >= ?), ?)",
		micros(until), int64(math.MaxInt64),
	).Scan(&id).Error
	return id, dbError("store.audit", "the audit log", err)
}

// AuditPage returns entries with ids after the one and up to the other, in their order.
func (s *trailStore) AuditPage(ctx context.Context, after, last int64, most int) ([]AuditEntry, error) {
	return auditEntries(
		s.read.WithContext(ctx).Table("audit").Where("id > ? AND id <= ?", after, last).Order("id").Limit(most),
	)
}

// AuditArchives returns how many archives of the month are recorded.
func (s *trailStore) AuditArchives(ctx context.Context, month time.Time) (n int, err error) {
	err = s.read.WithContext(ctx).Raw(
		"SELECT count(*) FROM audit_archives WHERE month = ?", month.Format("2006-01"),
	).Scan(&n).Error
	return n, dbError("store.audit", "the audit log", err)
}

// ArchiveAudit takes the entries up to the last id out of the database, once their file is written. Nothing is taken if
// there is such an archive, or if it holds another number of entries than the database.
func (s *trailStore) ArchiveAudit(
	ctx context.Context, name string, month time.Time, last, entries int64, f ArchiveFile,
) error {
	const op = "store.audit"
	return s.Update(ctx, func(tx *Tx) error {
		err := tx.db.Exec("INSERT INTO audit_archives (name, month, entries, archived_at, host, file, sha256, size) "+
			"VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
			name, month.Format("2006-01"), entries, micros(f.At), f.Host, f.File, f.SHA256, f.Size).Error
		if err != nil {
			return dbError(op, "the archive "+name, err)
		}
		res := tx.db.Exec("DELETE FROM audit WHERE id <= ?", last)
		if res.Error == nil && res.RowsAffected != entries {
			return director.Errorf(
				director.KindConflict, op, "the audit log of %s has %d entries, and its archive %d",
				month.Format("2006-01"), res.RowsAffected, entries,
			)
		}
		return dbError(op, "the audit log", res.Error)
	})
}
