package clusters

import (
	"fmt"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
)

// fleetOf stores clusters of some machines each, with a plan of one step.
func fleetOf(t testing.TB, clusters, machines int) *Service {
	t.Helper()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	now := time.Unix(1, 0)
	err = db.Update(t.Context(), func(tx *store.Tx) error {
		for i := range clusters {
			name := fmt.Sprintf("c%04d", i)
			d := model.Document{
				Kind:     model.KindCluster,
				Metadata: model.Metadata{Name: name, Labels: map[string]string{"n": fmt.Sprint(i % 2)}},
				Cluster:  &model.Cluster{Release: "r"},
			}
			p := plan.Plan{
				ID: "p" + name, CreatedAt: now,
				Content: plan.Content{Cluster: name, Operation: plan.ClusterCreate, Steps: []plan.Step{{ID: "a"}}},
			}
			if err := tx.PutDocument(d, "a", now); err != nil {
				return err
			}
			if err := tx.AddPlan(p); err != nil {
				return err
			}
		}
		docs, err := tx.Documents()
		if err != nil {
			return err
		}
		for i, d := range docs {
			for n := range machines {
				m := director.Machine{
					ID: fmt.Sprintf("m%d-%d", i, n), ClusterUID: d.UID, Cluster: d.Metadata.Name,
					Name: fmt.Sprintf("%s-w-%d", d.Metadata.Name, n),
					Role: director.RoleWorker, Network: "n", Address: fmt.Sprintf("10.%d.%d.%d", i>>8, i&255, n),
				}
				if err := tx.IntendMachine(m, now); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return New(db)
}

// A list without machines says the same of everything else.
func TestListWithoutMachines(t *testing.T) {
	t.Parallel()
	o := fleetOf(t, 5, 3)
	for _, bare := range []bool{false, true} {
		q := Query{Page: director.Page{Sort: "name", Limit: 2}, Labels: model.Selector{"n=0"}, NoMachines: bare}
		var names []string
		for {
			views, next, err := o.ListClusters(t.Context(), q)
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range views {
				names = append(names, v.Name)
				if v.Nodes != 3 || v.Status != "unfinished" || v.Release != "r" || (len(v.Machines) == 0) != bare {
					t.Errorf("without machines %t: %+v", bare, v)
				}
			}
			if next == nil {
				break
			}
			q.After = next
		}
		if got := fmt.Sprint(names); got != "[c0000 c0002 c0004]" {
			t.Errorf("without machines %t: %s", bare, got)
		}
	}
}

// BenchmarkListClusters measures one answer of the list of 1,000 clusters of 10 machines, as directorctl asks for it.
func BenchmarkListClusters(b *testing.B) {
	o := fleetOf(b, 1000, 10)
	for b.Loop() {
		q := Query{Page: director.Page{Sort: "name", Limit: 500}, NoMachines: true}
		if views, _, err := o.ListClusters(b.Context(), q); err != nil || len(views) != 500 {
			b.Fatal(len(views), err)
		}
	}
}
