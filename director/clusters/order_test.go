package clusters

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/store"
)

// versionsOf stores clusters c0000 to c0003 that run v1.9.3, v1.10.0, nothing and v1.10.0, and the releases r1 to r4.
func versionsOf(t *testing.T) *Service {
	t.Helper()
	s := fleetOf(t, 4, 2)
	docs, err := s.store.Documents(t.Context(), model.KindCluster)
	if err != nil {
		t.Fatal(err)
	}
	err = s.store.Update(t.Context(), func(tx *store.Tx) error {
		for name, version := range map[string]string{
			"r1": "v1.9.3", "r2": "v1.10.0", "r3": "v1.10.4", "r4": "v1.11.0",
		} {
			d := model.Document{
				Kind: model.KindRelease, Metadata: model.Metadata{Name: name},
				Release: &model.Release{Kubernetes: version},
			}
			if err := tx.PutDocument(d, "a", time.Unix(1, 0)); err != nil {
				return err
			}
		}
		for i, release := range []string{"r1", "r2", "", "r2"} {
			if release == "" {
				continue
			}
			was := docs[i].Document
			was.Cluster = &model.Cluster{Release: release}
			err := tx.PutInstalled(store.Installed{
				UID: docs[i].UID, Name: docs[i].Metadata.Name, Document: was, Endpoint: "10.0.0.1:6443",
			})
			if err != nil {
				return err
			}
		}
		// Its document names another release: what counts is what was installed.
		later := docs[3].Document
		later.Metadata.Labels = map[string]string{"n": "late"}
		return tx.PutDocument(later, "a", time.Unix(2, 0))
	})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// TestOrders reads every order in parts of each size, in both directions. With counts it is the same list.
func TestOrders(t *testing.T) {
	t.Parallel()
	s := versionsOf(t)
	counted := func(ctx context.Context, q Query) ([]View, *director.Place, error) {
		views, next, f, err := s.CountedClusters(ctx, q)
		if f.Total != 4 || f.Nodes != 8 {
			t.Errorf("counted %+v", f)
		}
		return views, next, err
	}
	t.Run("listed", func(t *testing.T) { ordersOf(t, s.ListClusters) })
	t.Run("counted", func(t *testing.T) { ordersOf(t, counted) })
}

func ordersOf(t *testing.T, list func(context.Context, Query) ([]View, *director.Place, error)) {
	t.Helper()
	for _, c := range []struct{ sort, up, down string }{
		{"name", "c0000 c0001 c0002 c0003", "c0003 c0002 c0001 c0000"},
		{"status", "c0000 c0001 c0003 c0002", "c0002 c0000 c0001 c0003"},
		{"version", "c0002 c0000 c0001 c0003", "c0001 c0003 c0000 c0002"},
		{"nodes", "c0000 c0001 c0002 c0003", "c0000 c0001 c0002 c0003"},
		{"created_at", "c0000 c0001 c0002 c0003", "c0000 c0001 c0002 c0003"},
	} {
		for limit := 1; limit <= 5; limit++ {
			for _, desc := range []bool{false, true} {
				q := Query{Page: director.Page{Sort: c.sort, Desc: desc, Limit: limit}}
				var names []string
				for {
					views, next, err := list(t.Context(), q)
					if err != nil || len(views) > limit {
						t.Fatal(len(views), err)
					}
					for _, v := range views {
						names = append(names, v.Name)
						if len(v.Machines) != 2 {
							t.Errorf("%s: %d machines", v.Name, len(v.Machines))
						}
					}
					if next == nil {
						break
					}
					q.After = next
				}
				want := c.up
				if desc {
					want = c.down
				}
				if got := strings.Join(names, " "); got != want {
					t.Errorf("by %s, descending %t, in parts of %d: %s, not %s", c.sort, desc, limit, got, want)
				}
			}
		}
	}
}

func TestVersions(t *testing.T) {
	t.Parallel()
	s := versionsOf(t)
	for _, c := range []struct{ versions, want string }{
		{"v1.10", "c0001 c0003"},
		{"1.9.3", "c0000"},
		{"v1.1", ""},
		{"v1.9.3 v1.10.0", "c0000 c0001 c0003"},
	} {
		q := Query{Page: director.Page{Sort: "name", Limit: 9}, Versions: strings.Fields(c.versions), NoMachines: true}
		views, _, err := s.ListClusters(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, v := range views {
			names = append(names, v.Name)
		}
		if got := strings.Join(names, " "); got != c.want {
			t.Errorf("%s: %s, not %s", c.versions, got, c.want)
		}
	}
	f, err := s.CountClusters(t.Context(), Query{Statuses: []string{"ready"}})
	want := Facets{
		Total: 3, Nodes: 6, Statuses: map[string]int{"ready": 3}, Releases: map[string]int{"r": 3},
		Projects: map[string]int{}, PlanStatuses: map[string]int{},
		Versions: map[string]int{"v1.9.3": 1, "v1.10.0": 2},
	}
	if diff := cmp.Diff(want, f); diff != "" || err != nil {
		t.Error(diff, err)
	}
}

// A newer release is one that an upgrade reaches at once: the newest of the same and of the next minor version.
func TestNewer(t *testing.T) {
	t.Parallel()
	s := versionsOf(t)
	for name, want := range map[string]*Newer{
		"c0000": {"r3", "v1.10.4"}, "c0001": {"r4", "v1.11.0"}, "c0002": nil,
	} {
		v, err := s.ClusterView(t.Context(), name)
		if diff := cmp.Diff(want, v.Newer); diff != "" || err != nil {
			t.Error(name, diff, err)
		}
	}
	if newest := newer("v1.11.0", nil); newest != nil {
		t.Error(fmt.Sprint(*newest))
	}
}
