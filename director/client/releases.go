package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/director-kaas/kaas/director/wire"
)

// Releases lists the releases and the imported bundles.
func (c *imageCalls) Releases(ctx context.Context) ([]wire.Release, error) {
	var l wire.Releases
	err := c.call(ctx, request{method: http.MethodGet, path: "/releases"}, &l)
	return l.Items, err
}

// FetchRelease lets the director fetch an archive from a mirror, and returns the upload when all has arrived, also when
// the director restarts meanwhile.
func (c *imageCalls) FetchRelease(
	ctx context.Context, q wire.ReleaseFetch, progress func(wire.ReleaseFetchJob),
) (wire.Upload, error) {
	r := request{method: http.MethodPost, path: "/release-fetches", body: q}
	return awaitJob(ctx, c, r, progress, func(j wire.ReleaseFetchJob) jobState[wire.Upload] {
		return jobState[wire.Upload]{"/release-fetches/" + j.ID, j.Upload, j.Problem, "client.release"}
	})
}

// CancelFetch ends the fetch from the address and throws away what has arrived. No error if there is none.
func (c *imageCalls) CancelFetch(ctx context.Context, address string) error {
	q := wire.ReleaseFetchAt{URL: address}
	return c.call(ctx, request{method: http.MethodPost, path: "/release-fetches/cancel", body: q}, nil)
}

// ImportRelease imports an uploaded archive, and returns when that is done, also when the director restarts meanwhile.
func (c *imageCalls) ImportRelease(
	ctx context.Context, q wire.ReleaseImport, progress func(wire.ReleaseJob),
) (wire.ReleaseFile, error) {
	r := request{method: http.MethodPost, path: "/releases", body: q}
	return awaitJob(ctx, c, r, progress, func(j wire.ReleaseJob) jobState[wire.ReleaseFile] {
		return jobState[wire.ReleaseFile]{"/release-jobs/" + j.ID, j.File, j.Problem, "client.release"}
	})
}

// VerifyRelease lets the director read everything in the bundle of a document, or in an imported one by its digest.
func (c *imageCalls) VerifyRelease(ctx context.Context, name string) (wire.Release, error) {
	var r wire.Release
	err := c.call(ctx, request{method: http.MethodPost, path: "/releases/" + url.PathEscape(name) + "/verify"}, &r)
	return r, err
}

// DeleteReleaseFile removes an imported bundle that nothing needs.
func (c *imageCalls) DeleteReleaseFile(ctx context.Context, digest string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: "/releases/" + digest}, nil)
}

// PruneReleases deletes imported bundles that nothing needs and that are older than olderThan.
func (c *imageCalls) PruneReleases(
	ctx context.Context, olderThan time.Duration, dryRun bool,
) (wire.ReleasesPruned, error) {
	q := url.Values{"older_than": {strconv.FormatInt(int64(olderThan/time.Second), 10)}}
	if dryRun {
		q.Set("dry_run", "true")
	}
	var p wire.ReleasesPruned
	err := c.call(ctx, request{method: http.MethodPost, path: "/releases/prune", query: q}, &p)
	return p, err
}
