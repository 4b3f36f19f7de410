package nodes

import (
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/servicetest"
	"github.com/director-kaas/kaas/director/snapshot"
	"github.com/director-kaas/kaas/director/store"
)

// watched is a service that looks at a director's clusters, and its clock.
func watched(t testing.TB, clusters, workers int) (*Service, *servicetest.Lab, *time.Time) {
	t.Helper()
	l := servicetest.Open(t, clusters, workers)
	now := time.Now()
	s := New(Config{
		Store: l.Store, Clusters: l.Env, Director: l.Director.ID, Now: func() time.Time { return now },
		Log: slog.New(slog.DiscardHandler),
		Worlds: snapshot.New(snapshot.Config{
			Store: l.Store, Backends: l.Env.Backends, Clusters: l.Env, Director: l.Director,
			Bundles: snapshot.Bundles{Dirs: confine.Dirs{"/"}, Gate: l.Env.Gate},
		}),
	})
	return s, l, &now
}

func names(list []Listed) []string {
	var out []string
	for _, n := range list {
		out = append(out, n.Name+" "+n.Status)
	}
	return out
}

// Nodes are listed over all clusters: what was never looked at is unseen, and what a look has seen stays until the next
// one. A change is an event; what has not changed is none.
func TestNodesAreObserved(t *testing.T) {
	t.Parallel()
	s, l, now := watched(t, 2, 2)
	ctx := t.Context()
	made := l.Made["c000-w-1"]
	if err := l.AddPlan(ctx, "p1", true, made); err != nil {
		t.Fatal(err)
	}
	l.MakeVM(t, made)
	q := Query{Page: director.Page{Sort: "name", Limit: 10}}
	list, _, err := s.List(ctx, q)
	if err != nil || len(list) == 0 || list[0].Status != StateUnseen || !list[0].Seen.IsZero() {
		t.Fatalf("before the first look: %+v, %v", list, err)
	}
	if err := s.Observe(ctx); err != nil {
		t.Fatal(err)
	}
	if list, _, err = s.List(ctx, q); err != nil || list[0].Seen.IsZero() || list[0].Status != StatePending {
		t.Fatalf("after a look: %+v, %v", list, err)
	}
	if err := l.EndPlan(ctx, "p1", plan.PlanFailed); err != nil {
		t.Fatal(err)
	}
	for range 2 { // another director, or the same one, does not look again so soon
		if err := s.Observe(ctx); err != nil {
			t.Fatal(err)
		}
	}
	q.Text = "C000-W-1"
	if list, _, err = s.List(ctx, q); err != nil || len(list) != 1 || list[0].Problem != "" {
		t.Fatalf("before its time: %+v, %v", list, err)
	}
	*now = now.Add(2 * observeEvery)
	for range 2 {
		if err := s.Observe(ctx); err != nil {
			t.Fatal(err)
		}
	}
	list, _, err = s.List(ctx, q)
	if err != nil || len(list) != 1 || list[0].Problem != notJoined || list[0].Status != StateProblem {
		t.Fatalf("after its time: %+v, %v", list, err)
	}
	seen := list[0].Seen
	*now = now.Add(2 * observeEvery)
	if err := s.Observe(ctx); err != nil {
		t.Fatal(err)
	}
	if list, _, err = s.List(ctx, q); err != nil || len(list) != 1 || !list[0].Seen.After(seen) {
		t.Fatalf("seen again, with nothing new: %+v, %v", list, err)
	}
	page, err := l.Store.Stream(ctx, director.StreamQuery{Kinds: []string{director.KindNode}, Limit: 10})
	if err != nil || len(page.Events) != 1 {
		t.Fatalf("%+v, %v", page.Events, err)
	}
	e := page.Events[0]
	if e.Name != "c000-w-1" || e.Cluster != "c000" || e.What != StateProblem || e.Message != notJoined {
		t.Errorf("the event is %+v", e)
	}
}

// A list shows what its reader may see, page by page, and counts it.
func TestNodesAreNarrowed(t *testing.T) {
	t.Parallel()
	s, l, _ := watched(t, 2, 2)
	ctx := t.Context()
	if err := l.AddPlan(ctx, "p1", true, l.Made["c000-w-1"], l.Made["c000-w-2"]); err != nil {
		t.Fatal(err)
	}
	if err := l.AddPlan(ctx, "p2", true, l.Made["c001-w-1"]); err != nil {
		t.Fatal(err)
	}
	read := func(q Query) []string {
		t.Helper()
		var out []string
		for {
			list, next, err := s.List(ctx, q)
			if err != nil {
				t.Fatal(err)
			}
			if out = append(out, names(list)...); next == nil {
				return out
			}
			q.After = next
		}
	}
	page := director.Page{Sort: "cluster", Limit: 1}
	for name, c := range map[string]struct {
		q    Query
		want []string
	}{
		"one by one": {Query{Page: page}, []string{"c000-w-1 unseen", "c000-w-2 unseen", "c001-w-1 unseen"}},
		"a cluster":  {Query{Page: page, Clusters: []string{"c001"}}, []string{"c001-w-1 unseen"}},
		"no pattern": {Query{Page: page, Text: "c%1"}, nil},
		"visible": {
			Query{Page: page, Visible: &director.Visible{Clusters: []string{"c001"}}},
			[]string{"c001-w-1 unseen"},
		},
		"none":    {Query{Page: page, Visible: &director.Visible{}}, nil},
		"a state": {Query{Page: page, States: []string{StateReady}}, nil},
	} {
		if diff := cmp.Diff(c.want, read(c.q)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
	}
	count, err := s.Count(ctx, Query{States: []string{StateReady}, Clusters: []string{"c000"}})
	if err != nil || count.Total != 2 || count.States[StateUnseen] != 2 || !count.Next.IsZero() {
		t.Errorf("counted %+v, %v", count, err)
	}
	if _, _, err := s.List(ctx,
		Query{Page: director.Page{Sort: "nothing"}}); director.KindOf(err) != director.KindInvalid {
		t.Errorf("an unknown order: %v", err)
	}
}

// A node whose cluster does not answer keeps what was seen before, and is news only if it is another one afterwards.
func TestSightOfANode(t *testing.T) {
	t.Parallel()
	s, _, _ := watched(t, 0, 0)
	well := Node{Name: "n", Version: "v1.37.1", Kubelet: "v1.37.1", Ready: true, Power: "on"}
	seen, news, err := s.sightOf(well, store.NodeSight{}, false, false)
	if err != nil || !news || seen.State != StateReady {
		t.Fatalf("%+v, %t, %v", seen, news, err)
	}
	blind, news, err := s.sightOf(Node{Name: "n", Version: "v1.37.1", Power: "on"}, seen, false, true)
	if err != nil || news || blind.State != StateUnseen || blind.Kubelet != "v1.37.1" {
		t.Fatalf("while its cluster is silent: %+v, %t, %v", blind, news, err)
	}
	blind, _, _ = s.sightOf(Node{Name: "n", Version: "v1.37.1", Power: "on"}, blind, false, true)
	if _, news, _ = s.sightOf(well, blind, false, false); news {
		t.Error("a node that is as before is news")
	}
	well.Cordoned = true
	if now, news, _ := s.sightOf(well, blind, false, false); !news || now.State != StateCordoned {
		t.Errorf("a node that is cordoned: %+v, %t", now, news)
	}
	well.Cordoned, well.Certificates = false, []Certificate{
		{Name: "kubelet", Ends: time.Unix(1, 0), Unchecked: true}, {Name: "etcd", Ends: time.Unix(2, 0)},
	}
	if now, _, _ := s.sightOf(well, blind, false, false); !now.Ends.Equal(time.Unix(2, 0)) {
		t.Errorf("its certificates end %s", now.Ends)
	}
	if now, _, _ := s.sightOf(Node{Version: "v1.37.1", Power: "on"}, blind, true, false); now.State != StateReady {
		t.Errorf("a node that pretends is %s", now.State)
	}
}
