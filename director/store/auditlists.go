package store

import (
	"context"
	"encoding/json"
	"io"
	"strconv"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/chain"
)

// AuditQuery narrows AuditList. What is empty does not narrow.
type AuditQuery struct {
	Actor, Action, Outcome string
	Object                 string    // Kind/name with all that is about it, or Kind/ for all of the kind
	From, Until            time.Time // Until is the first moment that does not count
}

var auditOrders = map[string]order{"": {"id", true}, "id": {"id", true}}

// AuditList lists entries of the audit trail that are in the database, by id. next is nil at the end of the list.
func (s *trailStore) AuditList(
	ctx context.Context, f AuditQuery, p director.Page,
) (entries []AuditEntry, next *director.Place, err error) {
	if _, err := sortBy(auditOrders, p.Sort, "the audit trail"); err != nil {
		return nil, nil, err
	}
	q, err := afterID(narrowAudit(s.read.WithContext(ctx).Table("audit"), f), p)
	if err != nil {
		return nil, nil, err
	}
	if entries, err = auditEntries(q); err != nil {
		return nil, nil, err
	}
	if p.Limit > 0 && len(entries) > p.Limit {
		entries = entries[:p.Limit]
		id := strconv.FormatInt(entries[p.Limit-1].ID, 10)
		next = &director.Place{Name: id, Value: id}
	}
	return entries, next, nil
}

// afterID narrows q to a part of a list that is sorted by a number that every row has for itself.
func afterID(q *gorm.DB, p director.Page) (*gorm.DB, error) {
	direction, sign := "", ">"
	if p.Desc {
		direction, sign = " DESC", "<"
	}
	q = q.Order("id" + direction)
	if p.Limit > 0 {
		q = q.Limit(p.Limit + 1) // one more tells whether there is more
	}
	if p.After == nil {
		return q, nil
	}
	id, err := strconv.ParseInt(p.After.Name, 10, 64)
	if err != nil {
		return nil, director.Errorf(director.KindInvalid, "store.page", "the place in the list cannot be read").
			WithHint("start the list again, without continue")
	}
	return q.Where("id "+sign+" ?", id), nil
}

func narrowAudit(q *gorm.DB, f AuditQuery) *gorm.DB {
	for column, value := range map[string]string{"actor": f.Actor, "action": f.Action, "outcome": f.Outcome} {
		if value != "" {
			q = q.Where(column+" = ?", value)
		}
	}
	switch {
	case strings.HasSuffix(f.Object, "/"):
		q = prefixed(q, "object", f.Object)
	case f.Object != "":
		with := f.Object + " " // a step of a plan
		q = q.Where("(object = ? OR substr(object, 1, ?) = ?)", f.Object, len([]rune(with)), with)
	}
	if !f.From.IsZero() {
		q = q.Where("at >= ?", micros(f.From))
	}
	if !f.Until.IsZero() {
		q = q.Where("at < ?", micros(f.Until))
	}
	return q
}

// auditEntries reads the entries that the query finds.
func auditEntries(q *gorm.DB) ([]AuditEntry, error) {
	var rows []struct {
		ID, At, Seq, Attempts             int64
		Actor, Action, Object             string
		Outcome, Problem, Source, Request string
		Diff                              string
		Hash                              []byte
	}
	err := q.Find(&rows).Error
	out := make([]AuditEntry, len(rows))
	for i, r := range rows {
		out[i] = AuditEntry{
			ID: r.ID, Seq: r.Seq, At: instant(r.At), Actor: r.Actor, Action: r.Action, Object: r.Object,
			Outcome: r.Outcome, Problem: r.Problem, Source: r.Source, Request: r.Request, Count: r.Attempts,
			Diff: r.Diff,
		}
		copy(out[i].Hash[:], r.Hash)
	}
	return out, dbError("store.audit", "the audit log", err)
}

// AuditStart returns the id behind which a part of the trail begins that holds every entry from the time on and can be
// verified: the last signed entry before the time, or 0 for all.
func (s *trailStore) AuditStart(ctx context.Context, from time.Time) (id int64, err error) {
	if from.IsZero() {
		return 0, nil
	}
	end, err := s.AuditEnd(ctx, from)
	if err != nil {
		return 0, err
	}
	err = s.read.WithContext(ctx).Raw(
		"SELECT COALESCE(MAX(a.id), 0) FROM audit a JOIN audit_checkpoints c ON c.seq = a.seq WHERE a.id <= ?", end,
	).Scan(&id).Error
	return id, dbError("store.audit", "the audit log", err)
}

// WriteAudit writes the entries behind the id after and up to the id end, one a line, and returns the id of the last
// one and how many they are. What it writes can be verified alone: it begins with the checkpoint ahead of its first
// entry and ends with one at its last, which sign makes if there is none. It holds a page of entries in memory at most.
// sign may be nil; then only checkpoints that are there are written.
func (s *trailStore) WriteAudit(
	ctx context.Context, w io.Writer, after, end int64, sign func(ctx context.Context, seq int64) error,
) (last, n int64, err error) {
	const page = 1000
	enc := json.NewEncoder(w)
	var first, seq int64
	last = after
	for {
		entries, err := s.AuditPage(ctx, last, end, page)
		if err != nil {
			return last, n, err
		}
		for _, e := range entries {
			if first == 0 && e.Seq > 0 {
				first = e.Seq
				if err := s.writeCheckpoints(ctx, enc, first-1, first-1); err != nil {
					return last, n, err
				}
			}
			if err := enc.Encode(e); err != nil {
				return last, n, err
			}
			last, n, seq = e.ID, n+1, max(seq, e.Seq)
		}
		if len(entries) < page {
			break
		}
	}
	if seq == 0 {
		return last, n, nil
	}
	if sign != nil {
		if err := sign(ctx, seq); err != nil {
			return last, n, err
		}
	}
	return last, n, s.writeCheckpoints(ctx, enc, first, seq)
}

func (s *trailStore) writeCheckpoints(ctx context.Context, enc *json.Encoder, from, to int64) error {
	checkpoints, err := s.AuditCheckpoints(ctx, from)
	for _, c := range checkpoints {
		if err == nil && c.Seq <= to {
			err = enc.Encode(chain.Line{Checkpoint: &c})
		}
	}
	return err
}
