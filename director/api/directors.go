package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/clusters"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/wire"
)

// Directors is what the API offers of other directors besides their documents.
type Directors interface {
	// ListDirectors lists all of them by name. None is asked.
	ListDirectors(ctx context.Context) ([]clusters.DirectorView, error)
}

const kindDirector = string(model.KindDirector)

type directorPlanInput struct {
	Name string `path:"name" maxLength:"64" doc:"Name of the Director."`
	Body wire.DirectorPlanRequest
}

func (s *clusterRoutes) directors(api huma.API) {
	tags := []string{"Directors"}
	operation(s.server, api, huma.Operation{
		OperationID: "list-directors", Method: http.MethodGet, Path: "/directors", Tags: tags,
		Summary:     "List the other directors whose VMs this one makes",
		Description: "None of them is asked.",
	}, director.ActRead, kindDirector, s.listDirectors)
	operation(s.server, api, takesKeys(huma.Operation{
		OperationID: "make-director-plan", Method: http.MethodPost, Path: "/directors/{name}/plans", Tags: tags,
		Summary:       "Freeze a plan for the VM of another director",
		Description:   "Nothing happens to the VM until the plan is started, as those of clusters are. " + withoutSteps,
		DefaultStatus: http.StatusCreated, Errors: []int{http.StatusNotFound},
	}, s.planAgain(http.StatusCreated)), director.ActPlan, kindDirector, s.makeDirectorPlan)
}

func (s *clusterRoutes) listDirectors(
	ctx context.Context, _ director.Actor, _ *empty,
) (*body[wire.DirectorVMs], error) {
	list, err := s.Directors.ListDirectors(ctx)
	if err != nil {
		return nil, err
	}
	out := wire.DirectorVMs{Items: make([]wire.DirectorVM, len(list))}
	for i, d := range list {
		out.Items[i] = wire.DirectorVM{
			Name: d.Name, Generation: d.Generation, CreatedAt: d.Created.UTC(), Provider: d.Provider, Status: d.Status,
			Host: d.Host, Address: d.Address, Endpoint: d.Endpoint, Certificate: d.Certificate,
			Outdated: d.Outdated, Plan: d.Plan, PlanStatus: string(d.PlanStatus),
		}
	}
	return &body[wire.DirectorVMs]{out}, nil
}

func (s *clusterRoutes) makeDirectorPlan(
	ctx context.Context, a director.Actor, in *directorPlanInput,
) (*created[wire.Plan], error) {
	v, err := s.Planning.MakePlan(ctx, a.User, in.Name, in.Body.Request())
	if err != nil {
		return nil, err
	}
	return &created[wire.Plan]{Location: placeOf(v.Plan.ID), Body: shortOf(v)}, nil
}
