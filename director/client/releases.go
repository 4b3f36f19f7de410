package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/wire"
)

// Releases lists the releases and the imported bundles.
func (c *imageCalls) Releases(ctx context.Context) ([]wire.Release, error) {
	var l wire.Releases
	err := c.call(ctx, request{method: http.MethodGet, path: "/releases"}, &l)
	return l.Items, err
}

// ImportRelease imports an uploaded archive, and returns when that is done, also when the director restarts meanwhile.
func (c *imageCalls) ImportRelease(
	ctx context.Context, q wire.ReleaseImport, progress func(wire.ReleaseJob),
) (wire.ReleaseFile, error) {
	const op, pause = "client.release", 300 * time.Millisecond
	r := request{method: http.MethodPost, path: "/releases", body: q}
	for failed := 0; ; {
		var j wire.ReleaseJob
		err := c.call(ctx, r, &j)
		switch {
		case err == nil && j.Problem != nil:
			return wire.ReleaseFile{}, j.Problem.AsError(op)
		case err == nil && j.File != nil:
			return *j.File, nil
		case err == nil:
			failed = 0
			if progress != nil {
				progress(j)
			}
		case ctx.Err() != nil:
			return wire.ReleaseFile{}, ctx.Err()
		case director.KindOf(err) == director.KindUnavailable && failed < maxSilence:
			failed++
		default:
			return wire.ReleaseFile{}, err
		}
		select {
		case <-ctx.Done():
			return wire.ReleaseFile{}, ctx.Err()
		case <-time.After(pause + c.backoff(failed)):
		}
	}
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
