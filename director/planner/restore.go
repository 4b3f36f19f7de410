package planner

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// Restore is the backup that a cluster is restored from.
type Restore struct {
	Backup     string // its id
	Target     string
	Made       time.Time
	Kubernetes string // version of the cluster then
	Revision   int64
	Size       int64  // of the snapshot
	SHA256     string // of the snapshot
	// FormerKeys are names of keys that Secrets in it are encrypted with and that the cluster has no more.
	FormerKeys []string
}

// RestoreBackup returns the plan that puts a snapshot instead of the data of etcd on all masters. With new
// masters, their VMs are destroyed and made again before, with the same names, addresses and authorities; the workers
// stay. Errors: invalid for a request without a backup, conflict for a cluster that is not installed or is of another
// version.
func RestoreBackup(w World, r plan.Request) (plan.Content, error) {
	if err := w.checkRestore(); err != nil {
		return plan.Content{}, err
	}
	d := w.draft(plan.ClusterRestore)
	d.Request = r
	var masters, workers, all []sized
	for _, m := range w.members() {
		if m.Role == director.RoleMaster {
			masters = append(masters, w.sized(m))
		} else {
			workers = append(workers, w.sized(m))
		}
	}
	for _, m := range w.alive() {
		all = append(all, w.sized(m))
	}
	b := w.Restore
	when := b.Made.UTC().Format("2006-01-02 15:04 UTC")
	d.Approvals = append(d.Approvals, fmt.Sprintf(
		"it restores the state of cluster %s of %s (revision %d of etcd): what has changed in the cluster since then "+
			"is lost", d.Cluster, when, b.Revision,
	))
	if b.Kubernetes != w.Release.Release.Kubernetes {
		d.warn(fmt.Sprintf(
			"the backup was made with Kubernetes %s: what %s has changed in the cluster is undone too",
			b.Kubernetes, w.Release.Release.Kubernetes,
		))
	}
	needs := d.backups().recallKeys(masters)
	if r.Restore.NewMasters {
		var err error
		if needs, err = d.backups().newMasters(masters, workers, needs); err != nil {
			return plan.Content{}, err
		}
	}
	needs = d.backups().stage(masters, needs)
	if !r.Restore.NewMasters && w.Blind == "" && len(w.Cluster.Cluster.Backup.Targets) > 0 {
		// Behind the staging: it may be the one that the retention lets the backup go for.
		needs = []string{d.backup("before "+string(plan.ClusterRestore), needs)}
	}
	last := d.backups().restore(masters, workers, needs)
	last = d.backups().restored(masters, all, last)
	if len(b.FormerKeys) > 0 {
		d.keys().encryptAgain(masters, []string{last})
	}
	d.concerns(masters...)
	d.Facts = encode(w.facts(all))
	d.Summary = fmt.Sprintf("Restore cluster %s from backup %s of %s.", d.Cluster, b.Backup, when)
	if r.Restore.NewMasters {
		d.Summary = fmt.Sprintf(
			"Restore cluster %s from backup %s of %s, on new VMs of %s.", d.Cluster, b.Backup, when,
			director.Count(len(masters), "master"),
		)
	}
	return d.done(), nil
}

func (w World) checkRestore() error {
	const op = "planner.restore"
	name := w.Cluster.Metadata.Name
	if w.Restore == nil {
		return invalid(op, "the request names no backup", "name one; see: directorctl backup list "+name)
	}
	if w.Installed == nil || len(w.masters()) == 0 {
		return notInstalled(op, name)
	}
	if runs, wants := w.Behind(); runs != "" {
		return conflict(
			op, fmt.Sprintf("cluster %s runs %s and its document wants %s", name, runs, wants),
			"finish the upgrade, or apply the document with the release that the masters run",
		)
	}
	if was, is := minor(w.Restore.Kubernetes), minor(w.Release.Release.Kubernetes); was != is {
		return conflict(
			op, fmt.Sprintf(
				"backup %s was made with Kubernetes %s, and cluster %s runs %s", w.Restore.Backup, w.Restore.Kubernetes,
				name, w.Release.Release.Kubernetes,
			), fmt.Sprintf("choose a backup that was made with 1.%d", is),
		)
	}
	return nil
}

// stage lays the snapshot on each master.
func (d backupDraft) stage(masters []sized, needs []string) []string {
	b := d.w.Restore
	var staged []string
	for _, m := range masters {
		staged = append(staged, d.add(plan.Step{
			ID: step.RestoreStage + "/" + m.Name, Kind: step.RestoreStage, Node: m.Name,
			Title: "Lay the snapshot on " + m.Name, Needs: needs,
			Params: encode(step.RestoreParams{
				UID: d.w.Cluster.UID, Cluster: d.Cluster, Backup: b.Backup, Revision: b.Revision, Size: b.Size,
				SHA256: b.SHA256, Machine: plan.SpecOf(m.Machine),
			}),
			Effects: []plan.Effect{
				{Verb: "create", Object: "file", Name: m.Name, Detail: "the snapshot, until it is restored"},
			},
			Attempts: 3, Timeout: time.Hour, Estimate: 5 * time.Second,
		}))
	}
	return staged
}

// restore replaces the data of etcd by the snapshot.
func (d backupDraft) restore(masters, workers []sized, needs []string) string {
	effects := []plan.Effect{{
		Verb: "change", Object: "api", Name: d.Cluster,
		Detail: "its state is that of the backup; the former data of etcd stays on the masters",
	}}
	for _, m := range masters {
		effects = append(effects, plan.Effect{
			Verb: "restart", Object: "api", Name: "node/" + m.Name,
			Detail: "etcd and the control plane, all masters at once",
		})
	}
	return d.play(playbook{
		name: "restore", subject: d.Cluster, title: "Replace the data of etcd by the snapshot",
		limit: append(names(masters), names(workers)...), effects: effects, estimate: 90 * time.Second,
	}, needs, group{})
}

// recallKeys gives the masters the former keys that Secrets in the backup are encrypted with. They need not answer for
// it: the restore starts their API servers again, and new masters get all keys with what else they get.
func (d backupDraft) recallKeys(masters []sized) []string {
	keys := d.w.Restore.FormerKeys
	if len(keys) == 0 {
		return nil
	}
	needs := []string{d.keys().encryptionKey(
		step.EncryptionRecall, "Take up the former "+strings.Join(keys, ", ")+" for Secrets", keys, nil,
	)}
	if d.Request.Restore.NewMasters {
		return needs
	}
	return []string{d.keys().giveEncryptionKeys("read", "Have the masters decrypt with it", masters, needs)}
}

// restored waits until all nodes are back.
func (d backupDraft) restored(masters, all []sized, last string) string {
	var ready []string
	if d.Request.Restore.NewMasters {
		for _, m := range masters {
			ready = append(ready, d.ready(m, masters, d.w.image(), []string{last}, group{}))
		}
	}
	var nodes []sized
	for _, m := range all {
		if m.Kubernetes != "" && (d.w.Seen == nil || d.w.up(m.Name) || m.Role == director.RoleMaster) {
			nodes = append(nodes, m)
		}
	}
	cluster := d.w.params().clusterParams(d.w.endpoint(masters), nodes)
	return d.verify(d.allReady(cluster, 20*time.Second, append(ready, last)))
}

// newMasters makes the VMs of all masters again, with a control plane that is empty. The kubelets of the workers stop
// before: they would end their pods, which an empty control plane does not know.
func (d backupDraft) newMasters(masters, workers []sized, needs []string) ([]string, error) {
	if err := startAgain(masters); err != nil {
		return nil, err
	}
	d.w.Seen = nil // none of those that are to come answers now
	held := needs
	if len(workers) > 0 {
		held = []string{d.play(playbook{
			name: "hold_workers", id: "hold", subject: d.Cluster, title: "Stop the kubelets of the workers",
			limit: names(workers), estimate: 5 * time.Second,
			effects: []plan.Effect{
				{Verb: "change", Object: "api", Name: d.Cluster, Detail: "kubelets of workers stop; pods run on"},
			},
		}, needs, group{})}
	}
	release, image := d.releasePush(), d.imageEnsure()
	prepared, all := map[string]string{}, []string{}
	for _, m := range masters {
		if err := d.w.hosts().onLostHost("planner.restore", m.Machine); err != nil {
			return nil, err
		}
		d.Approvals = append(d.Approvals, "it recreates VM "+m.Name+": what is on its root disk is lost")
		boot := d.boot(m, []string{d.removeVM(m, held, group{}), image}, group{})
		if slices.Contains(m.persist, etcdData) {
			boot = d.play(playbook{
				name: "set_aside", title: "Set aside the former data of etcd of " + m.Name, limit: []string{m.Name},
				estimate: 5 * time.Second, effects: []plan.Effect{{
					Verb: "change", Object: "volume", Name: m.Name,
					Detail: "the former data of etcd moves aside on the data disk",
				}},
			}, []string{boot}, group{})
		}
		prepared[m.Name] = d.play(playbook{
			name: "install/prepare", id: "prepare", title: "Prepare " + m.Name, limit: []string{m.Name},
			estimate: 50 * time.Second,
			effects: []plan.Effect{{
				Verb: "change", Object: "file", Name: m.Name,
				Detail: "host name, registry trust, container runtime, time",
			}},
		}, []string{boot, release, d.consul().agentTokens()}, group{})
		all = append(all, prepared[m.Name])
	}
	var before []string
	if d.w.Cluster.Cluster.API.VIP.IsValid() {
		before = []string{d.balance(masters, nil, all)}
	}
	for _, m := range masters {
		before = []string{d.play(playbook{
			name: "install/control_plane", id: "masters", title: "Bring up an empty control plane on " + m.Name,
			limit: []string{m.Name}, estimate: 2 * time.Minute,
			effects: []plan.Effect{{
				Verb: "create", Object: "api", Name: "node/" + m.Name, Detail: "with the authorities of the cluster",
			}},
		}, append([]string{prepared[m.Name]}, before...), group{})}
	}
	return before, nil
}

// startAgain returns a conflict when the new VM of a master would begin as what the former one was.
func startAgain(masters []sized) error {
	for _, m := range masters {
		if i := slices.IndexFunc(m.persist, keepsMembership); i >= 0 {
			return conflict(
				"planner.restore", fmt.Sprintf(
					"master %s keeps %s on its data disk: a new VM would find there that it is a member of the cluster",
					m.Name, m.persist[i],
				), "start the VMs of the masters and restore without --new-masters",
			)
		}
	}
	return nil
}

// etcdData is where masters have the data of etcd.
const etcdData = "/var/lib/etcd"

// keepsMembership reports whether a new machine finds more of the former one in the directory than the data of etcd as
// a whole, which is put aside.
func keepsMembership(directory string) bool {
	directory = path.Clean(directory)
	return directory != etcdData && slices.ContainsFunc(
		[]string{etcdData, "/etc/kubernetes", "/var/lib/kubelet"}, func(one string) bool {
			return strings.HasPrefix(one+"/", directory+"/") || strings.HasPrefix(directory+"/", one+"/")
		},
	)
}
