package planner

import (
	"encoding/json"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// hooked adds a hook to the world.
func hooked(w *World, name string, h model.Hook) {
	d := model.Document{Kind: model.KindHook, Metadata: model.Metadata{Name: name}, Hook: &h}
	model.Default(&d)
	w.Hooks = append(w.Hooks, model.Stored{Document: d, UID: "u-" + name, Generation: 1})
}

// wayOf returns the steps of the plan that concern the subject or ask a hook, each as "id <- needs", without rollback.
func wayOf(c plan.Content, about string) []string {
	var out []string
	for _, s := range c.Steps {
		if !s.Back() && (strings.HasSuffix(s.ID, "/"+about) || strings.HasSuffix(s.ID, "."+about)) {
			out = append(out, s.ID+" <- "+strings.Join(s.Needs, " "))
		}
	}
	return out
}

func TestHooksStandAroundTheStepsOfTheirPhases(t *testing.T) {
	t.Parallel()
	const node = "demo-worker-1"
	w := running(t, 1, 1, v)
	release(&w, "v1.38.0")
	w.Cluster.Cluster.Maintenance.Strategy = model.UpgradeInPlace
	hooked(&w, "cmdb", model.Hook{Phases: model.HookPhases(), Select: model.HookSelect{Roles: []string{"worker"}}})
	c, err := Apply(w, plan.Request{})
	ids(t, c, err)
	h := func(phase string) string { return step.HookID(phase, "cmdb", node) }
	want := []string{
		h("before.lock") + " <- kube.traffic/demo",
		h("before.drain") + " <- " + h("before.lock") + " kube.traffic/demo",
		"drain/" + node + " <- " + h("before.drain") + " " + h("before.lock") + " kube.traffic/demo",
		h("after.drain") + " <- drain/" + node,
		h("after.lock") + " <- " + h("after.drain"),
		"snapshot.take/" + node + " <- drain/" + node + " " + h("after.lock"),
		h("before.upgrade") + " <- snapshot.take/" + node,
		"upgrade/" + node + " <- " + h("before.upgrade") + " snapshot.take/" + node,
		h("after.upgrade") + " <- upgrade/" + node,
		h("before.verify") + " <- upgrade/" + node + " " + h("after.upgrade"),
		"node.ready/" + node + " <- " + h("before.verify") + " upgrade/" + node + " " + h("after.upgrade"),
		h("after.verify") + " <- node.ready/" + node,
		h("before.unlock") + " <- node.ready/" + node + " " + h("after.verify"),
		"uncordon/" + node + " <- " + h("before.unlock") + " node.ready/" + node + " " + h("after.verify"),
		h("after.unlock") + " <- uncordon/" + node,
		"snapshot.delete/" + node + " <- uncordon/" + node + " " + h("after.unlock"),
	}
	if diff := cmp.Diff(want, wayOf(c, node)); diff != "" {
		t.Error(diff)
	}
	if first, last := c.Steps[0].ID, c.Steps[len(c.Steps)-1].ID; first != step.HookID("before.plan", "cmdb", "demo") ||
		last != step.HookID("after.plan", "cmdb", "demo") {
		t.Errorf("the plan begins with %s and ends with %s", first, last)
	}
	for _, s := range c.Steps {
		if step.IsHook(s.ID) && strings.Contains(s.ID, "master") {
			t.Errorf("%s is of a master", s.ID)
		}
		if step.IsHook(s.ID) && (s.Window != "workers") != (s.Node == "") {
			t.Errorf("%s is of node %q in window %q", s.ID, s.Node, s.Window)
		}
	}
}

// A refusal between the steps of a node rolls it back as far as a failure at the same place would, and no further.
func TestARefusalRollsBackWhatCameBefore(t *testing.T) {
	t.Parallel()
	const node = "demo-worker-1"
	for strategy, want := range map[string]map[string]string{
		model.UpgradeInPlace: {
			"vm.remove-undo": "before.verify after.upgrade after.verify before.unlock",
			"uncordon-undo": "after.drain after.lock before.upgrade after.upgrade before.verify after.verify " +
				"before.unlock",
		},
		model.UpgradeReplace: {
			"uncordon-undo": "after.drain after.lock before.delete",
		},
	} {
		t.Run(strategy, func(t *testing.T) {
			t.Parallel()
			w := running(t, 3, 1, v)
			former(&w)
			release(&w, "v1.38.0")
			w.Cluster.Cluster.Maintenance.Strategy = strategy
			hooked(&w, "cmdb", model.Hook{
				Phases: model.HookPhases(),
				Select: model.HookSelect{Roles: []string{"worker"}},
			})
			c, err := Apply(w, plan.Request{})
			ids(t, c, err)
			for _, s := range c.Steps {
				phases, ok := want[s.Class()+"-undo"]
				if !s.Back() || !ok || strings.HasSuffix(s.ID, "/demo-worker-2") {
					continue
				}
				var got []string
				for _, u := range s.Undoes {
					if step.IsHook(u) && strings.HasSuffix(u, "."+node) {
						phase, _, _ := strings.Cut(strings.TrimPrefix(u, step.HookAsk+"/"), ".cmdb.")
						got = append(got, phase)
					}
				}
				slices.Sort(got)
				all := strings.Fields(phases)
				slices.Sort(all)
				if diff := cmp.Diff(all, got); diff != "" {
					t.Errorf("%s: %s", s.ID, diff)
				}
			}
		})
	}
}

func TestWhichHooksAPlanAsks(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		hook model.Hook
		want int
	}{
		"of all": {model.Hook{Phases: []string{"before.plan"}}, 1},
		"of this cluster": {model.Hook{
			Phases: []string{"before.plan"},
			Select: model.HookSelect{Clusters: []string{"demo"}},
		}, 1},
		"of another": {model.Hook{
			Phases: []string{"before.plan"},
			Select: model.HookSelect{Clusters: []string{"x"}},
		}, 0},
		"of masters": {model.Hook{
			Phases: []string{"before.delete"},
			Select: model.HookSelect{Roles: []string{"master"}},
		}, 1},
		"of all nodes":        {model.Hook{Phases: []string{"before.delete"}}, 2},
		"before and after":    {model.Hook{Phases: []string{"before.plan", "after.plan"}}, 2},
		"of what it has not":  {model.Hook{Phases: []string{"before.upgrade"}}, 0},
		"with a notification": {model.Hook{Phases: []string{"after.delete"}, Mode: model.HookNotify}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			w := running(t, 1, 1, v)
			hooked(&w, "a", test.hook)
			c, err := Delete(w, plan.Request{})
			if err == nil {
				err = c.Check()
			}
			if err != nil {
				t.Fatal(err)
			}
			n := 0
			for _, s := range c.Steps {
				if !step.IsHook(s.ID) {
					continue
				}
				n++
				var p step.HookParams
				if err := json.Unmarshal(s.Params, &p); err != nil {
					t.Fatal(err)
				}
				if p.Blocks() != (test.hook.Mode != model.HookNotify) || p.Blocks() && p.Deadline != 30*time.Minute {
					t.Errorf("%s has %+v", s.ID, p)
				}
			}
			if n != test.want {
				t.Errorf("it asks %d times, and should %d times", n, test.want)
			}
		})
	}
}
