package store

import (
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"

	"gorm.io/gorm"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
)

// order is a column that a list can be sorted by.
type order struct {
	column string
	number bool // its values are numbers; otherwise they are texts
}

// page narrows q to a part of a list that is sorted by the column and, among equals, by name.
func page(q *gorm.DB, p director.Page, by order, name string) (*gorm.DB, error) {
	way, sign := "", ">"
	if p.Desc {
		way, sign = " DESC", "<"
	}
	if by.column == name {
		q = q.Order(name + way)
	} else {
		q = q.Order(by.column + way + ", " + name)
	}
	if p.Limit > 0 {
		q = q.Limit(p.Limit + 1) // one more tells whether there is more
	}
	if p.After == nil {
		return q, nil
	}
	if by.column == name {
		return q.Where(name+" "+sign+" ?", p.After.Name), nil
	}
	var value any = p.After.Value
	if by.number {
		n, err := strconv.ParseInt(p.After.Value, 10, 64)
		if err != nil {
			return nil, director.Errorf(director.KindInvalid, "store.page", "the place in the list cannot be read").
				WithHint("start the list again, without continue")
		}
		value = n
	}
	return q.Where(
		"("+by.column+" "+sign+" ? OR ("+by.column+" = ? AND "+name+" > ?))", value, value, p.After.Name,
	), nil
}

func sortBy(orders map[string]order, name, list string) (order, error) {
	o, ok := orders[name]
	if !ok {
		return o, director.Errorf(director.KindInvalid, "store.page", "%s cannot be sorted by %q", list, name)
	}
	return o, nil
}

// prefixed keeps the rows whose column begins with the text. LIKE would ask for escapes, and ignores case in one
// database and not in the other.
func prefixed(q *gorm.DB, column, text string) *gorm.DB {
	if text == "" {
		return q
	}
	return q.Where("substr("+column+", 1, ?) = ?", len([]rune(text)), text)
}

// jsonText is a text, number or object out of a column that holds JSON, as text; NULL if it is not there.
func (s *database) jsonText(column string, path ...string) string {
	if s.read.Name() == "postgres" {
		return fmt.Sprintf("(%s::json #>> '{%s}')", column, strings.Join(path, ","))
	}
	return fmt.Sprintf("CAST(json_extract(%s, '$.%s') AS TEXT)", column, strings.Join(path, "."))
}

// PlanItem is a plan as lists show it: without its steps, which can be thousands.
type PlanItem struct {
	Plan        plan.Plan  // of the content only Operation, Cluster, Summary and Estimate are set
	State       plan.State // without steps
	Done, Total int        // steps
}

// PlanQuery narrows PlanPage. What is empty does not narrow.
type PlanQuery struct {
	Cluster    string
	IDPrefix   string
	Statuses   []plan.Status
	Operations []plan.Operation
	Visible    *director.Visible // nil for all
}

var planOrders = map[string]order{
	"":            {"created_at", true},
	"created_at":  {"created_at", true},
	"started_at":  {"started_at", true},
	"finished_at": {"finished_at", true},
	"cluster":     {"cluster", false},
	"status":      {"phase", false},
}

// PlanPage lists plans without their steps, in the page's order. next is nil at the end of the list.
func (s *planStore) PlanPage(
	ctx context.Context, f PlanQuery, p director.Page,
) (items []PlanItem, next *director.Place, err error) {
	q, by, err := narrowPlans(s.read.WithContext(ctx).Model(&planRow{}), "id", f, p)
	if err != nil {
		return nil, nil, err
	}
	var rows []planRow
	if err := q.Find(&rows).Error; err != nil {
		return nil, nil, dbError("store.plans", "plans", err)
	}
	if p.Limit > 0 && len(rows) > p.Limit {
		rows = rows[:p.Limit]
		next = placeOf(rows[len(rows)-1].toItem(), by)
	}
	items, err = s.planItems(ctx, rows)
	return items, next, err
}

// narrowPlans keeps what the query asks for, a page of it, of a table of plans whose ids are in the column.
func narrowPlans(q *gorm.DB, id string, f PlanQuery, p director.Page) (*gorm.DB, order, error) {
	by, err := sortBy(planOrders, p.Sort, "plans")
	if err != nil {
		return nil, by, err
	}
	table := q.Statement.Model.(interface{ TableName() string }).TableName()
	q = seen(prefixed(q, id, f.IDPrefix), f.Visible, table+".cluster", table+".created_at", table+".project")
	if f.Cluster != "" {
		q = q.Where("cluster = ?", f.Cluster)
	}
	if len(f.Statuses) > 0 {
		q = q.Where("phase IN ?", f.Statuses)
	}
	if len(f.Operations) > 0 {
		q = q.Where("operation IN ?", f.Operations)
	}
	q, err = page(q, p, by, id)
	return q, by, err
}

// placeOf is where the list continues after the plan.
func placeOf(last PlanItem, by order) *director.Place {
	number := func(t time.Time) string { return strconv.FormatInt(micros(t), 10) }
	return &director.Place{Name: last.Plan.ID, Value: map[string]string{
		"created_at": number(last.Plan.CreatedAt), "started_at": number(last.State.StartedAt),
		"finished_at": number(last.State.FinishedAt),
		"cluster":     last.Plan.Cluster, "phase": string(last.State.Status),
	}[by.column]}
}

// countSteps counts the steps of plans; those that undo others, and have nothing to undo, do not count.
const countSteps = "SELECT COUNT(*) AS total, COALESCE(SUM(CASE WHEN status = 'done' THEN 1 ELSE 0 END), 0) AS done " +
	"FROM plan_steps WHERE NOT (status = ? AND step_id LIKE ?) AND"

func (s *planStore) planItems(ctx context.Context, rows []planRow) ([]PlanItem, error) {
	ids := make([]string, len(rows))
	for i, r := range rows {
		ids[i] = r.ID
	}
	var counts []struct {
		PlanID      string
		Done, Total int
	}
	err := s.read.WithContext(ctx).
		Raw("SELECT plan_id, COUNT(*) AS total, SUM(CASE WHEN status = 'done' THEN 1 ELSE 0 END) AS done "+
			"FROM plan_steps WHERE plan_id IN ? AND NOT (status = ? AND step_id LIKE ?) GROUP BY plan_id", ids,
			string(plan.Pending), plan.UndoPattern).Scan(
		&counts,
	).Error
	if err != nil {
		return nil, dbError("store.plans", "steps", err)
	}
	of := make(map[string][2]int, len(counts))
	for _, c := range counts {
		of[c.PlanID] = [2]int{c.Done, c.Total}
	}
	items := make([]PlanItem, len(rows))
	for i, r := range rows {
		items[i] = r.toItem()
		items[i].Done, items[i].Total = of[r.ID][0], of[r.ID][1]
	}
	return items, nil
}

func (r planRow) toItem() PlanItem {
	item := PlanItem{
		Plan:  plan.Plan{ID: r.ID, CreatedAt: instant(r.CreatedAt), CreatedBy: r.CreatedBy, Hash: r.Hash},
		State: r.toState(nil),
	}
	item.Plan.Operation, item.Plan.Cluster = plan.Operation(r.Operation), r.Cluster
	item.Plan.Summary, item.Plan.Estimate = r.Summary, time.Duration(r.Estimate)
	return item
}

var documentOrders = map[string]order{
	"":           {"name", false},
	"name":       {"name", false},
	"created_at": {"created_at", true},
	"updated_at": {"updated_at", true},
}

// DocumentPage lists documents of a kind whose name begins with the prefix. A visible that is not nil narrows clusters
// and projects, and leaves nothing of other kinds but releases. next is nil at the end of the list.
func (s *documentStore) DocumentPage(
	ctx context.Context, kind model.Kind, prefix string, visible *director.Visible, p director.Page,
) (docs []model.Stored, next *director.Place, err error) {
	by, err := sortBy(documentOrders, p.Sort, "documents")
	if err != nil {
		return nil, nil, err
	}
	all := s.read.WithContext(ctx).Where("kind = ?", kind)
	q, err := page(prefixed(seenDocuments(all, visible, kind), "name", prefix), p, by, "name")
	if err != nil {
		return nil, nil, err
	}
	var rows []documentRow
	if err := q.Find(&rows).Error; err != nil {
		return nil, nil, dbError("store.documents", "documents", err)
	}
	if p.Limit > 0 && len(rows) > p.Limit {
		rows = rows[:p.Limit]
		next = rows[len(rows)-1].place(by.column)
	}
	docs = make([]model.Stored, len(rows))
	for i, r := range rows {
		if docs[i], err = r.toDomain(); err != nil {
			return nil, nil, err
		}
	}
	return docs, next, nil
}

// ClusterItem is what lists show of a cluster: reading the whole of its document and plans takes too long for a fleet.
type ClusterItem struct {
	UID, Name, Release string
	Version            string // of Kubernetes that is installed; empty for none, or if its release is gone
	Created            time.Time
	Project            string
	Generation         int64
	Labels             map[string]string
	Installed          bool
	Endpoint           string // empty unless it is installed
	Nodes              int    // live machines
	Plan               string // id of the newest plan of a cluster of that name, or empty
	Operation          plan.Operation
	Status             plan.Status
}

// Place is the place after the cluster in a list sorted by name.
func (c ClusterItem) Place() *director.Place { return &director.Place{Name: c.Name, Value: c.Name} }

// ClusterPage lists the clusters whose name begins with the prefix, by name. next is nil at the end of the list.
func (s *machineStore) ClusterPage(
	ctx context.Context, prefix string, visible *director.Visible, p director.Page,
) (items []ClusterItem, next *director.Place, err error) {
	all := s.clusters(ctx)
	if visible != nil {
		all = all.Where("(d.name IN ? OR d.project IN ? AND d.project <> '')", visible.Clusters, visible.Projects)
	}
	q, err := page(prefixed(all, "d.name", prefix), p, order{"d.name", false}, "d.name")
	if err != nil {
		return nil, nil, err
	}
	if items, err = readClusters(q); err != nil {
		return nil, nil, err
	}
	if p.Limit > 0 && len(items) > p.Limit {
		items = items[:p.Limit]
		next = items[len(items)-1].Place()
	}
	return items, next, nil
}

// Cluster returns the cluster of that name, or not_found.
func (s *machineStore) Cluster(ctx context.Context, name string) (ClusterItem, error) {
	items, err := readClusters(s.clusters(ctx).Where("d.name = ?", name))
	if err == nil && len(items) == 0 {
		err = dbError("store.cluster", "Cluster/"+name, gorm.ErrRecordNotFound)
	}
	if err != nil {
		return ClusterItem{}, err
	}
	return items[0], nil
}

// clusters asks for everything that a list shows in one go: of a fleet's list, most of the time went into questions of
// their own and into rows by reflection.
func (s *machineStore) clusters(ctx context.Context) *gorm.DB {
	return s.read.WithContext(ctx).Table("documents AS d").
		Select("d.uid, d.name, d.generation, COALESCE("+s.jsonText("d.body", "spec", "release")+", ''), COALESCE("+
			s.jsonText("d.body", "metadata", "labels")+", ''), "+
			"d.project, c.uid IS NOT NULL, COALESCE(c.endpoint, ''), COALESCE(p.id, ''), COALESCE(p.operation, ''), "+
			"COALESCE(p.phase, ''), d.created_at, COALESCE("+s.jsonText("r.body", "spec", "kubernetes")+", ''), "+
			"(SELECT COUNT(*) FROM machines AS m WHERE m.cluster_uid = d.uid AND m.deleted_at = 0)").
		Joins("LEFT JOIN clusters AS c ON c.uid = d.uid").
		Joins(
			"LEFT JOIN documents AS r ON r.kind = ? AND r.name = "+s.jsonText("c.installed_body", "spec", "release"),
			model.KindRelease,
		).
		Joins(
			"LEFT JOIN plans AS p ON p.id = (SELECT q.id FROM plans AS q WHERE q.cluster = d.name ORDER BY "+
				"q.created_at DESC, q.id LIMIT 1)",
		).
		Where("d.kind = ?", model.KindCluster)
}

func readClusters(q *gorm.DB) ([]ClusterItem, error) {
	rows, err := q.Rows()
	if err != nil {
		return nil, dbError("store.clusters", "clusters", err)
	}
	defer func() { _ = rows.Close() }()
	var items []ClusterItem
	for rows.Next() {
		var c ClusterItem
		var labels string
		var created int64
		err := rows.Scan(
			&c.UID, &c.Name, &c.Generation, &c.Release, &labels, &c.Project, &c.Installed, &c.Endpoint, &c.Plan,
			&c.Operation, &c.Status, &created, &c.Version, &c.Nodes,
		)
		c.Created = instant(created)
		if err == nil && labels != "" {
			err = json.Unmarshal([]byte(labels), &c.Labels)
		}
		if err != nil {
			return nil, dbError("store.clusters", "clusters", err)
		}
		items = append(items, c)
	}
	return items, dbError("store.clusters", "clusters", rows.Err())
}

func (r documentRow) place(column string) *director.Place {
	return &director.Place{Name: r.Name, Value: map[string]string{
		"name": r.Name, "created_at": strconv.FormatInt(r.CreatedAt, 10),
		"updated_at": strconv.FormatInt(r.UpdatedAt, 10),
	}[column]}
}

// DocumentPlace is the place after a document in a list sorted by the named order.
func DocumentPlace(d model.Stored, sort string) *director.Place {
	r := documentRow{Name: d.Metadata.Name, CreatedAt: micros(d.Created), UpdatedAt: micros(d.Updated)}
	return r.place(documentOrders[sort].column)
}

// MachinesOf lists the live machines of the clusters with these uids, by uid.
func (s *machineStore) MachinesOf(ctx context.Context, uids []string) (map[string][]director.Machine, error) {
	var rows []machineRow
	err := s.read.WithContext(ctx).Where("cluster_uid IN ? AND deleted_at = 0", uids).Order(
		"cluster, role, name, created_at",
	).Find(&rows).Error
	if err != nil {
		return nil, dbError("store.machines", "machines", err)
	}
	machines := make([]director.Machine, len(rows))
	for i, r := range rows {
		machines[i] = r.toDomain()
	}
	if err := withNICs(s.read.WithContext(ctx), machines); err != nil {
		return nil, dbError("store.machines", "machines", err)
	}
	out := make(map[string][]director.Machine, len(uids))
	for _, m := range machines {
		out[m.ClusterUID] = append(out[m.ClusterUID], m)
	}
	return out, nil
}

// EventQuery narrows EventPage. What is empty does not narrow.
type EventQuery struct {
	After int64
	Kinds []plan.EventKind
	Step  string
	Limit int
}

// EventPage returns the events of a plan that the query asks for, in order, and the number up to which the journal was
// looked through.
func (s *planStore) EventPage(
	ctx context.Context, id string, f EventQuery,
) (events []plan.Event, last int64, err error) {
	// Taken before the events: what comes meanwhile is left for the next time.
	if err := s.read.WithContext(ctx).Raw("SELECT seq FROM plans WHERE id = ?", id).Row().Scan(&last); err != nil {
		if isNoRows(err) {
			err = gorm.ErrRecordNotFound
		}
		return nil, 0, dbError("store.events", "plan "+id, err)
	}
	q := s.read.WithContext(ctx).Where("plan_id = ? AND seq > ? AND seq <= ?", id, f.After, last).Order("seq").Limit(
		f.Limit,
	)
	if len(f.Kinds) > 0 {
		q = q.Where(s.jsonText("body", "kind")+" IN ?", f.Kinds)
	}
	if f.Step != "" {
		q = q.Where(s.jsonText("body", "step")+" = ?", f.Step)
	}
	var rows []eventRow
	if err := q.Find(&rows).Error; err != nil {
		return nil, 0, dbError("store.events", "plan "+id, err)
	}
	if events, err = eventsOf(id, rows); err == nil && len(events) == f.Limit {
		last = events[len(events)-1].Seq
	}
	return events, max(last, f.After), err
}
