package store

import (
	"fmt"
	"strings"
	"testing"

	"gorm.io/gorm"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
)

// Planning reads the machines of its cluster and its provider through indexes, however many machines have gone.
func TestMachinesOfAClusterUseTheIndex(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s := open()
		const clusters, each = 100, 50
		rows := make([]machineRow, 0, clusters*each)
		for i := range clusters * each {
			cluster, provider := fmt.Sprintf("c%d", i%clusters), fmt.Sprintf("p%d", i%20)
			rows = append(rows, machineRow{
				ID: fmt.Sprintf("m%d", i), ClusterUID: cluster, Cluster: cluster, Name: fmt.Sprintf("n%d", i),
				Provider: provider, State: string(director.MachinePresent), CreatedAt: 1,
				DeletedAt: int64(1 - min(i%10, 1)), Address: fmt.Sprintf("10.0.%d.%d", i/250, i%250), Network: "n",
			})
		}
		if err := s.write.CreateInBatches(rows, 500).Error; err != nil {
			t.Fatal(err)
		}
		if err := s.write.Exec("ANALYZE").Error; err != nil {
			t.Fatal(err)
		}
		for name, query := range map[string]string{
			"a cluster with its former machines": "cluster_uid = 'c7'",
			"a cluster":                          "cluster_uid = 'c7' AND deleted_at = 0",
			"what planning reads":                "(cluster_uid = 'c7' OR (provider = 'p3' AND deleted_at = 0))",
			"a node as it is now":                "cluster_uid = 'c7' AND name = 'n7'",
		} {
			if how := explain(t, s.read, "SELECT id FROM machines WHERE "+query); !strings.Contains(how, "machines_") ||
				strings.Contains(how, "Seq Scan") || strings.Contains(how, "SCAN machines") {
				t.Errorf("%s is read without an index:\n%s", name, how)
			}
		}
	})
}

// A list counts the machines of a cluster and finds its newest plan without reading either of them.
func TestListsReadIndexesAlone(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s := open()
		const clusters, each = 100, 50
		machines := make([]machineRow, 0, clusters*each)
		plans := make([]planRow, 0, clusters*each)
		for i := range clusters * each {
			cluster := fmt.Sprintf("c%d", i%clusters)
			machines = append(machines, machineRow{
				ID: fmt.Sprintf("m%d", i), ClusterUID: cluster, Cluster: cluster, Name: fmt.Sprintf("n%d", i),
				State: string(director.MachinePresent), CreatedAt: 1, DeletedAt: int64(i % 2), Network: "n",
				Address: fmt.Sprintf("10.0.%d.%d", i/250, i%250),
			})
			plans = append(plans, planRow{
				ID: fmt.Sprintf("p%d", i), Cluster: cluster, CreatedAt: int64(i), Status: string(plan.StatusFailed),
			})
		}
		for _, rows := range []any{machines, plans} {
			if err := s.write.CreateInBatches(rows, 500).Error; err != nil {
				t.Fatal(err)
			}
		}
		if s.read.Name() == "postgres" {
			if err := s.write.Exec("VACUUM ANALYZE").Error; err != nil { // the server does so by itself, sometime
				t.Fatal(err)
			}
		}
		list := s.read.ToSQL(func(*gorm.DB) *gorm.DB {
			return s.clusters(t.Context()).Session(&gorm.Session{DryRun: true}).Find(&[]map[string]any{})
		})
		how := explain(t, s.read, list)
		for _, alone := range map[string][]string{
			"sqlite":   {"SEARCH m USING COVERING INDEX", "SEARCH q USING COVERING INDEX"},
			"postgres": {"Index Only Scan using machines_", "Index Only Scan using plans_cluster"},
		}[s.read.Name()] {
			if !strings.Contains(how, alone) {
				t.Errorf("no %s:\n%s", alone, how)
			}
		}
		if strings.Contains(how, "TEMP B-TREE") || strings.Contains(how, "Sort") {
			t.Errorf("plans are sorted:\n%s", how)
		}
	})
}

// What the engine asks every few seconds reads the steps that run, and none of the many that have ended.
func TestHeldStepsUseTheIndex(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s := open()
		if err := s.write.Create(&planRow{ID: "p", Cluster: "c"}).Error; err != nil {
			t.Fatal(err)
		}
		steps := make([]stepRow, 5000)
		for i := range steps {
			steps[i] = stepRow{PlanID: "p", StepID: fmt.Sprintf("s%d", i), Ord: i, Status: string(plan.Done)}
		}
		steps[7].Status = string(plan.Running)
		if err := s.write.CreateInBatches(steps, 500).Error; err != nil {
			t.Fatal(err)
		}
		if err := s.write.Exec("ANALYZE").Error; err != nil {
			t.Fatal(err)
		}
		for name, query := range map[string]func(*gorm.DB) *gorm.DB{
			"lost": func(db *gorm.DB) *gorm.DB {
				return db.Where(lapsed, 5, "a%", "b").Order("plan_id, ord").Find(&[]stepRow{})
			},
			"renewed": func(db *gorm.DB) *gorm.DB {
				return db.Exec("UPDATE plan_steps SET lease_until = 5 WHERE "+heldSteps+" AND lease_owner = ?", "a")
			},
		} {
			if how := explain(t, s.read, s.read.ToSQL(query)); !strings.Contains(how, "plan_steps_moving") {
				t.Errorf("%s:\n%s", name, how)
			}
		}
	})
}

// explain returns how the database answers the query.
func explain(t *testing.T, db *gorm.DB, query string) string {
	t.Helper()
	prefix := "EXPLAIN "
	if db.Name() == "sqlite" {
		prefix = "EXPLAIN QUERY PLAN "
	}
	rows, err := db.Raw(prefix + query).Rows()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	columns, err := rows.Columns()
	if err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	for rows.Next() {
		cells := make([]any, len(columns))
		for i := range cells {
			cells[i] = new(any)
		}
		if err := rows.Scan(cells...); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&out, *cells[len(cells)-1].(*any))
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}
