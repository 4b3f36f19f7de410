package apitest

import (
	"context"
	"errors"
	"slices"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/phases"
	"github.com/director-kaas/kaas/director/plan"
)

// AskPhase takes a task of an outer plan. The worker of every cluster that is up is on host h1, h2 has none, and there
// are no other hosts.
func (o *Operations) AskPhase(ctx context.Context, actor, id string, r director.PhaseRequest) (phases.View, error) {
	if r.Host != "" && r.Host != "h1" && r.Host != "h2" {
		return phases.View{}, notFound("no provider has a host %q", r.Host)
	}
	o.mu.Lock()
	t, known := o.tasks[id]
	if !known {
		t = director.PhaseTask{
			ID: id, Request: r, By: actor, State: director.PhaseDone, Message: "nothing is to be done",
			Started: o.now().UTC(),
		}
		for cluster, up := range o.up {
			if up && r.Host == "h1" {
				t.Parts = append(t.Parts, director.PhasePart{Cluster: cluster, Nodes: []string{cluster + "-worker-1"}})
			}
		}
		if o.tasks == nil {
			o.tasks = map[string]director.PhaseTask{}
		}
		o.tasks[id] = t
	}
	o.mu.Unlock()
	if t.Request != r {
		return phases.View{}, director.Errorf(
			director.KindConflict, "apitest.phase", "task %s was given for host %s, and is now asked for host %s", id,
			t.Request.Host, r.Host,
		).
			WithHint("use an id of its own for each task")
	}
	return o.Phase(ctx, id)
}

// Phase moves a task on.
func (o *Operations) Phase(ctx context.Context, id string) (phases.View, error) {
	o.mu.Lock()
	t, known := o.tasks[id]
	o.mu.Unlock()
	if !known {
		return phases.View{}, notFound("there is no task %s", id)
	}
	t.Parts = slices.Clone(t.Parts)
	v := phases.View{Plans: map[string]plan.View{}}
	for i := range t.Parts {
		p := &t.Parts[i]
		if len(p.Plans) == 0 {
			made, err := o.MakePlan(ctx, t.By, p.Cluster, plan.Request{
				Operation: plan.NodeDelete, Nodes: p.Nodes, KeepVM: true,
			})
			if err == nil {
				_, err = o.StartPlan(ctx, t.By, made.Plan.ID, made.Plan.Hash)
			}
			if err != nil {
				why := err.Error()
				if e, ok := errors.AsType[*director.Error](err); ok {
					why = e.Msg
				}
				t.State, t.Message, t.Hint = director.PhaseWaiting, p.Cluster+": "+why, director.HintOf(err)
				p.State = director.PhaseWaiting
				continue
			}
			p.Plans = []string{made.Plan.ID}
		}
		made, err := o.Plan(ctx, p.Plans[0])
		if err != nil {
			return v, err
		}
		v.Plans[p.Plans[0]] = made
		p.State = map[plan.Status]director.PhaseState{
			plan.StatusDone: director.PhaseDone, plan.StatusFailed: director.PhaseFailed,
			plan.StatusDiscarded: director.PhaseFailed, plan.StatusParked: director.PhaseParked,
		}[made.State.Status]
		if p.State == "" {
			p.State = director.PhaseRunning
		}
		t.State, t.Hint, t.Message = p.State, made.State.Hint,
			p.Cluster+": plan "+p.Plans[0]+" is "+string(made.State.Status)
	}
	if t.State == director.PhaseDone {
		t.Finished = o.now().UTC()
	}
	o.mu.Lock()
	o.tasks[id] = t
	o.mu.Unlock()
	v.PhaseTask = t
	return v, nil
}
