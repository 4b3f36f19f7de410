package nodes

import (
	"log/slog"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/servicetest"
	"github.com/director-kaas/kaas/director/snapshot"
)

// A VM that its plan left behind half way is a problem as soon as the plan holds the cluster no more.
func TestAVMThatHasNotJoined(t *testing.T) {
	t.Parallel()
	l := servicetest.Open(t, 1, 2)
	s := New(Config{
		Store: l.Store, Clusters: l.Env, Director: l.Director.ID, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Worlds: snapshot.New(snapshot.Config{
			Store: l.Store, Backends: l.Env.Backends, Clusters: l.Env, Director: l.Director,
			Bundles: snapshot.Bundles{Dirs: confine.Dirs{"/"}, Gate: l.Env.Gate},
		}),
	})
	made, intended := l.Made["c000-w-1"], l.Made["c000-w-2"]
	if err := l.AddPlan(t.Context(), "p1", true, made, intended); err != nil {
		t.Fatal(err)
	}
	l.MakeVM(t, made)
	look := func() map[string]Node {
		t.Helper()
		v, err := s.Nodes(t.Context(), "c000")
		if err != nil {
			t.Fatal(err)
		}
		out := map[string]Node{}
		for _, n := range v.Nodes {
			out[n.Name] = n
		}
		return out
	}
	if n := look()[made.Name]; n.Power != "on" || n.Problem != "" || n.Hint != "" {
		t.Errorf("while its plan runs: %+v", n)
	}
	if err := l.EndPlan(t.Context(), "p1", plan.PlanFailed); err != nil {
		t.Fatal(err)
	}
	after := look()
	if n := after[made.Name]; n.Problem != "it has not joined the cluster" || n.Repair != "" ||
		n.Hint != "directorctl plan c000" {
		t.Errorf("after its plan: %+v", n)
	}
	if n := after[intended.Name]; n.Problem != "" || n.Hint != "" {
		t.Errorf("a machine that was never made: %+v", n)
	}
	ill, _, err := s.Ill(t.Context(), "c000")
	if err != nil || len(ill) != 2 || ill[0] != "c000-w-1: it has not joined the cluster (directorctl plan c000)" {
		t.Errorf("ill are %q, %v", ill, err)
	}
}

// Looks at nodes read less than plans do, and see the same nodes.
func TestMembersAreThoseOfTheWorld(t *testing.T) {
	t.Parallel()
	l := servicetest.Open(t, 2, 2)
	for plan, made := range map[string][]string{"p0": {"c000-w-1", "c000-w-2"}, "p1": {"c001-w-1", "c001-w-2"}} {
		if err := l.AddPlan(t.Context(), plan, true, l.Made[made[0]], l.Made[made[1]]); err != nil {
			t.Fatal(err)
		}
	}
	reader := snapshot.New(snapshot.Config{
		Store: l.Store, Backends: l.Env.Backends, Clusters: l.Env, Director: l.Director,
		Bundles: snapshot.Bundles{Dirs: confine.Dirs{"/"}, Gate: l.Env.Gate},
	})
	world, err := reader.World(t.Context(), "c000")
	if err != nil {
		t.Fatal(err)
	}
	members, err := reader.Members(t.Context(), "c000")
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(world.Nodes(), members.Nodes()); diff != "" || len(members.Nodes()) == 0 {
		t.Errorf("nodes (-world +members):\n%s", diff)
	}
	if diff := cmp.Diff(world.Spare(), members.Spare()); diff != "" {
		t.Errorf("what is too many (-world +members):\n%s", diff)
	}
	if members.Provider.Metadata.Name != world.Provider.Metadata.Name ||
		members.Release.Metadata.Name != world.Release.Metadata.Name ||
		(members.Installed == nil) != (world.Installed == nil) {
		t.Errorf("other documents: %+v", members)
	}
}
