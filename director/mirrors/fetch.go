package mirrors

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"path"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
)

// fetch is the work of one job.
type fetch struct {
	c      Config
	of     director.ReleaseFetch
	at     *url.URL
	client *http.Client
	begun  func(upload string) // called with the id of the upload, as soon as there is one and when it changes

	file   content
	upload director.ImageUpload // none yet if the id is empty
}

// content is a file as its mirror describes it.
type content struct {
	size     int64
	tag      string // entity tag
	modified string
}

// run fetches until all has arrived, and continues after a cut.
func (f *fetch) run(ctx context.Context, progress func(done, total int64)) (director.ImageUpload, error) {
	for failed := 1; ; failed++ {
		before := f.upload.Offset
		err := f.attempt(ctx, progress)
		if err == nil {
			return f.upload, nil
		}
		if ctx.Err() != nil {
			return f.upload, director.Errorf(
				director.KindUnavailable, opFetch, "the fetch ended: %w", context.Cause(ctx),
			).
				WithHint("ask for it again: what has arrived stays for a day")
		}
		if errors.Is(err, errChanged) { // no later fetch finds this part
			return f.upload, errors.Join(err, f.c.Uploads.Abort(ctx, f.upload.ID))
		}
		if director.KindOf(err) != director.KindUnavailable {
			return f.upload, err
		}
		if f.upload.Offset > before {
			failed = 1
		}
		if failed == attempts {
			return f.upload, err
		}
		f.c.Log.Info("a mirror broke off", "host", f.at.Host, "arrived", f.upload.Offset, "err", err)
		_ = f.c.Pause(ctx, failed) // the next attempt finds that ctx has ended
	}
}

// attempt asks the mirror once, for what has not arrived.
func (f *fetch) attempt(ctx context.Context, progress func(done, total int64)) error {
	body, err := f.open(ctx)
	if err != nil {
		return err
	}
	defer func() { _ = body.Close() }()
	if f.upload.Offset == f.upload.Size && !f.upload.Unchecked {
		return nil // it arrived before
	}
	from := &arriving{r: body, done: f.upload.Offset, total: f.file.size, progress: progress}
	if f.upload.Offset == f.upload.Size {
		from.r = http.NoBody // its checksum alone is missing
	}
	u, err := f.c.Uploads.Write(ctx, f.upload.ID, f.upload.Offset, from)
	if u.ID != "" {
		f.upload = u
		f.begun(u.ID)
	}
	if err == nil && u.Offset < u.Size {
		err = io.ErrUnexpectedEOF
	}
	if from.err != nil || errors.Is(err, io.ErrUnexpectedEOF) {
		return director.Errorf(
			director.KindUnavailable, opFetch, "the mirror broke off at %d of %d bytes: %w", from.done, from.total,
			cmp.Or(from.err, err),
		).
			WithHint("ask for it again: what has arrived stays for a day")
	}
	return err
}

// open returns what has not arrived of the file. The first time it learns what the file is, and begins the upload.
func (f *fetch) open(ctx context.Context) (io.ReadCloser, error) {
	res, err := f.get(ctx)
	if err == nil && f.upload.ID == "" {
		if err = f.begin(ctx, res); err == nil && f.upload.Offset > 0 { // an earlier fetch has left a part
			_ = res.Body.Close()
			res, err = f.get(ctx)
		}
	}
	if err == nil {
		err = f.resume(res)
	}
	if err != nil && res != nil {
		_ = res.Body.Close()
		return nil, err
	}
	if err != nil {
		return nil, err
	}
	return res.Body, nil
}

// get asks for the file from the offset of the upload on.
func (f *fetch) get(ctx context.Context) (*http.Response, error) {
	ctx, cancel := context.WithCancel(ctx)
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, f.of.URL, http.NoBody)
	if err != nil {
		cancel()
		return nil, director.Errorf(director.KindInvalid, opFetch, "the address of the mirror cannot be used")
	}
	req.Header.Set("User-Agent", f.c.Agent)
	if f.of.User != "" {
		req.SetBasicAuth(f.of.User, f.of.Password.Reveal())
	}
	if f.upload.Offset > 0 && f.upload.Offset < f.file.size {
		req.Header.Set("Range", fmt.Sprintf("bytes=%d-", f.upload.Offset))
		switch {
		case f.file.tag != "" && !strings.HasPrefix(f.file.tag, "W/"):
			req.Header.Set("If-Range", f.file.tag)
		case f.file.modified != "":
			req.Header.Set("If-Range", f.file.modified)
		}
	}
	res, err := f.client.Do(req)
	if err != nil {
		cancel()
		return nil, unreachable(err)
	}
	res.Body = steadily(res.Body, f.c.Quiet, cancel)
	if err := refused(res); err != nil {
		_ = res.Body.Close()
		return nil, err
	}
	return res, nil
}

// unreachable explains why there was no answer. It does not quote the address, whose query may be a secret.
func unreachable(err error) error {
	if e, ok := errors.AsType[*url.Error](err); ok {
		err = e.Err
	}
	if errors.Is(err, confine.ErrOwn) {
		return director.Errorf(director.KindInvalid, opFetch, "the director may not connect to the mirror: %w", err).
			WithHint("give the address of a mirror that is not the director")
	}
	if errors.Is(err, confine.ErrAddress) {
		return director.Errorf(director.KindInvalid, opFetch, "the director may not connect to the mirror: %w", err).
			WithHint("name its range in mirrorNetworks of the director's configuration")
	}
	if _, ok := errors.AsType[*tls.CertificateVerificationError](err); ok {
		return director.Errorf(
			director.KindInvalid, opFetch, "the certificate of the mirror is not accepted: %w", err,
		).
			WithHint("give the certificate of the mirror's authority")
	}
	return director.Errorf(director.KindUnavailable, opFetch, "the mirror does not answer: %w", err).
		WithHint("correct the address, or try again when the mirror runs")
}

// refused returns an error unless the answer brings the file or a part of it.
func refused(res *http.Response) error {
	status := res.StatusCode
	if packed := res.Header.Get("Content-Encoding"); packed != "" && packed != "identity" {
		return director.Errorf(director.KindInvalid, opFetch, "the mirror sends the file compressed").
			WithHint("let the mirror send it as it is")
	}
	switch {
	case status == http.StatusOK, status == http.StatusPartialContent:
		return nil
	case status == http.StatusRequestedRangeNotSatisfiable:
		return errChanged
	case status >= 300 && status < 400:
		return director.Errorf(
			director.KindInvalid, opFetch, "the mirror redirects (%d), which is not followed", status,
		).
			WithHint("give the address to which it leads")
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return director.Errorf(director.KindInvalid, opFetch, "the mirror refuses the account (%d)", status).
			WithHint("give a user and a password that may read the file")
	case status == http.StatusNotFound, status == http.StatusGone:
		return director.Errorf(director.KindInvalid, opFetch, "the mirror has no such file (%d)", status).
			WithHint("correct the address")
	case status == http.StatusRequestTimeout, status == http.StatusTooManyRequests, status >= 500:
		return director.Errorf(director.KindUnavailable, opFetch, "the mirror answers with status %d", status).
			WithHint("try again later")
	}
	return director.Errorf(director.KindInvalid, opFetch, "the mirror answers with status %d", status).
		WithHint("correct the address")
}

var errChanged = director.Errorf(director.KindInvalid, opFetch, "the file on the mirror has changed meanwhile").
	WithHint("ask for it again: it then begins at its start")

// begin learns what the file is, and begins its upload or finds the one that an earlier fetch has left.
func (f *fetch) begin(ctx context.Context, res *http.Response) error {
	if res.StatusCode != http.StatusOK || res.ContentLength < 0 {
		return director.Errorf(director.KindInvalid, opFetch, "the mirror does not say how long the file is").
			WithHint("let the mirror send the file with a Content-Length")
	}
	f.file = content{res.ContentLength, res.Header.Get("Etag"), res.Header.Get("Last-Modified")}
	u, err := f.c.Uploads.Begin(ctx, director.ImageRequest{
		ID:   digest(f.of.By, f.of.URL, strconv.FormatInt(f.file.size, 10), f.file.tag, f.file.modified),
		Name: name(f.at), Size: f.file.size, By: f.of.By, Release: true,
	})
	if err != nil {
		return err
	}
	f.upload = u
	f.begun(u.ID)
	return nil
}

// name is what people call the file.
func name(at *url.URL) string {
	n := path.Base(at.Path)
	if n == "/" || n == "." {
		n = at.Hostname()
	}
	return n[:min(len(n), 255)]
}

// resume leaves of the answer what comes after the offset. A mirror that sends the whole file instead has what is there
// already skipped. Errors: invalid if it is another file by now.
func (f *fetch) resume(res *http.Response) error {
	tag := res.Header.Get("Etag")
	if tag != "" && tag != f.file.tag {
		return errChanged
	}
	if res.StatusCode == http.StatusPartialContent {
		var from, to, size int64
		_, err := fmt.Sscanf(res.Header.Get("Content-Range"), "bytes %d-%d/%d", &from, &to, &size)
		if err != nil || from != f.upload.Offset || size != f.file.size {
			return errChanged
		}
		return nil
	}
	if res.ContentLength != f.file.size || res.Header.Get("Last-Modified") != f.file.modified {
		return errChanged
	}
	if f.upload.Offset == f.file.size {
		return nil
	}
	if _, err := io.CopyN(io.Discard, res.Body, f.upload.Offset); err != nil {
		return director.Errorf(director.KindUnavailable, opFetch, "the mirror broke off: %w", err)
	}
	return nil
}

// arriving counts what comes, and remembers why it broke off.
type arriving struct {
	r           io.Reader
	done, total int64
	progress    func(done, total int64)
	err         error
}

// Read reads on.
func (a *arriving) Read(p []byte) (int, error) {
	n, err := a.r.Read(p)
	a.done += int64(n)
	a.progress(a.done, a.total)
	if err != nil && !errors.Is(err, io.EOF) {
		a.err = err
	}
	return n, err
}

// body is that of an answer. It ends the request when nothing comes for long.
type body struct {
	io.ReadCloser
	quiet time.Duration
	slow  *time.Timer
	late  atomic.Bool
	end   context.CancelFunc // of the request
}

func steadily(from io.ReadCloser, quiet time.Duration, end context.CancelFunc) *body {
	b := &body{ReadCloser: from, quiet: quiet, end: end}
	b.slow = time.AfterFunc(quiet, func() {
		b.late.Store(true)
		end()
	})
	return b
}

// Read reads on. The time that the reader takes between two reads is not the mirror's.
func (b *body) Read(p []byte) (int, error) {
	b.slow.Reset(b.quiet)
	n, err := b.ReadCloser.Read(p)
	b.slow.Stop()
	if err != nil && b.late.Load() {
		err = fmt.Errorf("nothing came for %s", b.quiet)
	}
	return n, err
}

// Close ends the request.
func (b *body) Close() error {
	b.slow.Stop()
	b.end()
	return b.ReadCloser.Close()
}
