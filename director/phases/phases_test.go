package phases

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/servicetest"
	"github.com/director-kaas/kaas/director/store"
)

// A request names what its phase is about, and nothing else; all that is wrong comes back at once.
func TestRequestsFitTheirPhase(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		request director.PhaseRequest
		wrong   []string // fields
	}{
		"a host":     {request: director.PhaseRequest{Phase: director.PhasePreNodeLock, Host: "h1"}},
		"a node":     {request: director.PhaseRequest{Phase: director.PhasePostNodeUnlock, Node: "n1"}},
		"a cluster":  {request: director.PhaseRequest{Phase: director.PhaseCluster, Cluster: "demo"}},
		"no host":    {director.PhaseRequest{Phase: director.PhasePreNodeLock}, []string{"host"}},
		"no cluster": {director.PhaseRequest{Phase: director.PhasePostCluster}, []string{"cluster"}},
		"both": {
			director.PhaseRequest{Phase: director.PhasePreNodeLock, Host: "h1", Node: "n1"},
			[]string{"host"},
		},
		"all of them": {director.PhaseRequest{Phase: director.PhaseCluster, Host: "h1"}, []string{"cluster", "host"}},
		"a host's cluster": {
			director.PhaseRequest{Phase: director.PhasePreNodeLock, Host: "h1", Cluster: "demo"}, []string{"cluster"},
		},
		"an install": {request: director.PhaseRequest{Phase: director.PhaseCluster, Cluster: "demo", Install: true}},
		"a late install": {
			director.PhaseRequest{Phase: director.PhasePostCluster, Cluster: "demo", Install: true},
			[]string{"install"},
		},
		"keys of hosts that leave": {
			director.PhaseRequest{Phase: director.PhasePreNodeLock, Host: "h1", HostKeys: "n1 key"},
			[]string{"host_keys"},
		},
	} {
		var got []string
		for _, f := range director.FieldsOf(check(tt.request)) {
			got = append(got, f.Path)
		}
		if diff := cmp.Diff(tt.wrong, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// health is how the nodes of every cluster are.
type health struct {
	ill    []string
	unseen string
	err    error
}

func (h *health) Ill(context.Context, string) ([]string, string, error) {
	return h.ill, h.unseen, h.err
}

// noWorld fails whoever reads it: a phase of a cluster as a whole needs no plan.
type noWorld struct{}

func (noWorld) World(context.Context, string) (planner.World, error) {
	return planner.World{}, errors.New("the world was read")
}

// The phases of a cluster as a whole are refused, with what to do, as long as it is not installed or a node is not
// well, and are done at once otherwise. What was refused is not kept.
func TestAClusterAsAWhole(t *testing.T) {
	t.Parallel()
	l := servicetest.Open(t, 1, 1)
	ctx := t.Context()
	nodes := &health{}
	s := New(Config{Store: l.Store, Worlds: noWorld{}, Nodes: nodes, Now: time.Now})
	ask := func(id string) (View, error) {
		return s.AskPhase(ctx, "outer", id, director.PhaseRequest{Phase: director.PhaseCluster, Cluster: "c000"})
	}
	refused := func(words ...string) {
		t.Helper()
		_, err := ask("t1")
		servicetest.WantKind(t, err, director.KindConflict, words...)
		if _, err := s.Phase(ctx, "t1"); director.KindOf(err) != director.KindNotFound {
			t.Errorf("what was refused is kept: %v", err)
		}
	}
	refused("is not installed", "directorctl plan c000")
	doc := l.Docs["c000"]
	if err := l.Store.Update(ctx, func(tx *store.Tx) error {
		return tx.PutInstalled(store.Installed{UID: doc.UID, Name: "c000", Document: doc.Document, At: time.Now()})
	}); err != nil {
		t.Fatal(err)
	}
	nodes.ill = []string{"c000-w-1: it is not ready"}
	refused("c000-w-1: it is not ready", "directorctl node repair c000")
	nodes.unseen = "no answer"
	refused("no answer", "directorctl node list c000")
	*nodes = health{}
	v, err := ask("t1")
	if err != nil || v.State != director.PhaseDone || v.Finished.IsZero() {
		t.Fatalf("%+v, %v", v, err)
	}
	nodes.ill = []string{"c000-w-1: it is not ready"} // what was answered stays answered
	if v, err := ask("t1"); err != nil || v.State != director.PhaseDone {
		t.Errorf("%+v, %v", v, err)
	}
	_, err = s.AskPhase(ctx, "outer", "t1", director.PhaseRequest{Phase: director.PhasePostCluster, Cluster: "c000"})
	servicetest.WantKind(t, err, director.KindConflict, "task t1 was given for")
}

// A cluster that a plan holds is waited for, and the task says which plan that is.
func TestATaskWaitsForAPlan(t *testing.T) {
	t.Parallel()
	l := servicetest.Open(t, 1, 1)
	ctx := t.Context()
	doc := l.Docs["c000"]
	if err := l.Store.Update(ctx, func(tx *store.Tx) error {
		return tx.PutInstalled(store.Installed{UID: doc.UID, Name: "c000", Document: doc.Document, At: time.Now()})
	}); err != nil {
		t.Fatal(err)
	}
	if err := l.AddPlan(ctx, "p1", true, l.Made["c000-w-1"]); err != nil {
		t.Fatal(err)
	}
	s := New(Config{Store: l.Store, Worlds: noWorld{}, Nodes: &health{}, Now: time.Now})
	v, err := s.AskPhase(ctx, "outer", "t1", director.PhaseRequest{Phase: director.PhaseCluster, Cluster: "c000"})
	if err != nil || v.State != director.PhaseWaiting || !strings.Contains(v.Message, "p1") {
		t.Fatalf("%+v, %v", v, err)
	}
	if err := l.EndPlan(ctx, "p1", plan.PlanDone); err != nil {
		t.Fatal(err)
	}
	if v, err = s.Phase(ctx, "t1"); err != nil || v.State != director.PhaseDone {
		t.Errorf("%+v, %v", v, err)
	}
}
