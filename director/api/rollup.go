package api

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
)

type stepsInput struct {
	ID       string   `path:"id" maxLength:"64" doc:"Id of the plan."`
	Step     []string `query:"step" maxItems:"100" doc:"Only the steps with these ids, separated by commas."`
	Node     []string `query:"node" maxItems:"100" doc:"Only steps of these nodes, separated by commas; - for those of the cluster."`
	Group    []string `query:"group" maxItems:"50" doc:"Only steps of these groups of the plan's matrix, separated by commas."`
	Kind     []string `query:"kind" maxItems:"50" doc:"Only steps of these kinds, separated by commas."`
	Status   []string `query:"status" maxItems:"20" doc:"Only steps in one of these statuses, separated by commas."`
	Text     string   `query:"q" maxLength:"200" doc:"Only steps whose id, title, message or node contains this, in any case."`
	Started  bool     `query:"started" doc:"Only steps that have started."`
	Sort     string   `query:"sort" enum:"place,started_at" default:"place" doc:"place is the plan's order. With started_at, what has not started comes first."`
	Continue string   `query:"continue" maxLength:"1024" doc:"Continue where an answer with this continue ended. The filters must be the same."`
	Fields   []string `query:"fields" maxItems:"50" doc:"Only these fields of each step, separated by commas."`
	Limit    int      `query:"limit" minimum:"1" maximum:"1000" default:"200" doc:"At most so many."`
}

type effectsInput struct {
	ID     string `path:"id" maxLength:"64" doc:"Id of the plan."`
	Verb   string `query:"verb" maxLength:"50" doc:"Only effects with this verb."`
	Object string `query:"object" maxLength:"50" doc:"Only effects on this kind of object."`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"12" doc:"At most so many names of each group."`
}

type matrixInput struct {
	ID       string   `path:"id" maxLength:"64" doc:"Id of the plan."`
	Status   []string `query:"status" maxItems:"20" doc:"Only rows in one of these statuses, separated by commas."`
	Text     string   `query:"q" maxLength:"100" doc:"Only nodes whose name contains this, in any case."`
	Continue string   `query:"continue" maxLength:"1024" doc:"Continue where an answer with this continue ended. The filters must be the same."`
	Limit    int      `query:"limit" minimum:"1" maximum:"1000" default:"1000" doc:"At most so many rows."`
}

func (s *planRoutes) rollups(api huma.API) {
	operation(s.server, api, listing[wire.Steps](api, huma.Operation{
		OperationID: "list-steps", Path: "/plans/{id}/steps", Tags: []string{"Plans"},
		Summary: "List the steps of a plan with the state of each", Errors: []int{http.StatusNotFound},
		Description: "In the plan's order, or in the order in which they started.",
	}), director.ActRead, kindPlan, func(ctx context.Context, _ director.Actor, in *stepsInput) (*anyOf, error) {
		return s.listSteps(ctx, api, in)
	})
	operation(s.server, api, describe[wire.Matrix](api, huma.Operation{
		OperationID: "get-matrix", Method: http.MethodGet, Path: "/plans/{id}/matrix", Tags: []string{"Plans"},
		Summary: "Show a plan by nodes and groups of steps", Errors: []int{http.StatusNotFound},
		Description: "A group is the steps that do the same for different nodes. A cell says how far the steps of a " +
			"group are for a node. Rollback steps that have nothing to undo are left out.",
	}), director.ActRead, kindPlan, func(ctx context.Context, _ director.Actor, in *matrixInput) (*anyOf, error) {
		return s.matrix(ctx, api, in)
	})
	operation(s.server, api, huma.Operation{
		OperationID: "get-effects", Method: http.MethodGet, Path: "/plans/{id}/effects", Tags: []string{"Plans"},
		Summary: "Show what a plan does to the world", Errors: []int{http.StatusNotFound},
		Description: "Effects that do the same to the same kind of object are one group. Groups are in the order of " +
			"the steps.",
	}, director.ActRead, kindPlan, func(
		ctx context.Context, _ director.Actor, in *effectsInput,
	) (*body[wire.EffectGroups], error) {
		v, err := s.Journal.Plan(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		groups := slices.DeleteFunc(v.Plan.Effects(), func(g plan.EffectGroup) bool {
			return in.Verb != "" && in.Verb != g.Verb || in.Object != "" && in.Object != g.Object
		})
		return &body[wire.EffectGroups]{wire.EffectGroups{Items: wire.EffectGroupsOf(groups, in.Limit)}}, nil
	})
}

func stepStatuses(names []string) ([]plan.StepStatus, error) {
	var out []plan.StepStatus
	for _, name := range names {
		if !slices.Contains(plan.StepStatuses(), plan.StepStatus(name)) {
			return nil, invalidQuery("status", "there is no status "+name, "some of "+joined(plan.StepStatuses()))
		}
		out = append(out, plan.StepStatus(name))
	}
	return out, nil
}

// byPlace is the order of lists whose items keep their places.
const byPlace = "place"

// cut returns the part of n items that begins behind the page's place, and where the list continues.
func cut(p director.Page, n int) (from, to int, next *director.Place) {
	if p.After != nil {
		from, _ = strconv.Atoi(p.After.Name) // a place that was not given by us is the beginning
	}
	from = min(max(from, 0), n)
	if to = min(from+p.Limit, n); to < n {
		next = &director.Place{Name: strconv.Itoa(to)}
	}
	return from, to, next
}

func (s *planRoutes) listSteps(ctx context.Context, api huma.API, in *stepsInput) (*anyOf, error) {
	statuses, err := stepStatuses(in.Status)
	if err != nil {
		return nil, err
	}
	filters := []any{in.ID, in.Step, in.Node, in.Group, in.Kind, in.Status, in.Text, in.Started, in.Sort}
	page, err := ListInput{Continue: in.Continue}.page(in.Limit, byPlace, filters...)
	if err != nil {
		return nil, err
	}
	v, err := s.Journal.Plan(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	f := plan.StepFilter{
		IDs: in.Step, Nodes: in.Node, Groups: in.Group, Kinds: in.Kind, Statuses: statuses, Text: in.Text,
		Started: in.Started,
	}
	at := f.Select(&v.Plan, &v.State)
	if in.Sort == "started_at" {
		slices.SortStableFunc(at, func(a, b int) int {
			return plan.StateOf(&v.Plan, &v.State, a).StartedAt.Compare(plan.StateOf(&v.Plan, &v.State, b).StartedAt)
		})
	}
	counts := map[string]int{}
	for _, i := range at {
		counts[string(plan.StateOf(&v.Plan, &v.State, i).Status)]++
	}
	from, to, place := cut(page, len(at))
	return listAnswer(
		api, wire.StepsOf(v.Plan, v.State, at[from:to]), in.Fields, next(page, place, filters...),
		map[string]any{"total": len(at), "statuses": counts, "last_event": v.State.Seq},
	)
}

func (s *planRoutes) matrix(ctx context.Context, api huma.API, in *matrixInput) (*anyOf, error) {
	statuses, err := stepStatuses(in.Status)
	if err != nil {
		return nil, err
	}
	filters := []any{in.ID, in.Status, in.Text}
	page, err := ListInput{Continue: in.Continue}.page(in.Limit, byPlace, filters...)
	if err != nil {
		return nil, err
	}
	v, err := s.Journal.Plan(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	m := plan.Rollup(&v.Plan, &v.State)
	out := wire.Matrix{
		Groups: wire.GroupsOf(m.Groups), Statuses: map[string]int{}, Status: string(v.State.Status),
		LastEvent: v.State.Seq,
	}
	for _, r := range m.Rows {
		out.Statuses[string(r.Status)]++
	}
	rows := slices.DeleteFunc(m.Rows, func(r plan.Row) bool {
		return len(statuses) > 0 && !slices.Contains(statuses, r.Status) ||
			!strings.Contains(strings.ToLower(r.Node), strings.ToLower(in.Text))
	})
	from, to, place := cut(page, len(rows))
	out.Total, out.Rows = len(rows), wire.RowsOf(rows[from:to])
	out.Continue = next(page, place, filters...)
	return jsonBody(api, out), nil
}
