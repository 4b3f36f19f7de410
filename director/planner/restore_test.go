package planner

import (
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

func restorable(t *testing.T, masters, workers int) World {
	t.Helper()
	w := backedUp(t, masters, workers, "offsite")
	w.Restore = &Restore{
		Backup: "b1", Target: "offsite", Made: time.Unix(1e9, 0), Kubernetes: v, Revision: 7, Size: 9, SHA256: "aa",
	}
	return w
}

func TestRestoreOnItsOwnMasters(t *testing.T) {
	t.Parallel()
	w := restorable(t, 3, 1)
	r := plan.Request{Operation: plan.ClusterRestore, Restore: plan.Restore{Backup: "b1"}}
	c, err := RestoreBackup(w, r)
	got := ids(t, c, err)
	want := []string{
		"restore.stage/demo-master-1", "restore.stage/demo-master-2", "restore.stage/demo-master-3", "backup/demo",
		"backup.store/offsite", "restore/demo", "kube.ready/demo", "verify/demo",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%v", got)
	}
	if len(c.Approvals) != 1 || !strings.Contains(c.Approvals[0], "2001-09-09 01:46 UTC (revision 7 of etcd)") {
		t.Errorf("approvals %q", c.Approvals)
	}
	// The backup of what is now may have the retention remove the one that is restored.
	play, _ := (&plan.Plan{Content: c}).Step("backup/demo")
	for _, m := range []string{"demo-master-1", "demo-master-2", "demo-master-3"} {
		if !slices.Contains(play.Needs, step.RestoreStage+"/"+m) {
			t.Errorf("another backup is made before this one was read on %s: %v", m, play.Needs)
		}
	}
	// A cluster that does not answer gives no backup of what it is now.
	w.Blind, w.Seen = "it is away", nil
	c, err = RestoreBackup(w, r)
	if got := ids(t, c, err); !slices.Equal(got, slices.Concat(want[:3], want[5:])) {
		t.Errorf("%v", got)
	}
}

func TestRestoreOnNewMasters(t *testing.T) {
	t.Parallel()
	w := restorable(t, 3, 2)
	w.Cluster.Cluster.Masters.Persist = nil
	w.Blind, w.Seen = "it is away", nil
	c, err := RestoreBackup(w, plan.Request{
		Operation: plan.ClusterRestore, Restore: plan.Restore{Backup: "b1", NewMasters: true},
	})
	got := ids(t, c, err)
	after := func(later string, sooner ...string) {
		t.Helper()
		at := slices.Index(got, later)
		for _, s := range sooner {
			if i := slices.Index(got, s); i < 0 || i > at {
				t.Errorf("%s does not come before %s: %v", s, later, got)
			}
		}
	}
	for _, m := range []string{"demo-master-1", "demo-master-2", "demo-master-3"} {
		after(step.VMRemove+"/"+m, "hold/demo")
		after(step.VMEnsure+"/"+m, step.VMRemove+"/"+m)
		after("masters/"+m, "prepare/"+m, "api_balancer/demo")
		after(step.RestoreStage+"/"+m, "masters/demo-master-3")
		after("restore/demo", step.RestoreStage+"/"+m)
		after("kube.ready/demo", step.NodeReady+"/"+m)
	}
	if len(c.Approvals) != 4 {
		t.Errorf("approvals %q", c.Approvals)
	}
	if slices.ContainsFunc(c.Steps, func(s plan.Step) bool {
		return s.Kind == step.VMRemove && strings.Contains(s.Node, "worker")
	}) {
		t.Error("a worker is made again")
	}
}

func TestNewMastersFindFormerData(t *testing.T) {
	t.Parallel()
	for directory, want := range map[string]struct{ refused, aside bool }{
		"/var/lib/etcd": {aside: true}, "/var/lib/etcd2": {}, "/var/lib/x": {},
		"/var/lib": {refused: true}, "/var/lib/etcd/member": {refused: true},
		"/etc/kubernetes": {refused: true}, "/etc": {refused: true}, "/var/lib/kubelet": {refused: true},
	} {
		w := restorable(t, 3, 1)
		w.Cluster.Cluster.Masters.Persist = []string{directory}
		c, err := RestoreBackup(w, plan.Request{
			Operation: plan.ClusterRestore, Restore: plan.Restore{Backup: "b1", NewMasters: true},
		})
		if got := director.KindOf(err) == director.KindConflict; got != want.refused {
			t.Errorf("%s: %v", directory, err)
		}
		p, aside := (&plan.Plan{Content: c}).Step("set_aside/demo-master-2")
		if aside != want.aside {
			t.Errorf("%s: aside %v", directory, aside)
		}
		if aside && !slices.Equal(p.Needs, []string{step.VMBoot + "/demo-master-2"}) {
			t.Errorf("%s: it needs %v", directory, p.Needs)
		}
	}
}

func TestRestoreIsRefused(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		change func(*World)
		kind   director.Kind
		want   string
	}{
		"no backup":      {func(w *World) { w.Restore = nil }, director.KindInvalid, "names no backup"},
		"not installed":  {func(w *World) { w.Installed = nil }, director.KindConflict, "is not installed"},
		"half upgraded":  {func(w *World) { w.Machines[0].Kubernetes = "v1.36.9" }, director.KindConflict, "wants"},
		"older backup":   {func(w *World) { w.Restore.Kubernetes = "v1.36.9" }, director.KindConflict, "was made with"},
		"younger backup": {func(w *World) { w.Restore.Kubernetes = "v1.99.0" }, director.KindConflict, "was made with"},
	} {
		w := restorable(t, 1, 1)
		tt.change(&w)
		_, err := RestoreBackup(w, plan.Request{Operation: plan.ClusterRestore})
		if director.KindOf(err) != tt.kind || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
