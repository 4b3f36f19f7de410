package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/jobs"
	"github.com/director-kaas/kaas/director/wire"
)

// Mirrors fetches archives of release bundles. All methods return *director.Error and are safe for concurrent use.
type Mirrors interface {
	// Fetch begins to fetch the archive, or returns the job that does.
	Fetch(ctx context.Context, r director.ReleaseFetch) (jobs.Job[director.ImageUpload], error)
	// Job returns the job, or not_found.
	Job(ctx context.Context, id string) (jobs.Job[director.ImageUpload], error)
	// Cancel ends the person's fetch from the address and throws away what has arrived. No error if there is none.
	Cancel(ctx context.Context, by, address string) error
}

type fetchOutput = jobOutput[wire.ReleaseFetchJob]

func (s *documentRoutes) mirrors(api huma.API) {
	tags := []string{"Releases"}
	operation(s.server, api, huma.Operation{
		OperationID: "fetch-release", Method: http.MethodPost, Path: "/release-fetches", Tags: tags,
		Summary: "Fetch an archive of a release bundle from a mirror",
		Description: "The director fetches the file itself, and continues after a cut from where it was. The result " +
			"is an upload, which import-release then imports. Asked again, also after a failure or a restart of the " +
			"director, it continues. The director connects only to addresses in mirrorNetworks of its configuration. " +
			"One to which nothing is added for a day is thrown away.",
		Errors:        []int{http.StatusTooManyRequests, http.StatusServiceUnavailable},
		DefaultStatus: http.StatusAccepted,
	}, director.ActApply, kindRelease,
		func(ctx context.Context, a director.Actor, in *struct{ Body wire.ReleaseFetch }) (*fetchOutput, error) {
			return fetchJob(ctx)(s.Mirrors.Fetch(ctx, director.ReleaseFetch{
				URL: in.Body.URL, CA: in.Body.CA, User: in.Body.User, Password: director.Secret(in.Body.Password),
				By: a.User,
			}))
		})
	operation(s.server, api, huma.Operation{
		OperationID: "get-release-fetch", Method: http.MethodGet, Path: "/release-fetches/{id}", Tags: tags,
		Summary: "See how far a fetch is",
		Description: "A director that was started again does not know its jobs any more: ask for the same fetch " +
			"again.",
		Errors: []int{http.StatusNotFound},
	}, director.ActRead, kindRelease,
		func(ctx context.Context, _ director.Actor, in *releaseJobInput) (*fetchOutput, error) {
			return fetchJob(ctx)(s.Mirrors.Job(ctx, in.ID))
		})
	operation(s.server, api, huma.Operation{
		OperationID: "cancel-release-fetch", Method: http.MethodPost, Path: "/release-fetches/cancel", Tags: tags,
		Summary:     "End the caller's fetch from an address and throw away what has arrived",
		Description: "It is no error if there is none. A bundle that was imported stays.",
		Errors:      []int{http.StatusConflict}, DefaultStatus: http.StatusNoContent,
	}, director.ActApply, kindRelease,
		func(ctx context.Context, a director.Actor, in *struct{ Body wire.ReleaseFetchAt }) (*empty, error) {
			return nil, s.Mirrors.Cancel(ctx, a.User, in.Body.URL)
		})
}

func fetchJob(ctx context.Context) func(jobs.Job[director.ImageUpload], error) (*fetchOutput, error) {
	return rendered(ctx, "/release-fetches", func(
		j jobs.Job[director.ImageUpload], failed *wire.Problem,
	) wire.ReleaseFetchJob {
		out := wire.ReleaseFetchJob{ID: j.ID, Stage: j.Stage, Done: j.Done, Total: j.Total, Problem: failed}
		if j.Result != nil {
			u := wire.UploadOf(*j.Result)
			out.Upload = &u
		}
		return out
	})
}
