package api_test

import (
	"context"
	"net/http"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/journal"
	"github.com/director-kaas/kaas/director/nodes"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
)

// counted is a fleet of which only the numbers are known.
type counted struct{ is nodes.Count }

// List has one node of the cluster demo.
func (c counted) List(_ context.Context, q nodes.Query) ([]nodes.Listed, *director.Place, error) {
	if q.Sort != "name" {
		return nil, nil, director.Errorf(director.KindInvalid, "test.list", "nodes cannot be sorted by %q", q.Sort)
	}
	return []nodes.Listed{{
		Cluster: q.Clusters[0], Status: nodes.StateReady, Seen: c.is.Next, Node: nodes.Node{
			Name: "demo-master-1", Role: "master", Kubelet: "v1.37.1", Ready: true, Etcd: true,
			Certificates: []nodes.Certificate{{Name: "etcd", Ends: c.is.Next}},
		},
	}}, nil, nil
}

func (c counted) Count(context.Context, nodes.Query) (nodes.Count, error) { return c.is, nil }

// waiting are waits as they are.
type waiting []journal.Waiting

func (w waiting) Waits(context.Context, journal.WaitQuery) ([]journal.Waiting, error) {
	return slices.Clone(w), nil
}

func (w waiting) PlanCounts(context.Context, *director.Visible) (map[string]int, error) {
	return map[string]int{"planned": 2, "failed": 1}, nil
}

func fleetSetup(t *testing.T, approval string) *bundle {
	t.Helper()
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	return setup(t, func(c *api.Config) {
		c.Settings = wire.Settings{Approval: approval}
		c.Fleet = counted{nodes.Count{
			Total: 5, States: map[string]int{"ready": 4, "problem": 1}, Problem: 1, Ending: 2, Ended: 1, Next: at,
			Soon: at.Add(time.Hour),
		}}
		c.Waits = waiting{
			{Kind: "person", Plan: "p1", Cluster: "demo", By: "admin", Approval: true, Status: plan.StatusPlanned},
			{Kind: "person", Plan: "p2", Cluster: "demo", By: "ann", Approval: true, Status: plan.StatusPlanned},
			{Kind: "person", Plan: "p3", Cluster: "demo", By: "admin", Status: plan.StatusFailed},
			{Kind: "plan", Plan: "p4", Cluster: "demo", By: "ann", Status: plan.StatusRunning},
		}
	})
}

func TestSummary(t *testing.T) {
	t.Parallel()
	b := fleetSetup(t, "none")
	var got wire.Summary
	b.do(t, http.MethodGet, "/summary", "", http.StatusOK, &got)
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	want := wire.Summary{
		At: got.At, Waits: map[string]int{"person": 3, "plan": 1, "director": 0}, Mine: 3, Nodes: 5, Problems: 1,
		Conditions:   map[string]int{"ready": 4, "problem": 1, "cordoned": 0, "pending": 0, "unseen": 0},
		Certificates: wire.Certificates{Ended: 1, Ending: 2, Before: at.Add(time.Hour), NextAt: &at},
		Plans:        map[string]int{}, ClusterStatus: map[string]int{}, Releases: map[string]int{},
	}
	for _, s := range plan.Statuses() {
		want.Plans[string(s)] = 0
	}
	want.Plans["planned"], want.Plans["failed"] = 2, 1
	if diff := cmp.Diff(want, got); diff != "" || time.Since(got.At) > time.Minute {
		t.Error(diff, got.At)
	}
}

func TestClusterHealth(t *testing.T) {
	t.Parallel()
	b := fleetSetup(t, "none")
	b.apply(t, "")
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	var got wire.ClusterHealth
	b.do(t, http.MethodGet, "/clusters/demo/health", "", http.StatusOK, &got)
	want := wire.ClusterHealth{
		State: "good", Nodes: 1, Conditions: map[string]int{"ready": 1}, Versions: map[string]int{"v1.37.1": 1},
		EtcdMembers: []string{"demo-master-1"}, SeenAt: &at,
		Certificate: &wire.NextCertificate{Node: "demo-master-1", Name: "etcd", EndsAt: at},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	if p := problemOf(t, b.send(t, http.MethodGet, "/clusters/none/health", "")); p.Status != http.StatusNotFound {
		t.Errorf("of none: %+v", p)
	}
}

// Whose wait it is depends on what the user may do, and on who may agree to the plan.
func TestWhoseWaits(t *testing.T) {
	t.Parallel()
	for approval, want := range map[string]map[string]string{
		"none":  {"admin": "p1 p2 p3 | p1 p2 p3 p4", "ursula": " | p1 p2 p3 p4"},
		"any":   {"admin": "p1 p2 p3 | p1 p2 p3 p4"},
		"other": {"admin": "p2 p3 | p1 p2 p3 p4"},
	} {
		b := fleetSetup(t, approval)
		user, err := b.users.GetUser(t.Context(), "admin")
		if err != nil {
			t.Fatal(err)
		}
		user.Name, user.Role = "ursula", director.RoleUser
		if err := b.users.PutUser(t.Context(), user); err != nil {
			t.Fatal(err)
		}
		for name, waits := range want {
			var s wire.Session
			b.do(t, http.MethodPost, "/login", `{"user":"`+name+`","password":"`+password+`"}`, http.StatusOK, &s)
			b.token = s.Token
			got := b.walk(t, "/waits?mine=true", "plan") + " | " + b.walk(t, "/waits?limit=100", "plan")
			if got != waits {
				t.Errorf("%s, where %s approves: %s, not %s", name, approval, got, waits)
			}
			var counts wire.Summary
			b.do(t, http.MethodGet, "/summary", "", http.StatusOK, &counts)
			var mine wire.PlanWaits
			b.do(t, http.MethodGet, "/waits?mine=true", "", http.StatusOK, &mine)
			if counts.Mine != mine.Total {
				t.Errorf("%s: %d in the summary, %d in the list", name, counts.Mine, mine.Total)
			}
		}
	}
}
