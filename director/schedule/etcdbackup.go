package schedule

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
)

// Clusters tells which clusters a backup is made of.
type Clusters interface {
	// Due returns the installed clusters that name a backup target, or the named one alone.
	Due(ctx context.Context, cluster string) ([]string, error)
}

// EtcdBackupJob makes a backup of each cluster that names a target. A cluster that another plan holds is told, and has
// its backup at the next slot; the others have theirs.
func EtcdBackupJob(clusters Clusters, plans Plans) Job {
	about := "Takes a snapshot of etcd of every cluster that names backup targets, or of the one in " +
		"params.cluster, and " +
		"stores it in them."
	return Job{Name: "etcd-backup", About: about, Prepare: func(p *Params) Work {
		cluster := p.Optional("cluster")
		return func(ctx context.Context, run director.ScheduleRun) (Result, error) {
			names, err := clusters.Due(ctx, cluster)
			if err != nil {
				return Result{}, err
			}
			var out Result
			var started []string
			var failed error
			for _, name := range names {
				id, err := plans.Begin(ctx, actorOf(run), name, plan.ClusterBackup)
				if err != nil {
					failed = errors.Join(failed, fmt.Errorf("cluster %s: %w", name, err))
					continue
				}
				started = append(started, name)
				out.Plan = id
			}
			switch {
			case len(names) == 0:
				out.Message = "no cluster that is installed names a backup target"
			case len(started) > 0:
				out.Message = "backups were started of " + strings.Join(started, ", ")
			}
			if failed != nil {
				return out, director.Errorf(
					director.KindConflict, "schedule.etcd_backup", "%d of %d clusters have no backup: %w",
					len(names)-len(started), len(names), failed,
				)
			}
			return out, nil
		}
	}}
}

// Optional returns a text, or nothing if it is not given.
func (p *Params) Optional(key string) string {
	v, ok := p.take(key)
	if !ok {
		return ""
	}
	text, ok := v.(string)
	if !ok {
		p.fail(key, "", "is not a text")
	}
	return text
}
