package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/phases"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
)

func (s *planRoutes) phases(api huma.API) {
	type askInput struct {
		Body wire.PhaseRequest
	}
	type taskRef struct {
		TaskID string `path:"task_id" maxLength:"128" doc:"The caller's own id of the task."`
	}
	tags := []string{"Phases"}
	operation(s.server, api, huma.Operation{
		OperationID: "ask-phase", Method: http.MethodPost, Path: "/phases", Tags: tags,
		Summary: "Tell what an outer plan is about to do with a host, or has done",
		Description: "Happens once for each task id: the same request again returns the same task and starts " +
			"nothing twice, another request with the id is a " +
			"conflict. What is in the way from the beginning is a conflict too, and is not kept, so the id can " +
			"be used again. A cluster that another plan " +
			"holds is waited for: the task continues when a person asks for it, here or at its place. The phase " +
			"director upgrades the appliance of a director, which continues the task by itself, through its restart; " +
			"it needs who may upgrade the appliance.",
		DefaultStatus: http.StatusAccepted, Errors: []int{http.StatusNotFound, http.StatusConflict},
	}, director.ActRun, kindPhase,
		func(ctx context.Context, a director.Actor, in *askInput) (*created[wire.PhaseTask], error) {
			if err := mayAskPhase(a, in.Body.Phase); err != nil {
				return nil, err
			}
			v, err := s.Phases.AskPhase(ctx, a.User, in.Body.TaskID, in.Body.Request())
			if err != nil {
				return nil, err
			}
			return &created[wire.PhaseTask]{Location: prefixed("/phases/" + v.ID), Body: phaseOf(v)}, nil
		})
	operation(s.server, api, huma.Operation{
		OperationID: "get-phase", Method: http.MethodGet, Path: "/phases/{task_id}", Tags: tags,
		Summary:     "Get a task of an outer plan",
		Description: "A task that waits continues if it can now.", Errors: []int{http.StatusNotFound},
	}, director.ActRead, kindPhase,
		func(ctx context.Context, _ director.Actor, in *taskRef) (*body[wire.PhaseTask], error) {
			v, err := s.Phases.Phase(ctx, in.TaskID)
			if err != nil {
				return nil, err
			}
			return &body[wire.PhaseTask]{phaseOf(v)}, nil
		})
}

// kindPhase is what an outer planner asks for. It is a kind of its own, so that a token can be for it alone.
const kindPhase = "Phase"

// mayAskPhase refuses the upgrade of the director to who may not upgrade its appliance. The scope of the token is that
// of phases; a token of another scope did not come this far.
func mayAskPhase(a director.Actor, phase string) error {
	if phase != string(director.PhaseDirector) {
		return nil
	}
	a.Scope = director.ScopeAll
	if what := (director.Object{Kind: kindAppliance}); !auth.Can(a, director.ActApply, what) {
		return auth.Refusal(a, director.ActApply, what)
	}
	return nil
}

func phaseOf(v phases.View) wire.PhaseTask {
	out := wire.PhaseTask{
		PhaseRequest: wire.PhaseRequestOf(
			v.ID, v.Request,
		), By: v.By, State: string(v.State), Message: v.Message, Hint: v.Hint,
		StartedAt: v.Started.UTC(), FinishedAt: wire.Optional(v.Finished),
		Clusters: []wire.PhaseCluster{},
	}
	for _, p := range v.Parts {
		if u := p.Upgrade; u.Host != "" {
			out.Progress = &wire.PhaseUpgrade{
				Host: u.Host, From: u.From, To: u.To, Stage: u.Stage, Done: u.Done, Total: u.Total,
			}
			continue
		}
		c := wire.PhaseCluster{
			Cluster: p.Cluster, State: string(p.State), Message: p.Message, Hint: p.Hint,
			Plans: make([]wire.PhasePlan, len(p.Plans)), Nodes: make([]wire.PhaseNode, len(p.Nodes)),
		}
		var newest plan.View
		for j, id := range p.Plans {
			newest = v.Plans[id]
			s := wire.SummaryOf(newest.Plan, newest.State)
			c.Plans[j] = wire.PhasePlan{
				ID: id, Operation: s.Operation, Status: s.Status, Message: s.Message, StepsDone: s.StepsDone,
				StepsTotal: s.StepsTotal,
			}
		}
		for j, name := range p.Nodes {
			c.Nodes[j] = phaseNode(name, newest)
		}
		out.Clusters = append(out.Clusters, c)
	}
	return out
}

// phaseNode tells how far the plan is with the node: its first step that is not done.
func phaseNode(name string, v plan.View) wire.PhaseNode {
	n := wire.PhaseNode{Name: name}
	for _, step := range v.Plan.Steps {
		if step.Node != name {
			continue
		}
		st := v.State.Step(step.ID)
		if step.Back() && (st == nil || st.Status == plan.Pending) {
			continue // it was not needed so far
		}
		n.StepsTotal++
		if st == nil {
			continue
		}
		if st.Status.Satisfied() {
			n.StepsDone++
		} else if n.Step == "" {
			n.Step, n.Status = step.Title, string(st.Status)
		}
	}
	return n
}
