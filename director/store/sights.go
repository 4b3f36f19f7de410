package store

import (
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"time"

	"gorm.io/gorm"
	"gorm.io/gorm/clause"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
)

type sightRow struct {
	MachineID        string `gorm:"primaryKey"`
	ClusterUID       string
	State            string
	Kubelet, Problem string
	EndsAt           int64
	Body             string
}

func (sightRow) TableName() string { return "node_sights" }

// NodeSight is what was seen of a node last.
type NodeSight struct {
	Machine string // id of the ledger's row
	State   string // empty if the node was never looked at
	Kubelet string
	Problem string
	Ends    time.Time       // the soonest end of a certificate that is relied on; zero if none was seen
	Body    json.RawMessage // the rest
}

func (r sightRow) toDomain() NodeSight {
	return NodeSight{
		Machine: r.MachineID, State: r.State, Kubelet: r.Kubelet, Problem: r.Problem, Ends: instant(r.EndsAt),
		Body: json.RawMessage(r.Body),
	}
}

// Unlooked is a cluster that no director has looked at lately.
type Unlooked struct{ UID, Name string }

// Unlooked lists the clusters that no director has begun to look at since the time, the longest unseen first. It reads
// no document: that of a thousand clusters costs more than the list.
func (s *sightStore) Unlooked(ctx context.Context, since time.Time) ([]Unlooked, error) {
	var rows []Unlooked
	err := s.read.WithContext(ctx).Table("documents AS d").Select("d.uid, d.name").
		Joins("LEFT JOIN cluster_sights AS c ON c.cluster_uid = d.uid").
		Where("d.kind = ? AND COALESCE(c.looked_at, 0) < ?", model.KindCluster, micros(since)).
		Order("COALESCE(c.looked_at, 0), d.name").Find(&rows).Error
	return rows, dbError("store.sights", "nodes", err)
}

// ClaimSights returns which of the clusters the caller is to look at now: no director has begun to since the time.
func (s *sightStore) ClaimSights(
	ctx context.Context, clusterUIDs []string, since, now time.Time,
) (map[string]bool, error) {
	if len(clusterUIDs) == 0 {
		return nil, nil
	}
	args := make([]any, 0, 2*len(clusterUIDs)+1)
	for _, uid := range slices.Sorted(slices.Values(clusterUIDs)) { // so two directors never wait for each other
		args = append(args, uid, micros(now))
	}
	statement := "INSERT INTO cluster_sights (cluster_uid, looked_at, seen_at, unseen) VALUES " +
		strings.TrimSuffix(strings.Repeat("(?, ?, 0, ''), ", len(clusterUIDs)), ", ") +
		" ON CONFLICT (cluster_uid) DO UPDATE SET looked_at = excluded.looked_at " +
		"WHERE cluster_sights.looked_at < ? RETURNING cluster_uid"
	args = append(args, micros(since))
	var mine []string
	err := s.retried(ctx, func() error {
		mine = nil
		return s.write.WithContext(ctx).Raw(statement, args...).Scan(&mine).Error
	})
	out := make(map[string]bool, len(mine))
	for _, uid := range mine {
		out[uid] = true
	}
	return out, dbError("store.sights", "nodes", err)
}

// SeenAgain says that the clusters answered, and that nothing had changed since the look before.
func (s *sightStore) SeenAgain(ctx context.Context, clusterUIDs []string, at time.Time) error {
	err := s.retried(ctx, func() error {
		return s.write.WithContext(ctx).Exec(
			"UPDATE cluster_sights SET seen_at = ? WHERE cluster_uid IN ? AND unseen = '' AND seen_at < ?",
			micros(at), clusterUIDs, micros(at),
		).Error
	})
	return dbError("store.sights", "nodes", err)
}

// Sights returns what was seen last of the nodes of the cluster, by machine, and why the cluster could not be asked.
func (s *sightStore) Sights(
	ctx context.Context, clusterUID string,
) (sights map[string]NodeSight, unseen string, err error) {
	return sightsOf(s.read.WithContext(ctx), clusterUID)
}

// Sights is that of the store.
func (t *machineTx) Sights(clusterUID string) (sights map[string]NodeSight, unseen string, err error) {
	return sightsOf(t.db, clusterUID)
}

func sightsOf(db *gorm.DB, clusterUID string) (sights map[string]NodeSight, unseen string, err error) {
	var rows []sightRow
	if err := db.Where("cluster_uid = ?", clusterUID).Find(&rows).Error; err != nil {
		return nil, "", dbError("store.sights", "nodes", err)
	}
	sights = make(map[string]NodeSight, len(rows))
	for _, r := range rows {
		sights[r.MachineID] = r.toDomain()
	}
	err = db.Raw("SELECT unseen FROM cluster_sights WHERE cluster_uid = ?", clusterUID).Scan(&unseen).Error
	return sights, unseen, dbError("store.sights", "nodes", err)
}

// SaveSights keeps what changed among the sights of the cluster's nodes, drops those of machines that are gone, and
// says when the look was and why the cluster could not be asked.
func (t *machineTx) SaveSights(
	clusterUID string, changed []NodeSight, gone []string, at time.Time, unseen string,
) error {
	rows := make([]sightRow, len(changed))
	for i, n := range changed {
		rows[i] = sightRow{
			n.Machine, clusterUID, n.State, n.Kubelet, n.Problem, micros(n.Ends), string(n.Body),
		}
	}
	fail := func(err error) error { return dbError("store.sights", "nodes", err) }
	if len(rows) > 0 {
		const batch = 500
		err := t.db.Clauses(clause.OnConflict{UpdateAll: true}).CreateInBatches(rows, batch).Error
		if err != nil {
			return fail(err)
		}
	}
	if len(gone) > 0 {
		if err := t.db.Where("machine_id IN ?", gone).Delete(&sightRow{}).Error; err != nil {
			return fail(err)
		}
	}
	seen := int64(0)
	if unseen == "" {
		seen = micros(at)
	}
	return fail(t.db.Exec(
		"INSERT INTO cluster_sights (cluster_uid, looked_at, seen_at, unseen) VALUES (?, ?, ?, ?) "+
			"ON CONFLICT (cluster_uid) DO UPDATE SET unseen = excluded.unseen, seen_at = "+
			"CASE WHEN excluded.seen_at > 0 THEN excluded.seen_at ELSE cluster_sights.seen_at END",
		clusterUID, micros(at), seen, unseen,
	).Error)
}

// AnnounceNode puts into the stream that a node, or what is seen of a cluster, has changed.
func (t *machineTx) AnnounceNode(e director.StreamEvent) {
	t.stream = append(t.stream, streamRow{
		At: micros(e.At), Source: director.SourceNode, Kind: e.Kind, Name: e.Name, Cluster: e.Cluster, What: e.What,
		Message: e.Message, Hint: e.Hint,
	})
}

// NodeQuery narrows NodePage. What is empty does not narrow.
type NodeQuery struct {
	Text     string // in the name, cluster, address, host or pool, in any case
	Clusters []string
	Roles    []string
	States   []string // of sights; unseen also for what was never looked at
	Host     string
	Kubelet  string
	Problem  *bool
	Visible  *director.Visible // nil for all
}

// NodeItem is a machine of a cluster with what was seen of it last.
type NodeItem struct {
	Machine director.Machine
	Sight   NodeSight
	Seen    time.Time // when its cluster answered last; zero for never
	Unseen  string    // why its cluster could not be asked since
}

// sightUnseen is the state of a node of which nothing is known now.
const sightUnseen = "unseen"

const (
	nodeState   = "COALESCE(s.state, '" + sightUnseen + "')"
	nodeKubelet = "COALESCE(s.kubelet, '')"
)

var nodeOrders = map[string]order{
	"name":    {"m.name", false},
	"cluster": {"m.cluster || '/' || m.name", false},
	"role":    {"m.role", false},
	"host":    {"m.host", false},
	"address": {"m.address", false},
	"state":   {nodeState, false},
	"version": {nodeKubelet, false},
	"seen_at": {"COALESCE(c.seen_at, 0)", true},
	"ends_at": {"COALESCE(s.ends_at, 0)", true},
}

// nodes narrows the machines of the clusters that there are, with their sights.
func (s *sightStore) nodes(ctx context.Context, f NodeQuery) *gorm.DB {
	q := s.read.WithContext(ctx).Table("machines AS m").
		Joins("JOIN documents AS d ON d.kind = ? AND d.uid = m.cluster_uid", model.KindCluster).
		Joins("LEFT JOIN node_sights AS s ON s.machine_id = m.id").
		Joins("LEFT JOIN cluster_sights AS c ON c.cluster_uid = m.cluster_uid").
		Where("m.deleted_at = 0")
	if v := f.Visible; v != nil {
		q = q.Where("(d.name IN ? OR d.project IN ? AND d.project <> '')", v.Clusters, v.Projects)
	}
	if f.Text != "" {
		like := containing(f.Text)
		q = q.Where("(lower(m.name) LIKE ? ESCAPE '!' OR lower(m.cluster) LIKE ? ESCAPE '!' OR "+
			"m.address LIKE ? ESCAPE '!' OR lower(m.host) LIKE ? ESCAPE '!' OR lower(m.pool) LIKE ? ESCAPE '!')",
			like, like, like, like, like)
	}
	for column, values := range map[string][]string{"m.cluster": f.Clusters, "m.role": f.Roles, nodeState: f.States} {
		if len(values) > 0 {
			q = q.Where(column+" IN ?", values)
		}
	}
	if f.Host != "" {
		q = q.Where("m.host = ?", f.Host)
	}
	if f.Kubelet != "" {
		q = q.Where(nodeKubelet+" = ?", f.Kubelet)
	}
	if f.Problem != nil {
		q = q.Where("(COALESCE(s.problem, '') <> '') = ?", *f.Problem)
	}
	return q
}

// containing is the pattern of what contains the text, in lower case, with ! as its escape.
func containing(text string) string {
	return "%" + strings.NewReplacer("!", "!!", "%", "!%", "_", "!_").Replace(strings.ToLower(text)) + "%"
}

// NodePage lists the nodes of all clusters with what was seen of them last. next is nil at the end of the list.
func (s *sightStore) NodePage(
	ctx context.Context, f NodeQuery, p director.Page,
) (items []NodeItem, next *director.Place, err error) {
	by, err := sortBy(nodeOrders, p.Sort, "nodes")
	if err != nil {
		return nil, nil, err
	}
	q, err := page(s.nodes(ctx, f), p, by, "m.id")
	if err != nil {
		return nil, nil, err
	}
	var rows []struct {
		Machine          machineRow `gorm:"embedded"`
		Seen             string
		Kubelet, Problem string
		EndsAt, SeenAt   int64 `gorm:"autoCreateTime:false"`
		Body, Unseen     string
	}
	err = q.Select("m.*, COALESCE(s.state, '') AS seen, " + nodeKubelet + " AS kubelet, " +
		"COALESCE(s.problem, '') AS problem, COALESCE(s.ends_at, 0) AS ends_at, COALESCE(c.seen_at, 0) AS seen_at, " +
		"COALESCE(s.body, '') AS body, COALESCE(c.unseen, '') AS unseen").Find(&rows).Error
	if err != nil {
		return nil, nil, dbError("store.nodes", "nodes", err)
	}
	more := p.Limit > 0 && len(rows) > p.Limit
	if more {
		rows = rows[:p.Limit]
	}
	for _, r := range rows {
		items = append(items, NodeItem{r.Machine.toDomain(), NodeSight{
			Machine: r.Machine.ID, State: r.Seen, Kubelet: r.Kubelet, Problem: r.Problem, Ends: instant(r.EndsAt),
			Body: json.RawMessage(r.Body),
		}, instant(r.SeenAt), r.Unseen})
	}
	if more {
		next = items[len(items)-1].place(p.Sort)
	}
	return items, next, nil
}

// place is where a list that is sorted so continues after the node.
func (n NodeItem) place(sort string) *director.Place {
	m, state := n.Machine, n.Sight.State
	if state == "" {
		state = sightUnseen
	}
	return &director.Place{Name: m.ID, Value: map[string]string{
		"name": m.Name, "cluster": m.Cluster + "/" + m.Name, "role": string(m.Role), "host": m.Host,
		"address": m.Address, "state": state, "version": n.Sight.Kubelet,
		"seen_at": strconv.FormatInt(micros(n.Seen), 10), "ends_at": strconv.FormatInt(micros(n.Sight.Ends), 10),
	}[sort]}
}

// NodeCount is how many nodes are in a state.
type NodeCount struct {
	State   string
	Count   int
	Problem int       // of them have a problem
	Ending  int       // of them have a certificate that has ended or ends before the time of the question
	Ended   int       // of them have a certificate that has ended
	Next    time.Time // the soonest end of a certificate among them; zero if none was seen
}

// CountNodes counts the nodes by their state. Certificates count as ending if they end before soon.
func (s *sightStore) CountNodes(ctx context.Context, f NodeQuery, now, soon time.Time) ([]NodeCount, error) {
	var rows []struct {
		State                         string
		Count, Problem, Ending, Ended int
		Next                          int64
	}
	const ends = "COALESCE(s.ends_at, 0)"
	err := s.nodes(ctx, f).Select(nodeState+" AS state, COUNT(*) AS count, "+
		"SUM(CASE WHEN COALESCE(s.problem, '') <> '' THEN 1 ELSE 0 END) AS problem, "+
		"SUM(CASE WHEN "+ends+" > 0 AND s.ends_at < ? THEN 1 ELSE 0 END) AS ending, "+
		"SUM(CASE WHEN "+ends+" > 0 AND s.ends_at <= ? THEN 1 ELSE 0 END) AS ended, "+
		"COALESCE(MIN(CASE WHEN "+ends+" > 0 THEN s.ends_at END), 0) AS next", micros(soon), micros(now)).
		Group(nodeState).Order("1").Find(&rows).Error
	out := make([]NodeCount, len(rows))
	for i, r := range rows {
		out[i] = NodeCount{r.State, r.Count, r.Problem, r.Ending, r.Ended, instant(r.Next)}
	}
	return out, dbError("store.nodes", "nodes", err)
}

// CountPlans counts the plans by their status.
func (s *planStore) CountPlans(ctx context.Context, visible *director.Visible) (map[string]int, error) {
	var rows []struct {
		Phase string
		Count int
	}
	all := s.read.WithContext(ctx).Model(&planRow{})
	err := seen(all, visible, "plans.cluster", "plans.created_at", "plans.project").
		Select("phase, COUNT(*) AS count").Group("phase").Find(&rows).Error
	out := map[string]int{}
	for _, r := range rows {
		out[r.Phase] = r.Count
	}
	return out, dbError("store.plans", "plans", err)
}
