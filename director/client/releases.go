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
	var upload wire.Upload
	r := request{method: http.MethodPost, path: "/release-fetches", body: q}
	err := c.await(ctx, r, func(r request) (next request, done bool, err error) {
		var j wire.ReleaseFetchJob
		switch err := c.call(ctx, r, &j); {
		case err != nil:
			return r, false, err
		case j.Problem != nil:
			return r, true, j.Problem.AsError("client.release")
		case j.Upload != nil:
			upload = *j.Upload
			return r, true, nil
		}
		if progress != nil {
			progress(j)
		}
		return request{method: http.MethodGet, path: "/release-fetches/" + j.ID}, false, nil
	})
	return upload, err
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
	var file wire.ReleaseFile
	r := request{method: http.MethodPost, path: "/releases", body: q}
	err := c.await(ctx, r, func(r request) (next request, done bool, err error) {
		var j wire.ReleaseJob
		switch err := c.call(ctx, r, &j); {
		case err != nil:
			return r, false, err
		case j.Problem != nil:
			return r, true, j.Problem.AsError("client.release")
		case j.File != nil:
			file = *j.File
			return r, true, nil
		}
		if progress != nil {
			progress(j)
		}
		return request{method: http.MethodGet, path: "/release-jobs/" + j.ID}, false, nil
	})
	return file, err
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
