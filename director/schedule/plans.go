package schedule

import (
	"context"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
)

// Plans makes plans and starts them, as a person would.
type Plans interface {
	// Begin freezes a plan of the operation for the cluster and starts it. It returns its id, or "" if nothing is to be
	// done. Errors: conflict if another plan holds the cluster.
	Begin(ctx context.Context, actor, cluster string, op plan.Operation) (id string, err error)
}

// PlanJob is a job that makes a plan of the operation for the cluster that its parameter names, and starts it. It can
// schedule every operation of the planner. Its run ends when the plan has started; the engine then runs the plan to its
// end. It is not repeatable: after a crash it is unknown whether the plan was started, and a second one would find the
// cluster held.
func PlanJob(name, about string, op plan.Operation, plans Plans) Job {
	return Job{Name: name, About: about, Prepare: func(p *Params) Work {
		cluster := p.Text("cluster")
		return func(ctx context.Context, run director.ScheduleRun) (Result, error) {
			id, err := plans.Begin(ctx, actorOf(run), cluster, op)
			if err != nil {
				return Result{}, err
			}
			if id == "" {
				return Result{Message: "cluster " + cluster + " needs nothing"}, nil
			}
			return Result{Message: "plan " + id + " was started for cluster " + cluster, Plan: id}, nil
		}
	}}
}

// actorOf is who the audit trail names for what a run does.
func actorOf(run director.ScheduleRun) string {
	if run.By != "" {
		return run.By
	}
	return "schedule " + run.Schedule
}
