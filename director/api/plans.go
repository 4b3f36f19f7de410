package api

import (
	"context"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/journal"
	"github.com/director-kaas/kaas/director/nodes"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planning"
	"github.com/director-kaas/kaas/director/wire"
)

type planRef struct {
	ID string `path:"id" maxLength:"64" doc:"Id of the plan."`
}

type getPlanInput struct {
	ID       string `path:"id" maxLength:"64" doc:"Id of the plan."`
	Steps    bool   `query:"steps" default:"true" doc:"false leaves the steps out: a plan for 1,000 nodes has thousands."`
	Machines bool   `query:"machines" default:"true" doc:"false leaves the machines out."`
}

type listPlansInput struct {
	ListInput
	Cluster   string   `query:"cluster" maxLength:"64" doc:"Only plans of this cluster."`
	Status    []string `query:"status" maxItems:"20" doc:"Only plans with one of these statuses, separated by commas."`
	Operation []string `query:"operation" maxItems:"20" doc:"Only plans for one of these operations, separated by commas."`
	IDPrefix  string   `query:"id_prefix" maxLength:"64" doc:"Only plans whose id begins so."`
	Archived  bool     `query:"archived" doc:"Only plans that have left the database for archives."`
	Limit     int      `query:"limit" minimum:"1" maximum:"500" default:"50" doc:"At most so many."`
}

func (s *planRoutes) plans(api huma.API) {
	tags := []string{"Plans"}
	operation(s.server, api, ofSome(listing[wire.Plans](api, huma.Operation{
		OperationID: "list-plans", Path: "/plans", Tags: tags, Summary: "List plans, the newest first",
		Description: "Sorted by created_at, started_at, finished_at, cluster or status.",
	}), ""), director.ActRead, kindPlan, func(
		ctx context.Context, a director.Actor, in *listPlansInput,
	) (*anyOf, error) {
		return s.listPlans(ctx, api, a, in)
	})
	operation(s.server, api, huma.Operation{
		OperationID: "get-plan", Method: http.MethodGet, Path: "/plans/{id}", Tags: tags,
		Summary: "Get a plan with the state of its run",
		Errors:  []int{http.StatusNotFound},
	}, director.ActRead, kindPlan, func(
		ctx context.Context, _ director.Actor, in *getPlanInput,
	) (*body[wire.Plan], error) {
		v, err := s.Journal.Plan(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		p := planOf(v)
		if !in.Steps {
			p.Steps = []wire.Step{}
		}
		if !in.Machines {
			p.Machines = []wire.PlanMachine{}
		}
		return &body[wire.Plan]{p}, nil
	})

	s.drains(api, tags)
	s.madeAgain(api, tags)
	s.putDocuments(api)
	type startInput struct {
		ID   string `path:"id" maxLength:"64" doc:"Id of the plan."`
		Body wire.PlanStart
	}
	verb(s.server, api, "start", "Start a plan",
		"The hash must be the plan's own: it says which plan was read. Conflict says what has moved since it was made.",
		func(ctx context.Context, a director.Actor, in *startInput) (plan.View, error) {
			return s.Planning.StartPlan(ctx, a.User, in.ID, in.Body.Hash)
		})
	s.planMoves(api)
}

// drains registers what a person reads before agreeing to a plan that drains nodes.
func (s *planRoutes) drains(api huma.API, tags []string) {
	operation(s.server, api, huma.Operation{
		OperationID: "rehearse-plan", Method: http.MethodGet, Path: "/plans/{id}/drains", Tags: tags,
		Summary: "Tell what the drains of a plan would move away now, and what would block them",
		Description: "The cluster is asked for every eviction as a dry run, of the first " +
			strconv.Itoa(nodes.MostDrains) + " nodes whose drains have not ended. Nothing is changed. A cluster that " +
			"does not answer is no error: each drain says so.",
		Errors: []int{http.StatusNotFound},
	}, director.ActRead, kindPlan, func(
		ctx context.Context, _ director.Actor, in *planRef,
	) (*body[wire.PlanDrains], error) {
		d, err := s.Nodes.RehearseDrains(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		out := wire.PlanDrains{At: d.At, Items: make([]wire.PlanDrain, len(d.Items)), Rest: d.Rest}
		for i, d := range d.Items {
			out.Items[i] = wire.PlanDrain{Step: d.Step, Node: d.Node, Pods: evictionsOf(d.Evictions), Unseen: d.Unseen}
		}
		return &body[wire.PlanDrains]{out}, nil
	})
}

// madeAgain registers what a person needs who has read a plan that is out of date.
func (s *planRoutes) madeAgain(api huma.API, tags []string) {
	operation(s.server, api, takesKeys(huma.Operation{
		OperationID: "make-plan-again", Method: http.MethodPost, Path: "/plans/{id}/again", Tags: tags,
		Summary: "Make a plan again that was not started",
		Description: "The new plan is for what the older one was asked for, and for the world as it is now. The " +
			"older one is discarded. steps_total 0 means that nothing is to be done. " + withoutSteps,
		DefaultStatus: http.StatusCreated, Errors: []int{http.StatusNotFound},
	}, s.planAgain(http.StatusCreated)), director.ActPlan, kindPlan, func(
		ctx context.Context, a director.Actor, in *planRef,
	) (*created[wire.Plan], error) {
		v, err := s.Planning.PlanAgain(ctx, a.User, in.ID)
		if err != nil {
			return nil, err
		}
		return &created[wire.Plan]{Location: placeOf(v.Plan.ID), Body: shortOf(v)}, nil
	})
	type compareInput struct {
		ID    string `path:"id" maxLength:"64" doc:"Id of the newer plan."`
		Older string `query:"older" required:"true" maxLength:"64" doc:"Id of the older plan, of the same cluster."`
	}
	operation(s.server, api, huma.Operation{
		OperationID: "compare-plans", Method: http.MethodGet, Path: "/plans/{id}/compare", Tags: tags,
		Summary: "Tell how a plan differs from an older one of its cluster",
		Errors:  []int{http.StatusNotFound},
	}, director.ActRead, kindPlan, func(
		ctx context.Context, _ director.Actor, in *compareInput,
	) (*body[wire.PlanComparison], error) {
		is, err := s.Journal.Plan(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		was, err := s.Journal.Plan(ctx, in.Older)
		if err != nil && director.KindOf(err) != director.KindNotFound {
			return nil, err
		}
		// Who may read the one may not be allowed to know the other.
		if err != nil || was.Plan.Cluster != is.Plan.Cluster {
			return nil, director.Errorf(
				director.KindNotFound, "api.compare", "cluster %s has no plan %q", is.Plan.Cluster, in.Older,
			).WithHint("list its plans: directorctl plans --cluster %s", is.Plan.Cluster)
		}
		return &body[wire.PlanComparison]{
			wire.ComparisonOf(in.ID, in.Older, plan.Compare(was.Plan, is.Plan)),
		}, nil
	})
}

// putDocuments registers what a person reads who wants to know what has changed in a document.
func (s *planRoutes) putDocuments(api huma.API) {
	operation(s.server, api, huma.Operation{
		OperationID: "get-plan-documents", Method: http.MethodGet, Path: "/plans/{id}/documents",
		Tags: []string{"Plans"}, Summary: "Show the document that a plan puts into force, and the one before it",
		Description: "Both are as they were when the plan was made. Documents that a plan only reads are in its " +
			"models.",
		Errors: []int{http.StatusNotFound},
	}, director.ActRead, kindPlan, func(
		ctx context.Context, _ director.Actor, in *planRef,
	) (*body[wire.PlanDocuments], error) {
		v, err := s.Journal.Plan(ctx, in.ID)
		if err != nil {
			return nil, err
		}
		out := wire.PlanDocuments{Items: []wire.PlanDocument{}}
		c, err := planning.DocumentChangeOf(v.Plan)
		if err != nil || c == nil {
			return &body[wire.PlanDocuments]{out}, err
		}
		d, err := wire.PlanDocumentOf(c.Is, c.Generation, c.Was, c.Former)
		if err != nil {
			return nil, err
		}
		out.Items = append(out.Items, d)
		return &body[wire.PlanDocuments]{out}, nil
	})
}

// planMoves registers what can be done to a plan after its start.
func (s *planRoutes) planMoves(api huma.API) {
	type approveInput struct {
		ID   string `path:"id" maxLength:"64" doc:"Id of the plan."`
		Body wire.PlanStart
	}
	type pauseInput struct {
		ID   string `path:"id" maxLength:"64" doc:"Id of the plan."`
		Body *wire.PlanPause
	}
	type cancelInput struct {
		ID   string `path:"id" maxLength:"64" doc:"Id of the plan."`
		Body *wire.PlanCancel
	}
	type retryInput struct {
		ID   string `path:"id" maxLength:"64" doc:"Id of the plan."`
		Body *wire.PlanRetry
	}
	type skipInput struct {
		ID   string `path:"id" maxLength:"64" doc:"Id of the plan."`
		Body wire.PlanSkip
	}
	move := func(ctx context.Context, actor, id string, m planning.Move) (plan.View, error) {
		return s.Planning.MovePlan(ctx, actor, id, m)
	}
	verb(s.server, api, "approve", "Agree to a plan's start",
		"The hash must be the plan's own: it says which plan was read.",
		func(ctx context.Context, a director.Actor, in *approveInput) (plan.View, error) {
			return move(ctx, a.User, in.ID, planning.Move{Verb: planning.VerbApprove, Hash: in.Body.Hash})
		})
	verb(s.server, api, "pause", "Start no further steps", "The running steps end, and the plan keeps its cluster. No "+
		"error if it is paused.",
		func(ctx context.Context, a director.Actor, in *pauseInput) (plan.View, error) {
			return move(ctx, a.User, in.ID, planning.Move{Verb: planning.VerbPause, Reason: orZero(in.Body).Reason})
		})
	verb(s.server, api, "cancel", "Stop a plan between steps", "No error if it has ended.",
		func(ctx context.Context, a director.Actor, in *cancelInput) (plan.View, error) {
			return move(ctx, a.User, in.ID, planning.Move{Verb: planning.VerbCancel, Now: orZero(in.Body).Now})
		})
	verb(s.server, api, "retry", "Let a stopped plan continue", "What failed, parked or was undone runs again, or "+
		"only the step that is named; finished steps are not repeated.",
		func(ctx context.Context, a director.Actor, in *retryInput) (plan.View, error) {
			return move(ctx, a.User, in.ID, planning.Move{Verb: planning.VerbRetry, Step: orZero(in.Body).Step})
		})
	verb(s.server, api, "skip", "Let a plan continue without a step", "The reason is kept in the journal. A step that "+
		"runs, or is done, cannot be skipped.",
		func(ctx context.Context, a director.Actor, in *skipInput) (plan.View, error) {
			m := planning.Move{Verb: planning.VerbSkip, Step: in.Body.Step, Reason: in.Body.Reason}
			return move(ctx, a.User, in.ID, m)
		})
	verb(s.server, api, "undo", "Undo what a stopped plan did", "The last first, as far as its steps can be undone.",
		func(ctx context.Context, a director.Actor, in *planRef) (plan.View, error) {
			return move(ctx, a.User, in.ID, planning.Move{Verb: planning.VerbUndo})
		})
	verb(s.server, api, "discard", "Give up a plan that does not run",
		"Its cluster is free for another plan afterwards.",
		func(ctx context.Context, a director.Actor, in *planRef) (plan.View, error) {
			return move(ctx, a.User, in.ID, planning.Move{Verb: planning.VerbDiscard})
		})
}

// planOf is the wire form of a plan.
func planOf(v plan.View) wire.Plan {
	p := wire.PlanOf(v.Plan, v.State)
	p.Waits, p.ExpiresAt = wire.WaitsOf(v.Waits), wire.Optional(v.Expires)
	return p
}

// withoutSteps is what the description says of the answers that are made by shortOf.
const withoutSteps = "The answer has no steps and no machines."

// shortOf is the wire form of a plan without its steps and machines: one for 1,000 nodes has thousands of steps.
func shortOf(v plan.View) wire.Plan {
	p := planOf(v)
	p.Steps, p.Machines = []wire.Step{}, []wire.PlanMachine{}
	return p
}

// planStatuses returns the statuses of plans that the parameter of the query names.
func planStatuses(parameter string, names []string) ([]plan.Status, error) {
	var out []plan.Status
	for _, name := range names {
		if !slices.Contains(plan.Statuses(), plan.Status(name)) {
			return nil, invalidQuery(parameter, "there is no status "+name, "some of "+joined(plan.Statuses()))
		}
		out = append(out, plan.Status(name))
	}
	return out, nil
}

func (s *planRoutes) listPlans(
	ctx context.Context, api huma.API, a director.Actor, in *listPlansInput,
) (*anyOf, error) {
	filters := []any{in.Cluster, in.Status, in.Operation, in.IDPrefix, in.Archived}
	q := journal.Query{
		Cluster: in.Cluster, IDPrefix: in.IDPrefix, Archived: in.Archived, Visible: auth.VisibleTo(a, kindPlan),
	}
	for _, o := range in.Operation {
		q.Operations = append(q.Operations, plan.Operation(o))
	}
	var err error
	if q.Statuses, err = planStatuses("status", in.Status); err != nil {
		return nil, err
	}
	if q.Page, err = in.page(in.Limit, "-created_at", filters...); err == nil {
		err = oneOf(q.Page, "created_at", "started_at", "finished_at", "cluster", "status")
	}
	if err != nil {
		return nil, err
	}
	items, place, err := s.Journal.ListPlans(ctx, q)
	if err != nil {
		return nil, err
	}
	return listAnswer(api, summariesOf(items), in.Fields, next(q.Page, place, filters...))
}

func joined[T ~string](all []T) string {
	texts := make([]string, len(all))
	for i, t := range all {
		texts[i] = string(t)
	}
	return strings.Join(texts, ", ")
}

// planAgain answers with the plan that a witness names, in its short form: the answer is also kept for a second try.
func (s *server) planAgain(status int) again {
	return func(ctx context.Context, id string) (int, string, any, error) {
		v, err := s.Journal.Plan(ctx, id)
		if err != nil {
			return 0, "", nil, err
		}
		return status, placeOf(id), shortOf(v), nil
	}
}

// verb registers POST /plans/{id}/name, which answers 202 with the place of the plan and its short form.
func verb[I any](
	s *server, api huma.API, name, summary, description string,
	do func(context.Context, director.Actor, *I) (plan.View, error),
) {
	operation(s, api, takesKeys(huma.Operation{
		OperationID: name + "-plan", Method: http.MethodPost, Path: "/plans/{id}/" + name, Tags: []string{"Plans"},
		Summary: summary, Description: description + " " + withoutSteps,
		DefaultStatus: http.StatusAccepted, Errors: []int{http.StatusNotFound},
	}, s.planAgain(http.StatusAccepted)), director.ActRun, kindPlan,
		func(ctx context.Context, a director.Actor, in *I) (*created[wire.Plan], error) {
			v, err := do(ctx, a, in)
			if err != nil {
				return nil, err
			}
			return &created[wire.Plan]{Location: placeOf(v.Plan.ID), Body: shortOf(v)}, nil
		})
}
