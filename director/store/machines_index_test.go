package store

import (
	"fmt"
	"strings"
	"testing"

	"gorm.io/gorm"

	"github.com/director-kaas/kaas/director"
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
