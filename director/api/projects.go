package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/wire"
)

// Stock is what the API offers of the director's own registry.
type Stock interface {
	// Usage returns how many bytes the images of a project have, and how many they may have; 0 for no limit. Errors:
	// not_found; unavailable while they cannot be counted.
	Usage(ctx context.Context, project string) (used, most int64, err error)
}

type projectInput struct {
	Name string `path:"name" maxLength:"64" doc:"Name of the project."`
}

func (s *documentRoutes) projects(api huma.API) {
	operation(s.server, api, huma.Operation{
		OperationID: "get-project-images", Method: http.MethodGet, Path: "/projects/{name}/images",
		Tags: []string{"Documents"}, Summary: "Tell how much of its quota the images of a project use",
		Description: "What people have pushed; what several images share counts once.",
		Errors:      []int{http.StatusNotFound, http.StatusServiceUnavailable},
	}, director.ActRead, string(model.KindProject),
		func(ctx context.Context, _ director.Actor, in *projectInput) (*body[wire.ProjectImages], error) {
			used, most, err := s.Stock.Usage(ctx, in.Name)
			if err != nil {
				return nil, err
			}
			out := wire.ProjectImages{Project: in.Name, UsedBytes: used, QuotaBytes: most}
			return &body[wire.ProjectImages]{out}, nil
		})
}
