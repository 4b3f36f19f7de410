package store

import (
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// hookStore keeps what hooks are told and asked.
type hookStore struct{ *database }

// hookTx changes it.
type hookTx struct{ *txn }

type hookRow struct {
	ID, Hook, PlanID          string
	Seq                       int64
	StepID, Event, State      string
	CreatedAt                 int64 `gorm:"autoCreateTime:false"`
	NextAt, Deadline          int64
	Attempts                  int
	FirstAt                   int64
	HTTPStatus                int `gorm:"column:http_status"`
	Problem, Decision, Reason string
	AnsweredBy                string
	AnsweredAt                int64
	Replayed, Old             int
	LeaseOwner                string
	LeaseUntil                int64
}

func (hookRow) TableName() string { return "hook_deliveries" }

func (r hookRow) toDomain() (director.HookDelivery, error) {
	d := director.HookDelivery{
		ID: r.ID, Hook: r.Hook, Plan: r.PlanID, Seq: r.Seq, Step: r.StepID, State: director.HookState(r.State),
		Created: instant(r.CreatedAt), Next: instant(r.NextAt), Deadline: instant(r.Deadline), Attempts: r.Attempts,
		First: instant(r.FirstAt), Status: r.HTTPStatus, Problem: r.Problem,
		Decision: director.HookDecision(r.Decision), Reason: r.Reason, AnsweredBy: r.AnsweredBy,
		Answered: instant(r.AnsweredAt), Replayed: r.Replayed,
	}
	if err := json.Unmarshal([]byte(r.Event), &d.Event); err != nil {
		return d, director.Errorf(
			director.KindInternal, opHooks, "the row of delivery %s cannot be read: %w", r.ID, err,
		)
	}
	return d, nil
}

const opHooks = "store.hooks"

var (
	openHooks  = []director.HookState{director.HookDue, director.HookAccepted}
	finalHooks = []director.HookState{
		director.HookDelivered, director.HookAnswered, director.HookExpired, director.HookFailed,
		director.HookWithdrawn,
	}
)

// tellHooks writes what hooks are told about e into the outbox, in e's own transaction, and withdraws what is not asked
// any more. s is the state after e.
func (t *planTx) tellHooks(s *plan.State, e plan.Event) error {
	if e.Step != "" {
		if !step.IsHook(e.Step) {
			return nil
		}
		return t.tellOfStep(s, e)
	}
	told := false
	for _, st := range s.Steps {
		told = told || step.IsHook(st.ID)
	}
	if !told {
		return nil
	}
	switch e.Kind {
	case plan.PlanCancelled, plan.PlanFailed, plan.PlanUndo, plan.PlanDiscarded:
		q := t.db.Where("plan_id = ? AND deadline > 0", e.Plan)
		if err := t.withdraw(q, false); err != nil {
			return err
		}
	}
	switch e.Kind {
	case plan.PlanCancelled, plan.PlanFailed, plan.PlanUndone:
		return t.tellOfEnd(s, e)
	}
	return nil
}

func (t *planTx) tellOfStep(s *plan.State, e plan.Event) error {
	own := t.db.Where("plan_id = ? AND step_id = ?", e.Plan, e.Step)
	switch e.Kind {
	case plan.NotReady, plan.Succeeded:
		p, err := t.hookParams(e.Plan, e.Step)
		if err != nil || p.Blocks() != (e.Kind == plan.NotReady) {
			return err
		}
		if p.Blocks() {
			var open int64
			err := own.Session(&gorm.Session{}).Model(&hookRow{}).
				Where("old = 0 AND state <> ?", director.HookWithdrawn).Count(&open).Error
			if err != nil || open > 0 {
				return dbError(opHooks, "deliveries", err)
			}
		}
		return t.addDelivery(s, e, e.Step, p)
	case plan.Retried:
		return t.withdraw(own, true)
	case plan.SkipAsked, plan.Aborted, plan.UndoAsked:
		return t.withdraw(own, false)
	}
	return nil
}

// tellOfEnd tells the hooks that would have been told behind all steps that it does not come to that now.
func (t *planTx) tellOfEnd(s *plan.State, e plan.Event) error {
	for _, st := range s.Steps {
		if !step.IsHook(st.ID) || st.Status != plan.Pending {
			continue
		}
		p, err := t.hookParams(e.Plan, st.ID)
		if err != nil {
			return err
		}
		if p.Phase != "after."+model.MomentPlan || p.Blocks() {
			continue
		}
		if err := t.addDelivery(s, e, st.ID, p); err != nil {
			return err
		}
	}
	return nil
}

// withdraw ends the open deliveries of q; old ones do not count for their steps any more.
func (t *planTx) withdraw(q *gorm.DB, old bool) error {
	err := q.Session(&gorm.Session{}).Model(&hookRow{}).Where("state IN ? AND deadline > 0", openHooks).
		Update("state", director.HookWithdrawn).Error
	if err == nil && old {
		err = q.Session(&gorm.Session{}).Model(&hookRow{}).Update("old", 1).Error
	}
	return dbError(opHooks, "deliveries", err)
}

func (t *planTx) hookParams(planID, id string) (step.HookParams, error) {
	var p step.HookParams
	content, _, err := t.contentOfPlan(planID)
	if err != nil {
		return p, err
	}
	for i := range content.Steps {
		if content.Steps[i].ID == id {
			err = json.Unmarshal(content.Steps[i].Params, &p)
		}
	}
	if err != nil {
		err = director.Errorf(director.KindInternal, opHooks, "the parameters of step %s cannot be read: %w", id, err)
	}
	return p, err
}

func (t *planTx) contentOfPlan(id string) (plan.Content, planRow, error) {
	var row planRow
	if err := t.db.Where("id = ?", id).Take(&row).Error; err != nil {
		return plan.Content{}, row, dbError(opHooks, "plan "+id, err)
	}
	cached, err := (&planStore{t.store}).contentOf(t.db, row)
	if err != nil {
		return plan.Content{}, row, err
	}
	return cached.lend(), row, nil
}

// mostSummary is how much of a plan's summary an event has, so that it stays below the size that others take.
const mostSummary = 2000

func (t *planTx) addDelivery(s *plan.State, e plan.Event, stepID string, p step.HookParams) error {
	content, row, err := t.contentOfPlan(e.Plan)
	if err != nil {
		return err
	}
	event := director.HookEvent{
		Phase: p.Phase, Plan: e.Plan, Hash: row.Hash, Operation: row.Operation, Status: string(s.Status),
		Summary: clip(content.Summary, mostSummary), Step: stepID, Cluster: row.Cluster, Node: p.Node, Role: p.Role,
		Blocks: p.Blocks(),
	}
	out := hookRow{
		ID: hookID(e, stepID), Hook: p.Hook, PlanID: e.Plan, Seq: e.Seq, StepID: stepID,
		State: string(director.HookDue), CreatedAt: micros(e.At), NextAt: micros(e.At),
	}
	if p.Blocks() {
		event.Deadline, out.Deadline = e.NotBefore, micros(e.NotBefore)
	}
	if p.Node != "" {
		var m machineRow // the node's as it is now: a former step may have made another
		res := t.db.Where("cluster_uid = ? AND name = ?", p.Cluster, p.Node).Order("deleted_at, created_at DESC").
			Limit(1).Find(&m)
		if res.Error != nil {
			return dbError(opHooks, "node "+p.Node, res.Error)
		}
		event.Address, event.Provider, event.Host, event.VM = m.Address, m.Provider, m.Host, m.VMID
	}
	out.Event = marshal(event)
	return dbError(opHooks, "delivery "+out.ID, t.db.Create(&out).Error)
}

// hookID returns the id of what the journal's event tells: the same whenever it is sent.
func hookID(e plan.Event, stepID string) string {
	sum := sha256.Sum256([]byte(stepID)) // one event may tell several
	return fmt.Sprintf("%s-%d-%x", e.Plan, e.Seq, sum[:3])
}

// clip returns at most n bytes of s, and no half of a character.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n], "") + "..."
}

// AddDelivery writes a delivery that is of no plan.
func (t *hookTx) AddDelivery(d director.HookDelivery) error {
	row := hookRow{
		ID: d.ID, Hook: d.Hook, Event: marshal(d.Event), State: string(d.State), CreatedAt: micros(d.Created),
		NextAt: micros(d.Next), Deadline: micros(d.Deadline),
	}
	return dbError(opHooks, "delivery "+d.ID, t.db.Create(&row).Error)
}

// Delivery returns one, or not_found. Until the transaction ends, no other one changes it.
func (t *hookTx) Delivery(id string) (director.HookDelivery, error) {
	var row hookRow
	if err := t.locked().Where("id = ?", id).Take(&row).Error; err != nil {
		return director.HookDelivery{}, dbError(opHooks, "delivery "+id, err)
	}
	return row.toDomain()
}

// SetDelivery stores what has become of the delivery, and ends its lease.
func (t *hookTx) SetDelivery(d director.HookDelivery) error {
	return dbError(opHooks, "delivery "+d.ID, t.db.Model(&hookRow{}).Where("id = ?", d.ID).Updates(map[string]any{
		"state": string(d.State), "next_at": micros(d.Next), "attempts": d.Attempts, "first_at": micros(d.First),
		"http_status": d.Status, "problem": text(d.Problem), "decision": string(d.Decision), "reason": text(d.Reason),
		"answered_by": d.AnsweredBy, "answered_at": micros(d.Answered), "replayed": d.Replayed,
		"lease_owner": "", "lease_until": 0,
	}).Error)
}

// Delivery returns one, or not_found.
func (s *hookStore) Delivery(ctx context.Context, id string) (director.HookDelivery, error) {
	var row hookRow
	if err := s.read.WithContext(ctx).Where("id = ?", id).Take(&row).Error; err != nil {
		return director.HookDelivery{}, dbError(opHooks, "delivery "+id, err)
	}
	return row.toDomain()
}

// AskedBy returns the delivery by which the step of the plan asks now, or nil.
func (s *hookStore) AskedBy(ctx context.Context, planID, stepID string) (*director.HookDelivery, error) {
	var rows []hookRow
	err := s.read.WithContext(ctx).Where(
		"plan_id = ? AND step_id = ? AND old = 0 AND state <> ?", planID, stepID, director.HookWithdrawn,
	).Order("seq DESC").Limit(1).Find(&rows).Error
	if err != nil || len(rows) == 0 {
		return nil, dbError(opHooks, "deliveries", err)
	}
	d, err := rows[0].toDomain()
	return &d, err
}

// Deliveries lists them, the newest first.
func (s *hookStore) Deliveries(ctx context.Context, f director.HookQuery) ([]director.HookDelivery, error) {
	q := s.read.WithContext(ctx).Order("created_at DESC, id DESC").Limit(f.Limit)
	if f.Hook != "" {
		q = q.Where("hook = ?", f.Hook)
	}
	if f.Plan != "" {
		q = q.Where("plan_id = ?", f.Plan)
	}
	if len(f.States) > 0 {
		q = q.Where("state IN ?", f.States)
	}
	if f.Waiting {
		q = q.Where("deadline > 0 AND state IN ?", openHooks)
	}
	if v := f.Visible; v != nil {
		q = q.Where("plan_id IN (SELECT id FROM plans WHERE cluster IN ? OR project IN ?)", v.Clusters, v.Projects)
	}
	if f.Before != "" {
		q = q.Where("(created_at, id) < (SELECT created_at, id FROM hook_deliveries WHERE id = ?)", f.Before)
	}
	var rows []hookRow
	if err := q.Find(&rows).Error; err != nil {
		return nil, dbError(opHooks, "deliveries", err)
	}
	out := make([]director.HookDelivery, len(rows))
	for i, r := range rows {
		var err error
		if out[i], err = r.toDomain(); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// TakeDeliveries gives the owner deliveries that are due, until the time, and returns them. One of a plan comes after
// the hook has received all earlier ones of the plan. Hooks that are busy are left out, and so is what room refuses.
func (s *hookStore) TakeDeliveries(
	ctx context.Context, owner string, now, until time.Time, busy []string, room func(hook string) bool,
) ([]director.HookDelivery, error) {
	const most = 100 // in one look; the next one follows at once
	var rows []hookRow
	q := s.read.WithContext(ctx).Table("hook_deliveries AS d").
		Where("d.state = ? AND d.next_at <= ? AND d.lease_until < ?", director.HookDue, micros(now), micros(now)).
		Where(
			"NOT EXISTS (SELECT 1 FROM hook_deliveries AS e WHERE e.plan_id = d.plan_id AND e.plan_id <> '' AND "+
				"e.hook = d.hook AND e.seq < d.seq AND e.state = ? AND e.first_at = 0)", director.HookDue,
		)
	if len(busy) > 0 {
		q = q.Where("d.hook NOT IN ?", busy)
	}
	if err := q.Order("d.next_at, d.seq").Limit(most).Find(&rows).Error; err != nil {
		return nil, dbError(opHooks, "deliveries", err)
	}
	var out []director.HookDelivery
	for _, r := range rows {
		if !room(r.Hook) {
			continue
		}
		res := s.write.WithContext(ctx).Model(&hookRow{}).
			Where("id = ? AND state = ? AND lease_until < ?", r.ID, director.HookDue, micros(now)).
			Updates(map[string]any{"lease_owner": owner, "lease_until": micros(until)})
		if res.Error != nil {
			return out, dbError(opHooks, "delivery "+r.ID, res.Error)
		}
		if res.RowsAffected == 0 {
			continue // another director has it
		}
		d, err := r.toDomain()
		if err != nil {
			return out, err
		}
		out = append(out, d)
	}
	return out, nil
}

// FreeDeliveries ends the leases of owners that begin with the prefix: processes of this director that are gone.
func (s *hookStore) FreeDeliveries(ctx context.Context, prefix string) error {
	return dbError(opHooks, "deliveries", s.write.WithContext(ctx).Model(&hookRow{}).
		Where("lease_owner LIKE ?", prefix+"%").Updates(map[string]any{"lease_owner": "", "lease_until": 0}).Error)
}

// NextDelivery returns when the next delivery is due, and zero if none is.
func (s *hookStore) NextDelivery(ctx context.Context, now time.Time) (time.Time, error) {
	var next int64
	err := s.read.WithContext(ctx).Raw(
		"SELECT COALESCE(MIN(next_at), 0) FROM hook_deliveries WHERE state = ? AND next_at > ?", director.HookDue,
		micros(now),
	).Row().Scan(&next)
	return instant(next), dbError(opHooks, "deliveries", err)
}

// CountDeliveries counts the deliveries by state.
func (s *hookStore) CountDeliveries(ctx context.Context) (map[string]int, error) {
	var rows []struct {
		State string
		N     int
	}
	err := s.read.WithContext(ctx).Raw("SELECT state, COUNT(*) AS n FROM hook_deliveries GROUP BY state").
		Scan(&rows).Error
	out := map[string]int{}
	for _, r := range rows {
		out[r.State] = r.N
	}
	return out, dbError(opHooks, "deliveries", err)
}

// PruneDeliveries removes final deliveries from before the time, and keys of hooks that are gone.
func (s *hookStore) PruneDeliveries(ctx context.Context, before time.Time) (int64, error) {
	res := s.write.WithContext(ctx).Where("state IN ? AND created_at < ?", finalHooks, micros(before)).
		Delete(&hookRow{})
	return res.RowsAffected, dbError(opHooks, "deliveries", res.Error)
}

type hookKeyRow struct {
	ID, Hook, Algorithm, Public string
	CreatedAt, EndsAt           int64 `gorm:"autoCreateTime:false"`
}

func (hookKeyRow) TableName() string { return "hook_keys" }

// HookKeyOwner is for whom the secret halves of hooks' keys are sealed, each under the id of the key.
const HookKeyOwner = "Hook"

// HookKeys returns the keys of the hook with the uid, the newest first.
func (s *hookStore) HookKeys(ctx context.Context, uid string) ([]director.HookKey, error) {
	return hookKeys(s.read.WithContext(ctx), uid)
}

func hookKeys(db *gorm.DB, uid string) ([]director.HookKey, error) {
	var rows []hookKeyRow
	err := db.Where("hook = ?", uid).Order("created_at DESC, id").Find(&rows).Error
	out := make([]director.HookKey, len(rows))
	for i, r := range rows {
		out[i] = director.HookKey{
			ID: r.ID, Hook: r.Hook, Algorithm: r.Algorithm, Public: r.Public, Created: instant(r.CreatedAt),
			Ends: instant(r.EndsAt),
		}
	}
	return out, dbError(opHooks, "keys of hooks", err)
}

// EditHookKeys lets edit say which key comes and until when each other one signs, when it has seen those that there
// are. Edits take turns over all directors. Keys that have ended are removed.
func (s *hookStore) EditHookKeys(
	ctx context.Context, uid string, now time.Time,
	edit func(tx *Tx, have []director.HookKey) (add *director.HookKey, sealed []byte, others time.Time, err error),
) error {
	return s.Update(ctx, func(tx *Tx) error {
		if err := s.exclusive(tx.db, lockHooks); err != nil {
			return dbError(opHooks, "keys of hooks", err)
		}
		have, err := hookKeys(tx.db, uid)
		if err != nil {
			return err
		}
		add, sealed, others, err := edit(tx, have)
		if err != nil || add == nil {
			return err
		}
		for _, k := range have {
			switch {
			case !k.Ends.IsZero() && k.Ends.Before(now):
				err = tx.db.Where("id = ?", k.ID).Delete(&hookKeyRow{}).Error
				if err == nil {
					err = tx.db.Exec("DELETE FROM secrets WHERE owner = ? AND name = ?", HookKeyOwner, k.ID).Error
				}
			case k.Ends.IsZero():
				err = tx.db.Model(&hookKeyRow{}).Where("id = ?", k.ID).Update("ends_at", micros(others)).Error
			}
			if err != nil {
				return dbError(opHooks, "keys of hooks", err)
			}
		}
		row := hookKeyRow{add.ID, add.Hook, add.Algorithm, add.Public, micros(add.Created), 0}
		err = tx.db.Create(&row).Error
		if err == nil {
			err = tx.db.Exec(
				"INSERT INTO secrets (owner, name, sealed) VALUES (?, ?, ?)", HookKeyOwner, add.ID, sealed,
			).Error
		}
		return dbError(opHooks, "keys of hooks", err)
	})
}

// SetGone writes down that the endpoint of the hook's document is gone; generation 0 takes it back.
func (t *hookTx) SetGone(uid string, generation int64, at time.Time) error {
	err := t.db.Exec("DELETE FROM hook_gone WHERE hook = ?", uid).Error
	if err == nil && generation > 0 {
		err = t.db.Exec("INSERT INTO hook_gone (hook, generation, at) VALUES (?, ?, ?)", uid, generation, micros(at)).
			Error
	}
	return dbError(opHooks, "hooks", err)
}

// GoneHooks returns the generations of the documents whose endpoints are gone, by uid.
func (s *hookStore) GoneHooks(ctx context.Context) (map[string]int64, error) {
	var rows []struct {
		Hook       string
		Generation int64
	}
	err := s.read.WithContext(ctx).Raw("SELECT hook, generation FROM hook_gone").Scan(&rows).Error
	out := map[string]int64{}
	for _, r := range rows {
		out[r.Hook] = r.Generation
	}
	return out, dbError(opHooks, "hooks", err)
}
