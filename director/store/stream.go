package store

import (
	"context"
	"errors"
	"strconv"
	"strings"
	"sync"
	"time"

	"gorm.io/gorm"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
)

type streamRow struct {
	ID                 int64
	At                 int64
	Source, Kind, Name string
	Cluster, What      string
	Actor, Step        string
	Attempt            int
	Seq                int64
	Message, Hint      string
}

func (streamRow) TableName() string { return "stream" }

func (r streamRow) toDomain() director.StreamEvent {
	return director.StreamEvent{
		ID: r.ID, At: instant(r.At), Source: r.Source, Kind: r.Kind, Name: r.Name, Cluster: r.Cluster, What: r.What,
		By:   r.Actor,
		Step: r.Step, Attempt: r.Attempt, Seq: r.Seq, Message: r.Message, Hint: r.Hint,
	}
}

const kindPlan = "Plan"

// announceEvent puts an event of a plan into the stream. What moves nothing stays in the plan's journal alone: a step
// that looks every few seconds whether it is ready would drown all others.
func (t *txn) announceEvent(e plan.Event) {
	if e.Kind == plan.Noted || e.Kind == plan.NotReady {
		return
	}
	t.stream = append(t.stream, streamRow{
		At: micros(e.At), Source: director.SourcePlan, Kind: kindPlan, Name: e.Plan, What: string(e.Kind), Actor: e.By,
		Step: e.Step, Attempt: e.Attempt, Seq: e.Seq, Message: e.Message, Hint: e.Hint,
	})
}

// announceAudit adds an audited action to the stream. object is Kind/name, and the step behind a space.
func (t *txn) announceAudit(now time.Time, actor, action, object string) {
	kind, name, _ := strings.Cut(object, "/")
	row := streamRow{At: micros(now), Source: director.SourceAudit, Kind: kind, Name: name, What: action, Actor: actor}
	if kind == kindPlan {
		row.Name, row.Step, _ = strings.Cut(name, " ")
	}
	if kind == "Cluster" {
		row.Cluster = name
	}
	t.stream = append(t.stream, row)
}

// flushStream is the last thing that a transaction does, but for flushAudit. From here to its commit no one else
// inserts, so ids grow in the order of commits, and a reader who has seen one has seen all below it. This lock and the
// one of the audit trail are the last that a transaction takes, in this order: they cannot be part of a deadlock.
func (t *txn) flushStream() error {
	if len(t.stream) == 0 {
		return nil
	}
	if err := t.store.exclusive(t.db, lockStream); err != nil {
		return err
	}
	const columns = "at, source, kind, name, cluster, what, actor, step, attempt, seq, message, hint"
	const batch = 500 // SQLite takes 32766 parameters
	for rows := t.stream; len(rows) > 0; rows = rows[min(batch, len(rows)):] {
		var values []string
		var args []any
		for _, r := range rows[:min(batch, len(rows))] {
			cluster := "?"
			args = append(args, r.At, r.Source, r.Kind, r.Name)
			if r.Kind == kindPlan {
				cluster = "COALESCE((SELECT cluster FROM plans WHERE id = ?), '')"
				args = append(args, r.Name)
			} else {
				args = append(args, r.Cluster)
			}
			args = append(args, r.What, r.Actor, r.Step, r.Attempt, r.Seq, r.Message, r.Hint)
			values = append(values, "(?, ?, ?, ?, "+cluster+", ?, ?, ?, ?, ?, ?, ?)")
		}
		if err := t.db.Exec(
			"INSERT INTO stream ("+columns+") VALUES "+strings.Join(values, ", "), args...,
		).Error; err != nil {
			return err
		}
	}
	t.moved = true
	return nil
}

// news wakes those who read the stream.
type news struct {
	mu sync.Mutex
	ch chan struct{}
}

func (n *news) wait() <-chan struct{} {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch == nil {
		n.ch = make(chan struct{})
	}
	return n.ch
}

func (n *news) send() {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.ch != nil {
		close(n.ch)
		n.ch = nil
	}
}

// News returns a channel that is closed when this process has next put something into the stream. Take it before
// reading, and read again when it closes. Of what other directors do, Channel tells.
func (s *trailStore) News() <-chan struct{} { return s.news.wait() }

// metaPruned names the greatest id that was pruned from the stream.
const metaPruned = "stream_pruned"

// Stream returns the part of the stream that the query asks for, in order.
func (s *trailStore) Stream(ctx context.Context, q director.StreamQuery) (page director.StreamPage, err error) {
	// one snapshot: what is pruned meanwhile is not missed unseen
	err = s.read.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		page, err = readStream(tx, q)
		return err
	}, s.snapshot())
	return page, dbError("store.stream", "the stream", err)
}

func readStream(tx *gorm.DB, q director.StreamQuery) (page director.StreamPage, err error) {
	pruned, newest, err := ends(tx)
	if err != nil {
		return page, err
	}
	fit := func() *gorm.DB {
		db := seen(tx.Model(&streamRow{}), q.Visible, "stream.cluster", "stream.at", "''")
		if q.Cluster != "" {
			db = db.Where("cluster = ?", q.Cluster)
		}
		if len(q.Kinds) > 0 {
			db = db.Where("kind IN ?", q.Kinds)
		}
		return db
	}
	after := q.After
	switch {
	case after > 0 && after < pruned:
		page.Gap = &director.StreamGap{After: after, Through: pruned}
		after = pruned
	case after > newest:
		page.Gap = &director.StreamGap{After: after, Through: newest}
		after = newest
	case after == 0 && q.Tail > 0:
		var before []int64
		if err := fit().Order("id DESC").Offset(q.Tail).Limit(1).Pluck("id", &before).Error; err != nil {
			return page, err
		}
		if len(before) > 0 {
			after = before[0]
		}
	}
	var rows []streamRow
	if err := fit().Where("id > ?", after).Order("id").Limit(q.Limit).Find(&rows).Error; err != nil {
		return page, err
	}
	page.Events = make([]director.StreamEvent, len(rows))
	for i, r := range rows {
		page.Events[i] = r.toDomain()
	}
	page.Last = max(after, newest)
	if len(rows) > 0 && len(rows) == q.Limit {
		page.Last = rows[len(rows)-1].ID
	}
	return page, nil
}

// ends returns the greatest id that was pruned and the greatest that there was.
func ends(tx *gorm.DB) (pruned, newest int64, err error) {
	var text string
	err = errors.Join(
		tx.Raw("SELECT value FROM meta WHERE name = ?", metaPruned).Scan(&text).Error,
		tx.Raw("SELECT COALESCE(MAX(id), 0) FROM stream").Scan(&newest).Error,
	)
	if err != nil || text == "" {
		return 0, newest, err
	}
	pruned, err = strconv.ParseInt(text, 10, 64)
	return pruned, max(newest, pruned), err
}

// pruneBatch bounds how long writers wait for the pruning of the stream.
const pruneBatch = 5000

// PruneStream removes what came before the time from the beginning of the stream, and returns how much that was.
// Readers who ask for it later are told of the gap.
func (s *trailStore) PruneStream(ctx context.Context, before time.Time) (removed int64, err error) {
	var first, end int64
	err = errors.Join(
		s.read.WithContext(ctx).Raw("SELECT COALESCE(MIN(id), 0) FROM stream").Scan(&first).Error,
		s.read.WithContext(ctx).Raw(
			"SELECT COALESCE((SELECT MIN(id) FROM stream WHERE at >= ?), (SELECT MAX(id) + 1 FROM stream), 0)",
			micros(before),
		).Scan(&end).Error,
	)
	for from := first; err == nil && from < end; from += pruneBatch {
		upto := min(from+pruneBatch, end)
		err = s.write.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
			res := tx.Exec("DELETE FROM stream WHERE id < ?", upto)
			if res.Error != nil || res.RowsAffected == 0 {
				return res.Error
			}
			removed += res.RowsAffected
			return tx.Exec(`INSERT INTO meta (name, value) VALUES (?, ?)
				ON CONFLICT (name) DO UPDATE SET value = excluded.value
				WHERE CAST(meta.value AS BIGINT) < CAST(excluded.value AS BIGINT)`, metaPruned,
				strconv.FormatInt(upto-1, 10)).Error
		})
	}
	return removed, dbError("store.prune", "the stream", err)
}
