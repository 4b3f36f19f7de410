package store

import (
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
)

// addPlans stores plans p0 to p6 of the clusters c0 to c2, two in each second; the odd ones are discarded.
func addPlans(t *testing.T, s *Store) {
	t.Helper()
	for i := range 7 {
		p := plan.Plan{ID: fmt.Sprintf("p%d", i), CreatedAt: time.Unix(int64(100+i/2), 0).UTC(), Content: plan.Content{
			Operation: plan.ClusterCreate, Cluster: fmt.Sprintf("c%d", i%3), Summary: `say "hello"`,
			Estimate: time.Minute,
			Steps:    []plan.Step{{ID: "a"}, {ID: "b"}},
		}}
		if err := update(t, s, func(tx *Tx) error {
			err := tx.AddPlan(p)
			if err == nil && i%2 == 1 {
				st := plan.NewState(&p)
				err = tx.Append(&st, plan.Event{Plan: p.ID, Kind: plan.PlanDiscarded, At: time.Unix(200, 0)})
			}
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
}

// walk reads a list of plans part by part.
func walk(t *testing.T, s *Store, f PlanQuery, p director.Page) string {
	t.Helper()
	var out []string
	for {
		items, next, err := s.PlanPage(t.Context(), f, p)
		if err != nil {
			t.Fatal(err)
		}
		for _, i := range items {
			out = append(out, i.Plan.ID)
		}
		if next == nil {
			return strings.Join(out, " ")
		}
		raw, err := json.Marshal(next) // as it goes through a caller's hands
		if err != nil {
			t.Fatal(err)
		}
		p.After = &director.Place{}
		if err := json.Unmarshal(raw, p.After); err != nil {
			t.Fatal(err)
		}
	}
}

// Of each cluster the last plan counts that was started, has ended, and changes nodes.
func TestEndedPlans(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s := open()
		addPlans(t, s) // none of which was started
		for i, p := range []struct {
			cluster   string
			operation plan.Operation
			end       plan.EventKind
		}{
			{"c0", plan.ClusterRotateCerts, plan.PlanDone},
			{"c0", plan.ClusterScale, plan.PlanFailed},
			{"c0", plan.ClusterBackup, plan.PlanDone},
			{"c1", plan.ClusterScale, ""},
			{"c2", plan.ClusterDrill, plan.PlanDone},
		} {
			made := plan.Plan{ID: fmt.Sprintf("e%d", i), CreatedAt: time.Unix(300, 0), Content: plan.Content{
				Operation: p.operation, Cluster: p.cluster, Steps: []plan.Step{{ID: "a"}},
			}}
			if err := update(t, s, func(tx *Tx) error {
				if err := tx.AddPlan(made); err != nil {
					return err
				}
				st := plan.NewState(&made)
				err := tx.Append(&st, plan.Event{Plan: made.ID, Kind: plan.PlanStarted, At: time.Unix(300, 0)})
				if err != nil || p.end == "" {
					return err
				}
				return tx.Append(&st, plan.Event{Plan: made.ID, Kind: p.end, At: time.Unix(int64(400+i), 0)})
			}); err != nil {
				t.Fatal(err)
			}
		}
		got, err := s.EndedPlans(t.Context())
		if diff := cmp.Diff(map[string]time.Time{"c0": time.Unix(401, 0).UTC()}, got); diff != "" || err != nil {
			t.Errorf("%v (-want +got):\n%s", err, diff)
		}
	})
}

func TestPlanPage(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s := open()
		addPlans(t, s)
		for _, c := range []struct {
			f    PlanQuery
			page director.Page
			want string
		}{
			{PlanQuery{}, director.Page{Desc: true}, "p6 p4 p5 p2 p3 p0 p1"},
			{PlanQuery{}, director.Page{Desc: true, Limit: 1}, "p6 p4 p5 p2 p3 p0 p1"},
			{PlanQuery{}, director.Page{Sort: "created_at", Limit: 3}, "p0 p1 p2 p3 p4 p5 p6"},
			{PlanQuery{}, director.Page{Sort: "cluster", Limit: 2}, "p0 p3 p6 p1 p4 p2 p5"},
			{PlanQuery{Cluster: "c1"}, director.Page{Limit: 1}, "p1 p4"},
			{
				PlanQuery{Statuses: []plan.Status{plan.StatusDiscarded}},
				director.Page{Sort: "status", Limit: 2},
				"p1 p3 p5",
			},
			{PlanQuery{IDPrefix: "p3", Operations: []plan.Operation{plan.ClusterCreate}}, director.Page{}, "p3"},
			{PlanQuery{IDPrefix: "%"}, director.Page{}, ""},
		} {
			if got := walk(t, s, c.f, c.page); got != c.want {
				t.Errorf("%+v %+v: %q, want %q", c.f, c.page, got, c.want)
			}
		}
		items, _, err := s.PlanPage(t.Context(), PlanQuery{IDPrefix: "p0"}, director.Page{})
		if err != nil || items[0].Plan.Summary != `say "hello"` || items[0].Plan.Estimate != time.Minute ||
			items[0].Total != 2 || items[0].Done != 0 {
			t.Errorf("%+v, %v", items, err)
		}
		if _, _, err := s.PlanPage(t.Context(), PlanQuery{}, director.Page{
			Sort: "content; --",
		}); director.KindOf(err) != director.KindInvalid {
			t.Errorf("an unknown order: %v", err)
		}
		if _, _, err := s.PlanPage(t.Context(), PlanQuery{}, director.Page{
			After: &director.Place{Value: "x"},
		}); director.KindOf(err) != director.KindInvalid {
			t.Errorf("a broken place: %v", err)
		}
	})
}

func TestClusterPage(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s := open()
		addPlans(t, s)
		uids := map[string]string{}
		err := update(t, s, func(tx *Tx) error {
			for _, name := range []string{"c0", "c1", "other"} {
				d := model.Document{
					Kind: model.KindCluster, Metadata: model.Metadata{Name: name},
					Cluster: &model.Cluster{Release: "r-" + name},
				}
				if name == "c1" {
					d.Metadata.Labels = map[string]string{"team": "a \"b\""}
				}
				if err := tx.PutDocument(d, "admin", time.Unix(1, 0)); err != nil {
					return err
				}
			}
			docs, err := tx.Documents()
			if err != nil {
				return err
			}
			for _, d := range docs {
				uids[d.Metadata.Name] = d.UID
			}
			m := director.Machine{
				ID: "m1", ClusterUID: uids["c1"], Cluster: "c1", Name: "c1-w", Role: director.RoleWorker, Network: "n",
				Address: "10.0.0.1",
			}
			if err := tx.IntendMachine(m, time.Unix(1, 0)); err != nil {
				return err
			}
			release := model.Document{
				Kind: model.KindRelease, Metadata: model.Metadata{Name: "r-c0"},
				Release: &model.Release{Kubernetes: "v1.37.1"},
			}
			if err := tx.PutDocument(release, "admin", time.Unix(1, 0)); err != nil {
				return err
			}
			return tx.PutInstalled(Installed{
				UID: uids["c0"], Name: "c0", Generation: 1, Document: docs[0].Document, Endpoint: "https://c0",
				At: time.Unix(2, 0),
			})
		})
		if err != nil {
			t.Fatal(err)
		}
		created := time.Unix(1, 0).UTC()
		want := []ClusterItem{
			{
				Name: "c0", UID: uids["c0"], Release: "r-c0", Generation: 1, Installed: true, Endpoint: "https://c0",
				Plan: "p6", Operation: plan.ClusterCreate, Status: plan.StatusPlanned, Version: "v1.37.1",
				Created: created,
			},
			{
				Name: "c1", UID: uids["c1"], Release: "r-c1", Generation: 1, Labels: map[string]string{"team": `a "b"`},
				Nodes: 1, Plan: "p4", Operation: plan.ClusterCreate, Status: plan.StatusPlanned, Created: created,
			},
			{Name: "other", UID: uids["other"], Release: "r-other", Generation: 1, Created: created},
		}
		first, next, err := s.ClusterPage(t.Context(), "", nil, director.Page{Sort: "name", Limit: 2})
		if diff := cmp.Diff(want[:2], first); diff != "" || err != nil || next == nil {
			t.Fatal(diff, next, err)
		}
		rest, next, err := s.ClusterPage(t.Context(), "", nil, director.Page{Sort: "name", Limit: 2, After: next})
		if diff := cmp.Diff(want[2:], rest); diff != "" || err != nil || next != nil {
			t.Error(diff, next, err)
		}
		if some, _, err := s.ClusterPage(t.Context(), "ot", nil, director.Page{Sort: "name"}); err != nil ||
			len(some) != 1 {
			t.Errorf("by prefix: %+v, %v", some, err)
		}
		one, err := s.Cluster(t.Context(), "c1")
		if diff := cmp.Diff(want[1], one); diff != "" || err != nil {
			t.Error(diff, err)
		}
		if _, err := s.Cluster(t.Context(), "none"); director.KindOf(err) != director.KindNotFound {
			t.Errorf("no such cluster: %v", err)
		}
	})
}

func TestDocumentPage(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s := open()
		for i, name := range []string{"b", "a", "ab", "c"} {
			if err := update(t, s, func(tx *Tx) error {
				return tx.PutDocument(network(name), "admin", time.Unix(int64(i), 1000))
			}); err != nil {
				t.Fatal(err)
			}
		}
		for _, c := range []struct {
			prefix string
			page   director.Page
			want   string
		}{
			{"", director.Page{Limit: 3}, "a ab b c"},
			{"", director.Page{Limit: 3, Desc: true}, "c b ab a"},
			{"", director.Page{Limit: 1, Sort: "updated_at", Desc: true}, "c ab a b"},
			{"a", director.Page{}, "a ab"},
		} {
			var names []string
			for p := c.page; ; {
				docs, next, err := s.DocumentPage(t.Context(), model.KindNetwork, c.prefix, nil, p)
				if err != nil {
					t.Fatal(err)
				}
				for _, d := range docs {
					names = append(names, d.Metadata.Name)
				}
				if next == nil {
					break
				}
				if got := DocumentPlace(docs[len(docs)-1], p.Sort); *got != *next {
					t.Fatalf("the place after %s is %v and %v", next.Name, got, next)
				}
				p.After = next
			}
			if got := strings.Join(names, " "); got != c.want {
				t.Errorf("%q %+v: %q, want %q", c.prefix, c.page, got, c.want)
			}
		}
	})
}

func TestEventPage(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s := open()
		p := plan.Plan{ID: "p", Content: plan.Content{Steps: []plan.Step{{ID: "a"}, {ID: "b"}}}}
		st := plan.NewState(&p)
		if err := update(t, s, func(tx *Tx) error {
			if err := tx.AddPlan(p); err != nil {
				return err
			}
			for _, e := range []plan.Event{
				{Kind: plan.PlanStarted},
				{Kind: plan.Started, Step: "a", Attempt: 1},
				{Kind: plan.Started, Step: "b", Attempt: 1},
				{Kind: plan.Succeeded, Step: "a", Attempt: 1},
				{Kind: plan.Succeeded, Step: "b", Attempt: 1},
			} {
				e.Plan, e.At = "p", time.Unix(1, 0)
				if err := tx.Append(&st, e); err != nil {
					return err
				}
			}
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		for _, c := range []struct {
			q    EventQuery
			want []int64
			last int64
		}{
			{EventQuery{Limit: 10}, []int64{1, 2, 3, 4, 5}, 5},
			{EventQuery{Limit: 1, Kinds: []plan.EventKind{plan.Started}}, []int64{2}, 2},
			{EventQuery{Limit: 10, Kinds: []plan.EventKind{plan.Started}, After: 2}, []int64{3}, 5},
			{EventQuery{Limit: 10, Step: "b", Kinds: []plan.EventKind{plan.Started, plan.Succeeded}}, []int64{3, 5}, 5},
			{EventQuery{Limit: 10, After: 9}, nil, 9},
		} {
			events, last, err := s.EventPage(t.Context(), "p", c.q)
			var got []int64
			for _, e := range events {
				got = append(got, e.Seq)
			}
			if diff := cmp.Diff(c.want, got); diff != "" || last != c.last || err != nil {
				t.Errorf("%+v: last %d, %v %s", c.q, last, err, diff)
			}
		}
		if _, _, err := s.EventPage(t.Context(), "none", EventQuery{
			Limit: 1,
		}); director.KindOf(err) != director.KindNotFound {
			t.Errorf("err = %v, want not_found", err)
		}
	})
}

func TestBusyClusters(t *testing.T) {
	both(t, func(t *testing.T, open func() *Store) {
		s := open()
		history(t, s, "p1", "a", 100, plan.PlanStarted)
		history(t, s, "p2", "d", 101, plan.PlanStarted, plan.PlanDone)
		history(t, s, "p3", "b", 102)
		history(t, s, "p4", "c", 103, plan.PlanStarted)
		names, err := s.BusyClusters(t.Context(), 10)
		slices.Sort(names)
		if err != nil || !slices.Equal(names, []string{"a", "c"}) {
			t.Errorf("%v, %v", names, err)
		}
		if names, err = s.BusyClusters(t.Context(), 1); err != nil || len(names) != 1 {
			t.Errorf("one at most: %v, %v", names, err)
		}
	})
}
