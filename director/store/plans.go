package store

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/chain"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
)

type planRow struct {
	ID, Operation, Cluster, Hash string
	CreatedAt                    int64 `gorm:"autoCreateTime:false"`
	CreatedBy                    string
	Status                       string `gorm:"column:phase"`
	StartedAt, FinishedAt        int64
	Message, Hint                string
	Seq                          int64
	Since                        int64
	ApprovedBy                   string
	Summary                      string
	Estimate                     int64
	Indexed                      int    // 1 once its machines are in plan_machines
	Project                      string // of the cluster when the plan was made
}

func (planRow) TableName() string { return "plans" }

type contentRow struct{ PlanID, Content string }

func (contentRow) TableName() string { return "plan_contents" }

type stepRow struct {
	PlanID, StepID                   string
	Ord                              int
	Status                           string
	Attempt, Failures, Interruptions int
	Deadline                         int64
	StartedAt, FinishedAt, NotBefore int64
	Since                            int64
	Message, Hint                    string
	LeaseOwner                       string
	LeaseUntil, StopAsked            int64
}

func (stepRow) TableName() string { return "plan_steps" }

type eventRow struct {
	PlanID string
	Seq    int64
	Body   string
}

func (eventRow) TableName() string { return "events" }

func (r planRow) toState(steps []plan.StepState) plan.State {
	return plan.State{
		Status: plan.Status(r.Status), StartedAt: instant(r.StartedAt), FinishedAt: instant(r.FinishedAt),
		Message: r.Message, Hint: r.Hint, Seq: r.Seq, Since: instant(r.Since), ApprovedBy: r.ApprovedBy, Steps: steps,
	}
}

func (r stepRow) toDomain() plan.StepState {
	return plan.StepState{
		ID: r.StepID, Status: plan.StepStatus(
			r.Status,
		), Attempt: r.Attempt, Failures: r.Failures, Interruptions: r.Interruptions, Deadline: instant(r.Deadline),
		StartedAt: instant(r.StartedAt), FinishedAt: instant(r.FinishedAt), NotBefore: instant(r.NotBefore),
		Since:   instant(r.Since),
		Message: r.Message, Hint: r.Hint,
	}
}

// loadPlan reads the plan's row through locked, and what of the rest is not in the cache through db. Both see committed
// data alone if committed says so; only that goes into the cache, or comes from it.
func (s *planStore) loadPlan(locked, db *gorm.DB, id string, committed bool) (plan.Plan, plan.State, error) {
	fail := func(err error) (plan.Plan, plan.State, error) {
		return plan.Plan{}, plan.State{}, dbError("store.plan", "plan "+id, err)
	}
	var row planRow
	if err := locked.Where("id = ?", id).Take(&row).Error; err != nil {
		return plan.Plan{}, plan.State{}, noPlan(db, id, err)
	}
	cached, err := s.contentOf(db, row)
	if err != nil {
		return fail(err)
	}
	steps, err := loadSteps(db, cached, row.Seq, committed)
	if err != nil {
		return fail(err)
	}
	p := plan.Plan{
		ID: row.ID, CreatedAt: instant(row.CreatedAt), CreatedBy: row.CreatedBy, Hash: row.Hash, Content: cached.lend(),
	}
	return p, row.toState(steps), nil
}

// contentOf returns the content of the plan, out of the cache if it is there.
func (s *planStore) contentOf(db *gorm.DB, row planRow) (*cachedPlan, error) {
	if cached := s.plans.get(row.ID, row.Hash); cached != nil {
		return cached, nil
	}
	var text contentRow
	if err := db.Where("plan_id = ?", row.ID).Take(&text).Error; err != nil {
		return nil, dbError("store.plan", "plan "+row.ID, err)
	}
	cached, err := s.plans.put(row.ID, row.Hash, text.Content)
	if err != nil {
		return nil, &director.Error{
			Kind: director.KindInternal, Op: "store.plan", Msg: "the stored plan " + row.ID + " cannot be read",
			Err: err,
		}
	}
	return cached, nil
}

// mostMissed is how many events are read to bring steps up to date; beyond it the steps themselves are less to read.
const mostMissed = 100

// loadSteps returns the steps as after the event seq.
func loadSteps(db *gorm.DB, cached *cachedPlan, seq int64, committed bool) ([]plan.StepState, error) {
	if committed {
		steps, at := cached.known()
		if steps != nil && at == seq {
			return steps, nil
		}
		if steps != nil && at < seq && seq-at <= mostMissed {
			caught, err := catchUp(db, cached.id, steps, at, seq)
			if err != nil {
				return nil, err
			}
			if caught {
				cached.keep(steps, seq)
				return steps, nil
			}
		}
	}
	var rows []stepRow
	if err := db.Where("plan_id = ?", cached.id).Order("ord").Find(&rows).Error; err != nil {
		return nil, err
	}
	steps := make([]plan.StepState, len(rows))
	for i, r := range rows {
		steps[i] = r.toDomain()
	}
	if committed {
		cached.keep(steps, seq)
	}
	return steps, nil
}

// catchUp moves the steps on by the events in (at, seq], or returns false if the journal does not have them all any
// more.
func catchUp(db *gorm.DB, id string, steps []plan.StepState, at, seq int64) (bool, error) {
	var rows []eventRow
	if err := db.Where("plan_id = ? AND seq > ? AND seq <= ?", id, at, seq).Order("seq").Find(&rows).Error; err != nil {
		return false, err
	}
	events, err := eventsOf(id, rows)
	if err != nil || int64(len(events)) != seq-at {
		return false, err
	}
	for _, e := range events {
		if err := moveSteps(steps, e); err != nil {
			return false, nil //nolint:nilerr // the rows are the truth then
		}
	}
	return true, nil
}

// Plan returns the plan with its state, or not_found. What the elements of the plan's lists hold is shared, and must
// not be written to.
func (s *planStore) Plan(ctx context.Context, id string) (p plan.Plan, st plan.State, err error) {
	err = s.read.WithContext(ctx).Transaction(func(tx *gorm.DB) error { // one snapshot for all tables
		p, st, err = s.loadPlan(tx, tx, id, true)
		return err
	}, s.snapshot())
	return p, st, dbError("store.plan", "plan "+id, err)
}

// Progress returns the status of the plan and the number of its last event, or not_found.
func (s *planStore) Progress(ctx context.Context, id string) (plan.Status, int64, error) {
	var row planRow
	db := s.read.WithContext(ctx)
	if err := db.Select("phase", "seq").Where("id = ?", id).Take(&row).Error; err != nil {
		return "", 0, noPlan(db, id, err)
	}
	return plan.Status(row.Status), row.Seq, nil
}

// StepAttempt returns the number of the step's current or last attempt, or not_found.
func (s *planStore) StepAttempt(ctx context.Context, id, step string) (int, error) {
	var row stepRow
	err := s.read.WithContext(ctx).Select("attempt").Where("plan_id = ? AND step_id = ?", id, step).Take(&row).Error
	return row.Attempt, dbError("store.plan", "step "+step+" of plan "+id, err)
}

// PlanFilter narrows Plans.
type PlanFilter struct {
	Cluster  string        // empty for all
	Statuses []plan.Status // empty for all
	Of       Lane          // empty for all
	Limit    int           // 0 for all
}

// Lane says which plans of a cluster hold up one another: of a lane, one is active at most, and it makes those before
// it out of date.
type Lane string

// The lanes.
const (
	LaneNodes  Lane = "nodes"  // plans that work on the cluster
	LaneDrills Lane = "drills" // restore drills, which touch nothing of it
)

// LaneOf returns the lane of plans of the operation.
func LaneOf(op plan.Operation) Lane {
	if op == plan.ClusterDrill {
		return LaneDrills
	}
	return LaneNodes
}

// inLane narrows a query for plans; an empty lane is all of them.
func inLane(q *gorm.DB, lane Lane) *gorm.DB {
	switch lane {
	case LaneNodes:
		return q.Where("operation <> ?", string(plan.ClusterDrill))
	case LaneDrills:
		return q.Where("operation = ?", string(plan.ClusterDrill))
	}
	return q
}

// Plans returns the ids of plans, the newest first.
func (s *planStore) Plans(ctx context.Context, f PlanFilter) ([]string, error) {
	q := s.read.WithContext(ctx).Model(&planRow{}).Order("created_at DESC, id")
	if f.Cluster != "" {
		q = q.Where("cluster = ?", f.Cluster)
	}
	if len(f.Statuses) > 0 {
		q = q.Where("phase IN ?", f.Statuses)
	}
	q = inLane(q, f.Of)
	if f.Limit > 0 {
		q = q.Limit(f.Limit)
	}
	var ids []string
	return ids, dbError("store.plans", "plans", q.Pluck("id", &ids).Error)
}

// Holder returns the id of the plan that holds the cluster, and "" if none does. A drill does not hold it.
func (s *planStore) Holder(ctx context.Context, cluster string) (string, error) {
	return s.active(ctx, cluster, LaneNodes)
}

// EndedPlans returns when the last plan ended of each cluster, or of those named, by name. Drills and backups, which
// leave the nodes as they are, do not count, nor does a plan that was never started.
func (s *planStore) EndedPlans(ctx context.Context, clusters ...string) (map[string]time.Time, error) {
	var rows []planRow
	q := s.read.WithContext(ctx).Model(&planRow{}).Select("cluster, MAX(finished_at) AS finished_at").
		Where("started_at > 0 AND finished_at > 0 AND operation NOT IN ?", []string{
			string(plan.ClusterBackup), string(plan.ClusterDrill),
		})
	if len(clusters) > 0 {
		q = q.Where("cluster IN ?", clusters)
	}
	if err := q.Group("cluster").Find(&rows).Error; err != nil {
		return nil, dbError("store.plans", "plans", err)
	}
	ended := make(map[string]time.Time, len(rows))
	for _, r := range rows {
		ended[r.Cluster] = instant(r.FinishedAt)
	}
	return ended, nil
}

// Drilling returns the id of the restore drill of the cluster that is active, and "" if none is.
func (s *planStore) Drilling(ctx context.Context, cluster string) (string, error) {
	return s.active(ctx, cluster, LaneDrills)
}

func (s *planStore) active(ctx context.Context, cluster string, lane Lane) (string, error) {
	ids, err := s.Plans(ctx, PlanFilter{Cluster: cluster, Statuses: plan.ActiveStatuses(), Of: lane})
	if err != nil || len(ids) == 0 {
		return "", err
	}
	return ids[0], nil
}

// Events returns the events of a plan with Seq > after, at most limit, in order.
func (s *planStore) Events(ctx context.Context, id string, after int64, limit int) ([]plan.Event, error) {
	var rows []eventRow
	err := s.read.WithContext(ctx).Where("plan_id = ? AND seq > ?", id, after).Order("seq").Limit(limit).Find(
		&rows,
	).Error
	if err != nil {
		return nil, dbError("store.events", "plan "+id, err)
	}
	return eventsOf(id, rows)
}

func eventsOf(id string, rows []eventRow) ([]plan.Event, error) {
	events := make([]plan.Event, len(rows))
	for i, r := range rows {
		if err := json.Unmarshal([]byte(r.Body), &events[i]); err != nil {
			return nil, &director.Error{
				Kind: director.KindInternal, Op: "store.events", Msg: "the journal of plan " + id + " cannot be read",
				Err: err,
			}
		}
	}
	return events, nil
}

// Tx is an open writing transaction. It is not safe for concurrent use, and the Store's own methods must not be called
// while it is open: SQLite has one writing connection, and PostgreSQL's are not endless.
type Tx struct {
	*txn
	planTx
	documentTx
	machineTx
	userTx
	campaignTx
	hookTx
	notificationTx
}

func newTx(t *txn) *Tx {
	return &Tx{
		t, planTx{t}, documentTx{t}, machineTx{t}, userTx{t}, campaignTx{t}, hookTx{t}, notificationTx{t},
	}
}

// planTx writes plans, their events and leases.
type planTx struct{ *txn }

// documentTx writes documents and what came of them.
type documentTx struct{ *txn }

// machineTx writes the ledger.
type machineTx struct{ *txn }

// userTx changes users.
type userTx struct{ *txn }

// txn is what every part of a transaction works on.
type txn struct {
	db    *gorm.DB
	store *database
	conn  *sql.Conn // PostgreSQL's connection of the transaction; nil on SQLite
	moved bool      // peers may want to read again
	look  bool      // peers must look at their leases

	stream   []streamRow // what goes into the stream when fn is through
	audit    []chain.Entry
	origin   director.Origin // of the request that the transaction serves
	appended []plan.Event
}

var forUpdate = clause.Locking{Strength: clause.LockingStrengthUpdate}

// Update runs fn in one writing transaction and commits if it returns nil. PostgreSQL may end a transaction in favour
// of another one: then fn is called again, and must not count on what it did before.
func (s *database) Update(ctx context.Context, fn func(*Tx) error) error {
	var last *Tx
	announced := false
	whole := func(t *Tx) error {
		last, announced = t, false
		t.origin = director.OriginOf(ctx)
		if err := fn(t); err != nil {
			return err
		}
		announced = len(t.stream) > 0
		if err := t.flushStream(); err != nil {
			return err
		}
		return t.flushAudit()
	}
	err := s.retried(ctx, func() error {
		if s.pool != nil {
			return s.updatePostgres(ctx, whole)
		}
		return s.write.WithContext(ctx).Transaction(func(db *gorm.DB) error {
			return whole(newTx(&txn{db: db, store: s}))
		})
	})
	if err == nil && last != nil {
		s.plans.advance(last.appended)
	}
	if err == nil && announced {
		s.news.send()
	}
	return dbError("store.update", "a transaction", err)
}

// SQL returns the transaction for a job queue that works on SQLite.
func (t *txn) SQL() *sql.Tx { return t.db.Statement.ConnPool.(*sql.Tx) }

// Plan returns the plan with its state as the transaction sees them. Until it ends, no other transaction changes the
// plan. What the elements of the plan's lists hold is shared, and must not be written to.
func (t *planTx) Plan(id string) (plan.Plan, plan.State, error) {
	committed := !slices.ContainsFunc(t.appended, func(e plan.Event) bool { return e.Plan == id })
	return (&planStore{t.store}).loadPlan(t.locked(), t.db, id, committed)
}

// AddPlan stores a new plan in its first state, with the machines that it names.
func (t *planTx) AddPlan(p plan.Plan) error {
	state := plan.NewState(&p)
	var projects []string
	err := t.db.Model(&documentRow{}).Where("kind = ? AND name = ?", model.KindCluster, p.Cluster).
		Pluck("project", &projects).Error
	if err != nil {
		return dbError("store.plan", "plan "+p.ID, err)
	}
	err = t.db.Create(&planRow{
		ID: p.ID, Operation: string(p.Operation), Cluster: p.Cluster, Hash: p.Hash, Summary: p.Summary,
		Estimate:  int64(p.Estimate),
		CreatedAt: micros(p.CreatedAt), CreatedBy: p.CreatedBy, Status: string(state.Status), Indexed: 1,
		Project: strings.Join(projects, ""), // at most one
	}).Error
	if err == nil {
		err = t.db.Create(&contentRow{PlanID: p.ID, Content: marshal(p.Content)}).Error
	}
	if err == nil {
		err = t.addPlanMachines(p.ID, &p.Content)
	}
	if err != nil {
		return dbError("store.plan", "plan "+p.ID, err)
	}
	rows := make([]stepRow, len(state.Steps))
	for i, st := range state.Steps {
		rows[i] = stepRow{PlanID: p.ID, StepID: st.ID, Ord: i, Status: string(st.Status)}
	}
	if len(rows) > 0 {
		err = t.db.CreateInBatches(rows, 100).Error
	}
	return dbError("store.plan", "plan "+p.ID, err)
}

// Append gives e its place in the journal of the plan whose state is s, moves s on and stores both. An event that may
// not happen, or the outcome of an attempt that is not the current one, is an error and stores nothing.
func (t *planTx) Append(s *plan.State, e plan.Event) error {
	e.Seq = s.Seq + 1
	e.Message, e.Hint = text(e.Message), text(e.Hint)
	// As exact as the tables are: a state is the fold of the journal.
	e.At, e.NotBefore, e.Deadline = instant(micros(e.At)), instant(micros(e.NotBefore)), instant(micros(e.Deadline))
	t.moved = true
	if err := s.Apply(e); err != nil {
		return err
	}
	t.appended = append(t.appended, e)
	if err := t.db.Create(&eventRow{PlanID: e.Plan, Seq: e.Seq, Body: marshal(e)}).Error; err != nil {
		return dbError("store.append", "event of plan "+e.Plan, err)
	}
	t.announceEvent(e)
	set := map[string]any{"seq": e.Seq}
	if e.Step == "" {
		set = map[string]any{
			"seq": s.Seq, "phase": string(s.Status), "started_at": micros(s.StartedAt),
			"finished_at": micros(s.FinishedAt),
			"message":     s.Message, "hint": s.Hint, "since": micros(s.Since), "approved_by": s.ApprovedBy,
		}
	}
	if err := t.db.Model(&planRow{}).Where("id = ?", e.Plan).Updates(set).Error; err != nil {
		if errors.Is(err, gorm.ErrDuplicatedKey) {
			return director.Errorf(director.KindConflict, "store.append", "another plan holds the cluster")
		}
		return dbError("store.append", "plan "+e.Plan, err)
	}
	if err := t.tellHooks(s, e); err != nil || e.Step == "" {
		return err
	}
	st := s.Step(e.Step)
	row := map[string]any{
		"status": string(st.Status), "attempt": st.Attempt, "failures": st.Failures, "started_at": micros(st.StartedAt),
		"finished_at": micros(st.FinishedAt), "not_before": micros(st.NotBefore), "since": micros(st.Since),
		"message": st.Message, "hint": st.Hint,
		"interruptions": st.Interruptions, "deadline": micros(st.Deadline),
	}
	if !st.Status.Leased() {
		row["lease_owner"], row["lease_until"], row["stop_asked"] = "", 0, 0
	}
	if err := t.db.Model(&stepRow{}).Where("plan_id = ? AND step_id = ?", e.Plan, e.Step).Updates(
		row,
	).Error; err != nil {
		return dbError("store.append", "step "+e.Step, err)
	}
	if e.Kind == plan.Succeeded {
		return t.noteTime(plan.Step{ID: e.Step}.Class(), st.FinishedAt.Sub(st.StartedAt))
	}
	return nil
}

// text makes s what every database takes for text: it may quote the output of a program.
func text(s string) string {
	return strings.ReplaceAll(strings.ToValidUTF8(s, "\uFFFD"), "\x00", "\uFFFD")
}
