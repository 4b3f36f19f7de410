package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/wire"
)

// piece is how much of a file is sent in one request: little enough to be sent again without grief, and a small share
// of what a request costs.
const piece = 16 << 20

// Images lists the images and the imported files.
func (c *imageCalls) Images(ctx context.Context) ([]wire.Image, error) {
	var l wire.Images
	err := c.call(ctx, request{method: http.MethodGet, path: "/images"}, &l)
	return l.Items, err
}

// SendFile uploads the content of r, from where an earlier try ended, and returns when all of it has arrived. When the
// connection breaks, it continues at the offset that the director has, and calls lost, which may be nil. progress is
// called with how much has arrived, and may be nil.
func (c *imageCalls) SendFile(
	ctx context.Context, q wire.UploadRequest, r io.ReaderAt, progress func(arrived int64), lost func(error),
) (wire.Upload, error) {
	var u wire.Upload
	begin := func() error { return c.call(ctx, request{method: http.MethodPost, path: "/uploads", body: q}, &u) }
	if err := begin(); err != nil {
		return u, err
	}
	for failed := 0; ; {
		if progress != nil {
			progress(u.Offset)
		}
		if u.Offset >= u.Size {
			return u, nil
		}
		before := u.Offset
		err := c.sendPiece(ctx, &u, io.NewSectionReader(r, u.Offset, min(piece, u.Size-u.Offset)))
		if err == nil {
			failed = 0
			continue
		}
		if ctx.Err() != nil {
			return u, ctx.Err()
		}
		if !again(err) {
			return u, err
		}
		// What has arrived is known by the director alone. A wrong file is gone there, and its upload with it.
		if failed++; failed > maxSilence {
			return u, err
		}
		if lost != nil && failed == 1 {
			lost(err)
		}
		select {
		case <-ctx.Done():
			return u, ctx.Err()
		case <-time.After(c.backoff(failed)):
		}
		if err := begin(); err != nil && !again(err) {
			return u, err
		}
		if u.Offset > before {
			failed = 0
		}
	}
}

// again tells whether another try can help: no answer, a director that stops, or an offset that is another one by now.
func again(err error) bool {
	kind := director.KindOf(err)
	return kind == director.KindUnavailable || kind == director.KindConflict || errors.Is(err, io.ErrUnexpectedEOF)
}

func (c *imageCalls) sendPiece(ctx context.Context, u *wire.Upload, r *io.SectionReader) error {
	var got wire.Upload
	err := c.call(ctx, request{
		method: http.MethodPatch, path: "/uploads/" + u.ID, body: r, contentType: wire.TypeUpload,
		header: http.Header{"Upload-Offset": {strconv.FormatInt(u.Offset, 10)}},
	}, &got)
	if err == nil {
		*u = got
	}
	return err
}

// AbortUpload throws an upload away.
func (c *imageCalls) AbortUpload(ctx context.Context, id string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: "/uploads/" + id}, nil)
}

// ImportImage makes an image of an upload, and returns when that is done.
func (c *imageCalls) ImportImage(
	ctx context.Context, q wire.ImageImport, progress func(wire.ImageJob),
) (wire.ImageFile, error) {
	return c.awaitImage(ctx, request{method: http.MethodPost, path: "/images", body: q}, progress)
}

// ConvertImage makes another image of an imported one, and returns when that is done.
func (c *imageCalls) ConvertImage(
	ctx context.Context, sum, compat string, progress func(wire.ImageJob),
) (wire.ImageFile, error) {
	return c.awaitImage(
		ctx,
		request{
			method: http.MethodPost, path: "/images/" + sum + "/convert", body: wire.ImageConversion{Compat: compat},
		},
		progress,
	)
}

// awaitImage repeats the same request until the work is done, also when the director restarts.
func (c *imageCalls) awaitImage(ctx context.Context, r request, progress func(wire.ImageJob)) (wire.ImageFile, error) {
	return awaitJob(ctx, c, r, progress, func(j wire.ImageJob) jobState[wire.ImageFile] {
		return jobState[wire.ImageFile]{"/image-jobs/" + j.ID, j.File, j.Problem, "client.image"}
	})
}

// jobState is what a job says: where it is asked for, and its result or why it failed, once it has ended.
type jobState[T any] struct {
	path    string
	result  *T
	problem *wire.Problem
	op      string // of the error
}

// awaitJob begins a job by the request, and follows it to its end as await does. progress may be nil.
func awaitJob[J, T any](
	ctx context.Context, c *imageCalls, r request, progress func(J), read func(J) jobState[T],
) (result T, err error) {
	err = c.await(ctx, r, func(r request) (next request, done bool, err error) {
		var j J
		if err := c.call(ctx, r, &j); err != nil {
			return r, false, err
		}
		switch state := read(j); {
		case state.problem != nil:
			return r, true, state.problem.AsError(state.op)
		case state.result != nil:
			result = *state.result
			return r, true, nil
		default:
			if progress != nil {
				progress(j)
			}
			return request{method: http.MethodGet, path: state.path}, false, nil
		}
	})
	return result, err
}

// await asks again until ask says that it is done. Of requests that only read, silence of the director is no error for
// a while. A director that was started again has forgotten the job: it is asked for the work again, and finds it done
// or begins it.
func (c *imageCalls) await(
	ctx context.Context, r request, ask func(request) (next request, done bool, err error),
) error {
	const pause = 300 * time.Millisecond
	for first, failed := r, 0; ; {
		next, done, err := ask(r)
		switch {
		case done:
			return err
		case err == nil:
			r, failed = next, 0
		case ctx.Err() != nil:
			return ctx.Err()
		case director.KindOf(err) == director.KindUnavailable && failed < maxSilence && r.method == http.MethodGet:
			failed++
		case director.KindOf(err) == director.KindNotFound && failed < maxSilence && r.method == http.MethodGet:
			r, failed = first, failed+1
		default:
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(pause + c.backoff(failed)):
		}
	}
}

// DeleteImageFile removes an imported file that nothing needs.
func (c *imageCalls) DeleteImageFile(ctx context.Context, sum string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: "/images/" + sum}, nil)
}

// PruneImages deletes images that nothing needs, and of files only those that are older than olderThan.
func (c *imageCalls) PruneImages(
	ctx context.Context, olderThan time.Duration, rehearse bool,
) (wire.ImagesPruned, error) {
	q := url.Values{"older_than": {strconv.FormatInt(int64(olderThan/time.Second), 10)}}
	if rehearse {
		q.Set("dry_run", "true")
	}
	var p wire.ImagesPruned
	err := c.call(ctx, request{method: http.MethodPost, path: "/images/prune", query: q}, &p)
	return p, err
}
