package planner

import (
	"slices"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

func backedUp(t *testing.T, masters, workers int, targets ...string) World {
	t.Helper()
	w := running(t, masters, workers, v)
	want(&w, func(c *model.Cluster) { c.Backup.Targets = targets })
	w.Installed.Cluster = *w.Cluster.Cluster
	return w
}

func TestBackup(t *testing.T) {
	t.Parallel()
	c, err := Backup(backedUp(t, 3, 1, "offsite", "near"), plan.Request{Operation: plan.ClusterBackup})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, s := range c.Steps {
		got = append(got, s.ID)
	}
	if !slices.Equal(got, []string{"backup/demo", "backup.store/offsite", "backup.store/near"}) ||
		len(c.Approvals) > 0 {
		t.Errorf("%v, approvals %v", got, c.Approvals)
	}
	if err := c.Check(); err != nil {
		t.Error(err)
	}
	for name, w := range map[string]World{"no target": backedUp(t, 1, 1), "not installed": demo(t)} {
		if _, err := Backup(w, plan.Request{}); director.KindOf(err) != director.KindConflict {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A snapshot comes before everything else of a plan that works on masters, and before no other plan.
func TestSnapshotBeforeWorkOnMasters(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		nodes  []string
		before bool
	}{"a master": {[]string{"demo-master-2"}, true}, "a worker": {[]string{"demo-worker-1"}, false}} {
		w := backedUp(t, 3, 2, "offsite")
		c, err := Node(w, plan.Request{Operation: plan.NodeReplace, Nodes: tt.nodes})
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if first := c.Steps[0].Kind == step.Play && c.Steps[0].ID == "backup/demo"; first != tt.before {
			t.Errorf("%s: the first step is %s", name, c.Steps[0].ID)
		}
		if err := c.Check(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		for _, s := range c.Steps[1:] {
			if tt.before && len(s.Needs) == 0 {
				t.Errorf("%s: %s does not wait for the snapshot", name, s.ID)
			}
		}
	}
}
