package daemon

import (
	"context"
	"io"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/simulate"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/wire"
)

// drilling is a director with a cluster that has a backup, and a network for drills.
func drilling(t *testing.T, change func(*Config)) (Config, *Daemon, *client.Client) {
	t.Helper()
	targets := t.TempDir()
	documents := strings.Replace(
		threeHosts, "  masters: {count: 3}\n",
		"  masters: {count: 3}\n  backup: {targets: [near], drill: {network: drills}}\n", 1,
	) + `---
apiVersion: kaas/v1
kind: Network
metadata: {name: drills}
spec: {provider: lab, mode: isolated, cidr: 10.90.0.0/24, pool: {from: 10.90.0.10, to: 10.90.0.19}}
---
apiVersion: kaas/v1
kind: BackupTarget
metadata: {name: near}
spec: {type: directory, directory: ` + filepath.Join(targets, "near") + `}
`
	c := simulating(t, documents)
	c.BackupDirs = confine.Dirs{targets}
	if change != nil {
		change(&c)
	}
	d, api := created(t, c)
	run(t, api, plan.ClusterBackup)
	return c, d, api
}

// awaitPlan waits until the plan is as wanted.
func awaitPlan(t *testing.T, api *client.Client, id string, wanted func(p wire.Plan) bool) wire.Plan {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for tick := time.NewTicker(50 * time.Millisecond); ; <-tick.C {
		p, err := api.Plan(ctx, id)
		if err != nil {
			t.Fatal(err)
		}
		if wanted(p) {
			return p
		}
	}
}

func drillState(t *testing.T, api *client.Client) wire.Drills {
	t.Helper()
	b, err := api.Backups(t.Context(), "demo", false)
	if err != nil || len(b.Clusters) != 1 || b.Clusters[0].Drills == nil {
		t.Fatalf("%+v, %v", b, err)
	}
	return *b.Clusters[0].Drills
}

// noDrillLeft wants that neither the ledger, nor the hypervisor, nor the secrets know anything of a drill.
func noDrillLeft(t *testing.T, c Config, d *Daemon) {
	t.Helper()
	db := d.services.db
	rows, err := db.Machines(t.Context(), store.MachineFilter{})
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range rows {
		if m.Name == "demo-drill" {
			t.Errorf("the ledger has %+v", m)
		}
	}
	vms, err := sim.Open(openWorld(t, c)).List(t.Context(), hypervisor.Filter{Strangers: true})
	if err != nil || len(vms) != 6 ||
		slices.ContainsFunc(vms, func(vm hypervisor.VM) bool { return vm.Name == "demo-drill" }) {
		t.Errorf("the hypervisor has %d VMs: %v", len(vms), err)
	}
	in, _, err := db.Installed(t.Context(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pki", "encryption-keys", "ssh-user-ca"} {
		own, err := db.Secret(t.Context(), director.DrillUID(in.UID), name)
		of, oerr := db.Secret(t.Context(), in.UID, name)
		if err != nil || oerr != nil || own != nil || of == nil && name != "encryption-keys" {
			t.Errorf("the secret %s of the drill is there: %t, and the cluster's: %t", name, own != nil, of != nil)
		}
	}
}

// A drill leaves nothing, does not hold its cluster, and is told by API, job and list.
func TestDrill(t *testing.T) {
	t.Parallel()
	c, d, api := drilling(t, nil)
	if s := drillState(t, api); s.Network != "drills" || s.Newest != nil || s.Late {
		t.Errorf("before the first drill: %+v", s)
	}
	id := started(t, api, plan.ClusterDrill)
	if _, err := api.MakePlan(
		t.Context(), "demo", plan.Request{Operation: plan.ClusterDrill},
	); director.KindOf(err) != director.KindConflict {
		t.Errorf("a second drill at once: %v", err)
	}
	run(t, api, plan.ClusterBackup) // the cluster is free meanwhile
	done := awaitPlan(t, api, id, func(p wire.Plan) bool { return plan.Status(p.Status).Ended() })
	if done.Status != string(plan.StatusDone) {
		t.Fatalf("the drill is %s: %s", done.Status, done.Message)
	}
	noDrillLeft(t, c, d)
	s := drillState(t, api)
	if s.Newest == nil || !s.Newest.OK || s.Newest.Plan != id || s.Newest.Keys != 45 || s.Newest.EndedAt == nil ||
		s.LastAt == nil || s.Newest.Backup == "" {
		t.Errorf("after the drill: %+v", s.Newest)
	}

	text := "apiVersion: kaas/v1\nkind: Schedule\nmetadata: {name: drills}\n" +
		"spec: {cron: \"@yearly\", job: {name: restore-drill, params: {clusters: [demo]}}}\n"
	if _, err := api.Apply(t.Context(), []byte(text), "x", false); err != nil {
		t.Fatal(err)
	}
	if said := ranJob(t, api, "drills"); !strings.Contains(said, "done: demo: backup ") ||
		!strings.Contains(said, "45 keys are as its manifest says") {
		t.Errorf("the job says %q", said)
	}
	noDrillLeft(t, c, d)
}

// ranJob runs the schedule and returns how it went.
func ranJob(t *testing.T, api *client.Client, name string) string {
	t.Helper()
	if _, err := api.RunSchedule(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	for tick := time.NewTicker(50 * time.Millisecond); ; <-tick.C {
		s, err := api.Schedule(ctx, name)
		if err != nil {
			t.Fatal(err)
		}
		if r := s.Runs[0]; r.FinishedAt != nil {
			return r.Status + ": " + r.Message
		}
	}
}

// A drill that fails deletes its VM, says why, and does not stop the next one.
func TestDrillThatFails(t *testing.T) {
	t.Parallel()
	c, d, api := drilling(t, func(c *Config) {
		c.Simulation.Plays.Faults = []simulate.PlayFault{
			{Playbook: "drill", Outcome: "failed", Percent: 100, Msg: "no API server is ready"},
		}
	})
	id := started(t, api, plan.ClusterDrill)
	failed := awaitPlan(t, api, id, func(p wire.Plan) bool { return plan.Status(p.Status).Ended() })
	if failed.Status != string(plan.StatusFailed) || !strings.Contains(failed.Message, "no API server is ready") ||
		!strings.Contains(failed.Message, "The VM of the drill is deleted") {
		t.Errorf("the drill is %s: %s", failed.Status, failed.Message)
	}
	noDrillLeft(t, c, d)
	if s := drillState(t, api); s.Newest == nil || s.Newest.OK || s.Newest.Problem == "" || s.LastAt != nil {
		t.Errorf("after the drill: %+v", s)
	}
	if _, err := api.RetryPlan(t.Context(), id, ""); director.KindOf(err) != director.KindConflict ||
		!strings.Contains(director.HintOf(err), "directorctl backup drill demo") {
		t.Errorf("the drill is tried again: %v", err)
	}
	second := started(t, api, plan.ClusterDrill)
	again := awaitPlan(t, api, second, func(p wire.Plan) bool { return plan.Status(p.Status).Ended() })
	if again.Status != string(plan.StatusFailed) {
		t.Errorf("the next drill is %s", again.Status)
	}
	noDrillLeft(t, c, d)
}

// The VM of a drill that a person cancels is deleted, by itself and over a new start of the director, and its plan is
// not given up before that.
func TestDrillThatIsCancelled(t *testing.T) {
	t.Parallel()
	c, d, api := drilling(t, nil)
	hold := func(p wire.Plan) bool {
		return slices.ContainsFunc(p.Steps, func(s wire.Step) bool {
			return strings.HasPrefix(s.ID, "vm.boot/") && s.Status != string(plan.Pending)
		})
	}
	id := started(t, api, plan.ClusterDrill)
	awaitPlan(t, api, id, hold)
	if _, err := api.SkipStep(t.Context(), id, "vm.delete/demo-drill", "why not"); director.KindOf(err) !=
		director.KindConflict || !strings.Contains(director.HintOf(err), "directorctl cancel") {
		t.Errorf("a step of a drill is left out: %v", err)
	}
	if _, err := api.CancelPlan(t.Context(), id, true); err != nil {
		t.Fatal(err)
	}
	awaitPlan(t, api, id, func(p wire.Plan) bool { return p.Status != string(plan.StatusCancelling) })
	if _, err := api.DiscardPlan(t.Context(), id); err == nil {
		// It was faster than this test: then its VM is gone.
		noDrillLeft(t, c, d)
		return
	} else if director.KindOf(err) != director.KindConflict {
		t.Errorf("the plan of a drill was given up: %v", err)
	}
	if err := d.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	d, err := start(t, c, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	api = connect(t, c, d)
	awaitPlan(t, api, id, func(p wire.Plan) bool { return p.Status == string(plan.StatusUndone) })
	noDrillLeft(t, c, d)
}
