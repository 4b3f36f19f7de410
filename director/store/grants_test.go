package store

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
)

func clusterIn(name, project string) model.Document {
	return model.Document{
		Kind: model.KindCluster, Metadata: model.Metadata{Name: name}, Cluster: &model.Cluster{Project: project},
	}
}

func grantTo(name string, g model.Grant) model.Document {
	return model.Document{Kind: model.KindGrant, Metadata: model.Metadata{Name: name}, Grant: &g}
}

// Grants count from the moment in which their document is stored, for users and for groups of their provider.
func TestGrantsOf(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s, at := open(), time.Unix(1, 0)
		put := func(docs ...model.Document) {
			t.Helper()
			if err := update(t, s, func(tx *Tx) error {
				for _, d := range docs {
					if err := tx.PutDocument(d, "admin", at); err != nil {
						return err
					}
				}
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		of := func(u director.User) (out []director.Granted) {
			t.Helper()
			out, err := s.GrantsOf(t.Context(), u)
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		put(
			grantTo("a", model.Grant{Users: []string{"ann", "bob", "ann"}, Role: "operator", Project: "web"}),
			grantTo("b", model.Grant{Users: []string{"ann"}, Role: "operator", Project: "web"}),
			grantTo("c", model.Grant{
				Groups: []model.GrantGroup{{Provider: "corp", Group: "cn=ops"}}, Role: "user",
				Cluster: "shop",
			}),
			grantTo("d", model.Grant{
				Users:  []string{"cn=ops"},
				Groups: []model.GrantGroup{{Provider: "corp", Group: "ann"}}, Role: "admin",
			}),
		)
		web, shop := director.Granted{Role: "operator", Project: "web"}, director.Granted{Role: "user", Cluster: "shop"}
		for _, c := range []struct {
			user director.User
			want []director.Granted
		}{
			{director.User{Name: "ann"}, []director.Granted{web}},
			{director.User{Name: "ann", Provider: "corp", Groups: []string{"cn=ops"}}, []director.Granted{web, shop}},
			{
				director.User{Name: "eve", Provider: "corp", Groups: []string{"cn=dev", "cn=ops"}},
				[]director.Granted{shop},
			},
			{director.User{Name: "eve", Provider: "other", Groups: []string{"cn=ops"}}, nil},
			{director.User{Name: "eve", Groups: []string{"cn=ops"}}, nil}, // a local user is in no group
		} {
			got := of(c.user)
			slices.SortFunc(got, func(a, b director.Granted) int { return -strings.Compare(a.Project, b.Project) })
			if diff := cmp.Diff(c.want, got,
				cmp.Transformer("nil", func(l []director.Granted) int { return len(l) })); diff != "" {
				t.Errorf("%+v: %s", c.user, diff)
			}
			if len(got) > 0 && !slices.Equal(got, c.want) {
				t.Errorf("%+v: %+v", c.user, got)
			}
		}
		put(grantTo("a", model.Grant{Users: []string{"bob"}, Role: "user", Project: "web"}))
		if got := of(director.User{Name: "bob"}); !slices.Equal(got,
			[]director.Granted{{Role: "user", Project: "web"}}) {
			t.Errorf("after a change: %+v", got)
		}
		err := update(t, s, func(tx *Tx) error {
			return tx.DeleteDocument(model.Ref{
				Kind: model.KindGrant,
				Name: "a",
			})
		})
		if got := of(director.User{Name: "bob"}); err != nil || len(got) > 0 {
			t.Errorf("after the deletion: %+v, %v", got, err)
		}
	})
}

// Lists, and places of clusters and plans, for people who may see some clusters alone. Cluster shop was made twice: the
// first one was in the project old.
func TestVisible(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s := open()
		do := func(at int64, f func(tx *Tx) error) {
			t.Helper()
			if err := update(t, s, f); err != nil {
				t.Fatal(at, err)
			}
		}
		put := func(at int64, name, project string) {
			t.Helper()
			do(at, func(tx *Tx) error { return tx.PutDocument(clusterIn(name, project), "admin", time.Unix(at, 0)) })
		}
		planFor := func(at int64, id, cluster string) {
			t.Helper()
			do(at, func(tx *Tx) error {
				p := plan.Plan{ID: id, CreatedAt: time.Unix(at, 0)}
				p.Cluster = cluster
				if err := tx.AddPlan(p); err != nil {
					return err
				}
				return tx.Audit(time.Unix(at, 0), "admin", "make", "Plan/"+id)
			})
		}
		put(1, "shop", "old")
		planFor(2, "p1", "shop")
		do(3, func(tx *Tx) error { return tx.DeleteDocument(model.Ref{Kind: model.KindCluster, Name: "shop"}) })
		put(4, "shop", "web")
		put(4, "blog", "web")
		put(4, "free", "")
		planFor(5, "p2", "shop")
		planFor(5, "p3", "blog")
		planFor(5, "p4", "free")
		for _, c := range []struct {
			name            string
			visible         *director.Visible
			clusters, plans string
			events          string
		}{
			{"all", nil, "blog free shop", "p1 p2 p3 p4", "p1 p2 p3 p4"},
			{"nothing", &director.Visible{}, "", "", ""},
			{"a project", &director.Visible{Projects: []string{"web"}}, "blog shop", "p2 p3", "p2 p3"},
			{"a project that lost its cluster", &director.Visible{Projects: []string{"old"}}, "", "p1", ""},
			{"a cluster", &director.Visible{Clusters: []string{"shop"}}, "shop", "p2", "p2"},
			{"no project", &director.Visible{Projects: []string{""}, Clusters: []string{"none"}}, "", "", ""},
		} {
			compareVisible(t, s, c.name, c.visible, c.clusters, c.plans, c.events)
		}
		for id, want := range map[string]director.Object{
			"p1": {Kind: "Plan", Name: "p1", Project: "old"},
			"p2": {Kind: "Plan", Name: "p2", Cluster: "shop", Project: "web"},
			"p4": {Kind: "Plan", Name: "p4", Cluster: "free"},
		} {
			if got, err := s.PlanScope(t.Context(), id); err != nil || got != want {
				t.Errorf("%s: %+v, %v", id, got, err)
			}
		}
		if _, err := s.PlanScope(t.Context(), "none"); director.KindOf(err) != director.KindNotFound {
			t.Error(err)
		}
		if got, err := s.ClusterScope(t.Context(), "shop"); err != nil || got.Project != "web" ||
			got.Cluster != "shop" {
			t.Errorf("%+v, %v", got, err)
		}
		if _, err := s.ClusterScope(t.Context(), "none"); director.KindOf(err) != director.KindNotFound {
			t.Error(err)
		}
	})
}

func compareVisible(t *testing.T, s *Store, name string, v *director.Visible, clusters, plans, events string) {
	t.Helper()
	p := director.Page{Sort: "name", Limit: 100}
	var got []string
	items, _, err := s.ClusterPage(t.Context(), "", v, p)
	for _, i := range items {
		got = append(got, i.Name)
	}
	if strings.Join(got, " ") != clusters || err != nil {
		t.Errorf("%s: clusters %v, %v", name, got, err)
	}
	got = nil
	docs, _, err := s.DocumentPage(t.Context(), model.KindCluster, "", v, p)
	for _, d := range docs {
		got = append(got, d.Metadata.Name)
	}
	if strings.Join(got, " ") != clusters || err != nil {
		t.Errorf("%s: documents %v, %v", name, got, err)
	}
	got = nil
	listed, _, err := s.PlanPage(t.Context(), PlanQuery{Visible: v}, director.Page{Limit: 100})
	for _, i := range listed {
		got = append(got, i.Plan.ID)
	}
	slices.Sort(got)
	if strings.Join(got, " ") != plans || err != nil {
		t.Errorf("%s: plans %v, %v", name, got, err)
	}
	if _, _, err := s.PlanArchives(t.Context(), PlanQuery{Visible: v}, director.Page{Limit: 100}); err != nil {
		t.Errorf("%s: archives: %v", name, err)
	}
	got = nil
	page, err := s.Stream(t.Context(), director.StreamQuery{Visible: v, Kinds: []string{"Plan"}, Limit: 100})
	for _, e := range page.Events {
		got = append(got, e.Name)
	}
	if strings.Join(got, " ") != events || err != nil {
		t.Errorf("%s: events %v, %v", name, got, err)
	}
}
