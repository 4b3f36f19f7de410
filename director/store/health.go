package store

import (
	"context"
	"time"
)

// Writable returns nil if something can be written now.
func (s *database) Writable(ctx context.Context, now time.Time) error {
	err := s.write.WithContext(ctx).
		Exec("INSERT INTO meta (name, value) VALUES ('last_probe', ?) ON CONFLICT (name) DO UPDATE SET value = "+
			"excluded.value",
			now.UTC().Format(time.RFC3339)).Error
	return dbError("store.probe", "the database", err)
}

// Schema returns which kind of database it is, and the last of the schema's versions.
func (s *database) Schema(ctx context.Context) (dialect, version string, err error) {
	err = s.read.WithContext(ctx).Raw("SELECT COALESCE(MAX(version), '') FROM schema_migrations").Scan(&version).Error
	return s.dialect(), version, dbError("store.schema", "the schema's versions", err)
}

// Counts is how many of what there are, for metrics.
type Counts struct {
	Machines map[string]int // of the ledger, by state
	Plans    map[string]int // by status
	Steps    map[string]int // of plans that hold a cluster, by status
}

// Counts counts. It reads what is committed and blocks no one.
func (s *database) Counts(ctx context.Context) (Counts, error) {
	c := Counts{Machines: map[string]int{}, Plans: map[string]int{}, Steps: map[string]int{}}
	for query, into := range map[string]map[string]int{
		"SELECT state AS name, COUNT(*) AS n FROM machines WHERE deleted_at = 0 GROUP BY state": c.Machines,
		"SELECT phase AS name, COUNT(*) AS n FROM plans GROUP BY phase":                         c.Plans,
		"SELECT s.status AS name, COUNT(*) AS n FROM plan_steps AS s JOIN plans AS p ON p.id = s.plan_id " +
			"WHERE p.phase IN ('running', 'cancelling', 'parked') GROUP BY s.status": c.Steps,
	} {
		var rows []struct {
			Name string
			N    int
		}
		if err := s.read.WithContext(ctx).Raw(query).Scan(&rows).Error; err != nil {
			return c, dbError("store.count", "rows", err)
		}
		for _, r := range rows {
			into[r.Name] = r.N
		}
	}
	return c, nil
}
