package planner

import (
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// Backup returns the plan that takes a snapshot of etcd and stores it in each target of the cluster. Errors: conflict
// for a cluster that is not installed or names no target.
func Backup(w World, r plan.Request) (plan.Content, error) {
	const op = "planner.backup"
	name := w.Cluster.Metadata.Name
	if w.Installed == nil || len(w.masters()) == 0 {
		return plan.Content{}, notInstalled(op, name)
	}
	targets := w.Cluster.Cluster.Backup.Targets
	if len(targets) == 0 {
		return plan.Content{}, conflict(
			op, "cluster "+name+" names no backup target", "name one in spec.backup.targets of Cluster/"+name,
		)
	}
	d := w.draft(plan.ClusterBackup)
	d.Request = r
	d.backup("", nil)
	var all []sized
	for _, m := range w.alive() {
		all = append(all, w.sized(m))
	}
	var masters []sized
	for _, m := range w.masters() {
		masters = append(masters, w.sized(m))
	}
	d.concerns(masters...)
	d.Facts = encode(w.facts(all))
	d.Summary = "Back up etcd of cluster " + name + " to " + strings.Join(targets, ", ") + "."
	return d.done(), nil
}

// backup takes the snapshot and stores it in each target. It returns the last step.
func (d *builder) backup(reason string, needs []string) string {
	var masters []plan.MachineSpec
	var names []string
	for _, m := range d.w.masters() {
		masters = append(masters, plan.SpecOf(m))
		names = append(names, m.Name)
	}
	last := d.play(playbook{
		name: "backup", subject: d.Cluster, title: "Take a snapshot of etcd", limit: names,
		effects: []plan.Effect{
			{Verb: "create", Object: "file", Name: "snapshot of etcd", Detail: "on one master, until it is stored"},
		}, estimate: 15 * time.Second,
	}, needs, group{})
	targets := d.w.Cluster.Cluster.Backup.Targets
	for i, target := range targets {
		last = d.add(plan.Step{
			ID: step.BackupStore + "/" + target, Kind: step.BackupStore, Title: "Store the snapshot in " + target,
			Needs: []string{last},
			Params: encode(step.BackupParams{
				UID: d.w.Cluster.UID, Cluster: d.Cluster, Target: target, Reason: reason, Masters: masters,
				Last: i == len(targets)-1,
			}),
			Effects: []plan.Effect{
				{Verb: "create", Object: "backup", Name: target, Detail: "encrypted, read back and compared"},
			},
			Attempts: 3, Timeout: time.Hour, Estimate: 10 * time.Second,
		})
	}
	return last
}

// backsUp are the operations on an installed cluster that a snapshot comes before, when they work on masters.
var backsUp = []plan.Operation{
	plan.ClusterScale, plan.ClusterUpgrade, plan.ClusterRotateCerts, plan.ClusterSigningKey,
	plan.ClusterCA, plan.ClusterEtcdCA, plan.ClusterFrontProxyCA, plan.NodeDelete, plan.NodeRejoin, plan.NodeReplace,
}

// backupFirst puts a snapshot of etcd before all steps of a plan that changes masters, if the cluster has a target.
func (d *builder) backupFirst() {
	if d.w.Installed == nil || len(d.w.Cluster.Cluster.Backup.Targets) == 0 || len(d.w.masters()) == 0 ||
		!slices.Contains(backsUp, d.Operation) || d.Request.Certificates.Cold || !d.changesMasters() {
		return
	}
	steps := d.Steps
	d.Steps = nil
	last := d.backup("before "+string(d.Operation), nil)
	for _, s := range steps {
		if len(s.Needs) == 0 && !s.Back() {
			s.Needs = []string{last}
		}
		d.Steps = append(d.Steps, s)
	}
}

func (d *builder) changesMasters() bool {
	return slices.ContainsFunc(d.Steps, func(s plan.Step) bool {
		return slices.ContainsFunc(d.Machines, func(m plan.Machine) bool {
			return m.Name == s.Node && m.Role == string(director.RoleMaster)
		})
	})
}
