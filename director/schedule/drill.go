package schedule

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	snapshots "github.com/director-kaas/kaas/director/backup"
	"github.com/director-kaas/kaas/director/plan"
)

// DrilledClusters tells which clusters have drills, and how drills went.
type DrilledClusters interface {
	// Drilled returns the named clusters, or all that name a network for drills. Errors: conflict for one that cannot
	// have a drill.
	Drilled(ctx context.Context, clusters []string) ([]string, error)
	// Drill returns the drill of the plan, and whether there is one.
	Drill(ctx context.Context, plan string) (snapshots.Drill, bool, error)
}

// DrillPlans makes and runs the plans of drills.
type DrillPlans interface {
	// MakeDrill freezes the plan of a drill with the newest backup of the cluster.
	MakeDrill(ctx context.Context, actor, cluster string) (id string, err error)
	// RunPlan starts the plan and returns when it has come to an end or waits for a person, with its status.
	RunPlan(ctx context.Context, actor, id string) (plan.Status, error)
}

// RestoreDrillJob tries for each cluster whether its newest backup can be restored, one after another: a provider has
// the VM of one drill at a time. A run fails if one of them does; the others are tried all the same.
func RestoreDrillJob(clusters DrilledClusters, plans DrillPlans) Job {
	about := "Restores the newest backup of every cluster that names a network for drills, or of those in " +
		"params.clusters, " +
		"into a VM of its own, asks it, and deletes the VM."
	return Job{Name: "restore-drill", About: about, Repeatable: true, Prepare: func(p *Params) Work {
		only := p.Names("clusters")
		return func(ctx context.Context, run director.ScheduleRun) (Result, error) {
			names, err := clusters.Drilled(ctx, only)
			if err != nil {
				return Result{}, err
			}
			var out Result
			var said []string
			var failed []error
			for _, name := range names {
				text, id, err := drill(ctx, clusters, plans, actorOf(run), name)
				if err != nil {
					message, hint := explain(err)
					failed = append(failed, &director.Error{
						Kind: director.KindOf(err), Op: "schedule.restore_drill",
						Msg: "cluster " + name + ": " + message, Hint: hint, Err: err,
					})
				} else {
					said = append(said, name+": "+text)
				}
				if id != "" {
					out.Plan = id
				}
				if ctx.Err() != nil {
					break
				}
			}
			if len(names) == 0 {
				said = append(said, "no installed cluster names a network for drills and a backup target")
			}
			out.Message = strings.Join(said, "\n")
			return out, errors.Join(failed...)
		}
	}}
}

func drill(
	ctx context.Context, clusters DrilledClusters, plans DrillPlans, actor, cluster string,
) (text, id string, err error) {
	if id, err = plans.MakeDrill(ctx, actor, cluster); err != nil {
		return "", "", err
	}
	status, err := plans.RunPlan(ctx, actor, id)
	if err != nil {
		return "", id, err
	}
	d, there, err := clusters.Drill(ctx, id)
	if err != nil {
		return "", id, err
	}
	if status != plan.StatusDone || !there || !d.OK() {
		why := fmt.Sprintf("plan %s is %s", id, status)
		if d.Problem != "" {
			why += ": " + d.Problem
		}
		return "", id, director.Errorf(director.KindConflict, "schedule.restore_drill", "the drill failed: %s", why).
			WithHint("see: directorctl plans show %s", id)
	}
	return fmt.Sprintf(
		"backup %s was restored in %s; %d keys are as its manifest says", d.Backup, d.Took().Round(time.Second), d.Keys,
	), id, nil
}

// Names returns a list of texts, or nothing if it is not given.
func (p *Params) Names(key string) []string {
	v, ok := p.take(key)
	if !ok {
		return nil
	}
	list, isList := v.([]any)
	var out []string
	for _, one := range list {
		text, isText := one.(string)
		if isList = isList && isText && text != ""; isList {
			out = append(out, text)
		}
	}
	if !isList || len(out) == 0 {
		p.fail(key, "such as [demo, shop]", "is not a list of names")
	}
	return out
}
