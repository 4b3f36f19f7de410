package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/jobs"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/releases"
	"github.com/director-kaas/kaas/director/wire"
)

// Releases is what the API offers of release bundles besides their documents. All methods return *director.Error and
// are safe for concurrent use.
type Releases interface {
	// List lists the documents of releases by name, and then the imported bundles that none names, the newest first.
	List(ctx context.Context) ([]releases.View, error)
	// Import begins to import an uploaded archive, or returns the job that does.
	Import(ctx context.Context, r director.ReleaseImport) (jobs.Job[director.ReleaseFile], error)
	// Job returns the job, or not_found.
	Job(ctx context.Context, id string) (jobs.Job[director.ReleaseFile], error)
	// Verify reads everything in the bundle of a document, or in an imported one by its digest.
	Verify(ctx context.Context, name string) (releases.View, error)
	// Delete removes an imported bundle; conflict while something needs it. No error if it is gone.
	Delete(ctx context.Context, actor, digest string) error
	// Prune removes the imported bundles that nothing needs and that were imported before the time.
	Prune(ctx context.Context, actor string, before time.Time, dryRun bool) ([]director.ReleaseLeft, error)
}

const kindRelease = string(model.KindRelease)

type releaseImportInput struct{ Body wire.ReleaseImport }

type releaseJobOutput = jobOutput[wire.ReleaseJob]

type releaseJobInput struct {
	ID string `path:"id" maxLength:"100" doc:"Id of the job."`
}

type releaseNameInput struct {
	Name string `path:"name" maxLength:"64" doc:"Of the document, or the digest of an imported bundle."`
}

// Resolve lifts the limit of the answer: it comes when a whole bundle was read.
func (*releaseNameInput) Resolve(ctx huma.Context) []error {
	unlimited(ctx)
	return nil
}

type releaseFileInput struct {
	Digest string `path:"digest" maxLength:"64" doc:"Digest of an imported bundle."`
}

func (s *documentRoutes) releases(api huma.API) {
	tags := []string{"Releases"}
	operation(s.server, api, huma.Operation{
		OperationID: "list-releases", Method: http.MethodGet, Path: "/releases", Tags: tags,
		Summary: "List the releases and the imported bundles",
		Description: "The documents of releases by name, and then the imported bundles that none names, the newest " +
			"first.",
	}, director.ActRead, kindRelease, s.listReleases)
	operation(s.server, api, huma.Operation{
		OperationID: "import-release", Method: http.MethodPost, Path: "/releases", Tags: tags,
		Summary: "Import an uploaded archive of a release bundle",
		Description: "The archive is unpacked, verified as a whole, and kept by its digest, which a document of the " +
			"kind Release then names. Asked again, the answer is the same job, or its end. An archive that is wrong " +
			"is thrown away. Without a signature of a trusted key the import is refused, unless unsigned says in " +
			"words why.",
		Errors: []int{http.StatusNotFound, http.StatusConflict}, DefaultStatus: http.StatusAccepted,
	}, director.ActApply, kindRelease,
		func(ctx context.Context, a director.Actor, in *releaseImportInput) (*releaseJobOutput, error) {
			return releaseJob(ctx)(s.Releases.Import(ctx, director.ReleaseImport{
				Upload: in.Body.Upload, Unsigned: in.Body.Unsigned, By: a.User,
			}))
		})
	operation(s.server, api, huma.Operation{
		OperationID: "get-release-job", Method: http.MethodGet, Path: "/release-jobs/{id}", Tags: tags,
		Summary: "See how far an import is",
		Description: "A director that was started again does not know its jobs any more: ask for the same import " +
			"again.",
		Errors: []int{http.StatusNotFound},
	}, director.ActRead, kindRelease,
		func(ctx context.Context, _ director.Actor, in *releaseJobInput) (*releaseJobOutput, error) {
			return releaseJob(ctx)(s.Releases.Job(ctx, in.ID))
		})
	operation(s.server, api, huma.Operation{
		OperationID: "verify-release", Method: http.MethodPost, Path: "/releases/{name}/verify", Tags: tags,
		Summary: "Read everything in a bundle and compare it with its release.yaml",
		Description: "It changes nothing. The answer comes when all of it was read. A damaged bundle is a problem " +
			"with every wrong place.",
		Errors: []int{http.StatusNotFound},
	}, director.ActRead, kindRelease, s.verifyRelease)
	operation(s.server, api, huma.Operation{
		OperationID: "delete-release-file", Method: http.MethodDelete, Path: "/releases/{digest}", Tags: tags,
		Summary: "Delete an imported bundle that nothing needs",
		Errors:  []int{http.StatusConflict}, DefaultStatus: http.StatusNoContent,
	}, director.ActDelete, kindRelease,
		func(ctx context.Context, a director.Actor, in *releaseFileInput) (*empty, error) {
			return nil, s.Releases.Delete(ctx, a.User, in.Digest)
		})
	operation(s.server, api, huma.Operation{
		OperationID: "prune-releases", Method: http.MethodPost, Path: "/releases/prune", Tags: tags,
		Summary:     "Delete what is not needed",
		Description: "The imported bundles that no document and no plan that can continue names.",
	}, director.ActDelete, kindRelease, s.pruneReleases)
}

func wireRelease(v releases.View) wire.Release {
	return wire.Release{
		Name: v.Name, Digest: v.Digest, Kubernetes: v.Kubernetes, Directory: v.Directory, Components: v.Components,
		File: wire.ReleaseFileOf(v.File), Clusters: v.Clusters, SignedBy: v.SignedBy, Unsigned: v.Unsigned,
		Refused: v.Refused,
	}
}

func (s *documentRoutes) listReleases(ctx context.Context, _ director.Actor, _ *empty) (*body[wire.Releases], error) {
	views, err := s.Releases.List(ctx)
	if err != nil {
		return nil, err
	}
	list := wire.Releases{Items: make([]wire.Release, len(views))}
	for i, v := range views {
		list.Items[i] = wireRelease(v)
	}
	return &body[wire.Releases]{list}, nil
}

func (s *documentRoutes) verifyRelease(
	ctx context.Context, _ director.Actor, in *releaseNameInput,
) (*body[wire.Release], error) {
	ctx, cancel := s.untilStop(ctx)
	defer cancel()
	v, err := s.Releases.Verify(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	return &body[wire.Release]{wireRelease(v)}, nil
}

func (s *documentRoutes) pruneReleases(
	ctx context.Context, a director.Actor, in *pruneInput,
) (*body[wire.ReleasesPruned], error) {
	left, err := s.Releases.Prune(ctx, a.User, s.Now().Add(-time.Duration(in.OlderThan)*time.Second), in.DryRun)
	if err != nil {
		return nil, err
	}
	out := wire.ReleasesPruned{DryRun: in.DryRun, Items: make([]wire.ReleaseLeft, len(left))}
	for i, l := range left {
		out.Items[i] = wire.ReleaseLeft(l)
	}
	return &body[wire.ReleasesPruned]{out}, nil
}

func releaseJob(ctx context.Context) func(jobs.Job[director.ReleaseFile], error) (*releaseJobOutput, error) {
	return rendered(ctx, "/release-jobs", func(j jobs.Job[director.ReleaseFile], failed *wire.Problem) wire.ReleaseJob {
		return wire.ReleaseJob{
			ID: j.ID, Stage: j.Stage, Done: j.Done, Total: j.Total, File: wire.ReleaseFileOf(j.Result), Problem: failed,
		}
	})
}
