package api

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humagin"
	"github.com/gin-gonic/gin"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/wire"
)

// Keys keeps requests that must happen once. It is implemented by director/store.
type Keys interface {
	ClaimOnce(ctx context.Context, o director.Once, now, until, expires time.Time) (director.Once, error)
	RenewOnce(ctx context.Context, o director.Once, until time.Time) (bool, error)
	AnswerOnce(ctx context.Context, o director.Once) error
	ReleaseOnce(ctx context.Context, o director.Once) error
}

// KeyHeader is the header by which a caller says that a request must happen once.
const KeyHeader = "Idempotency-Key"

const (
	maxKey     = 128
	keepAnswer = 24 * time.Hour   // how long a key is known
	claimTime  = 10 * time.Second // after which a try that is silent counts as dead
)

// again makes the answer of a request from the witness of a try that did the work and died before it answered.
type again func(ctx context.Context, witness string) (status int, location string, body any, err error)

// metaAgain is where an operation's again is kept; an operation that has one takes keys.
const metaAgain = "again"

// takesKeys lets an operation happen once for each key.
func takesKeys(op huma.Operation, f again) huma.Operation {
	op.Metadata = map[string]any{metaAgain: f}
	op.Parameters = append(op.Parameters, &huma.Param{
		Name: KeyHeader, In: "header", Schema: &huma.Schema{Type: huma.TypeString},
		Description: "A text that is new for each intention, such as a UUID. The same request with the same key is " +
			"answered once and the answer repeated, " +
			"for 24 hours; another request with it is refused. Problems are not kept.",
	})
	op.Errors = append(op.Errors, http.StatusConflict)
	return op
}

// once is the middleware of operations that take keys. It runs after the caller is known.
func (s *server) once(f again) func(huma.Context, func(huma.Context)) {
	return func(ctx huma.Context, next func(huma.Context)) {
		key := ctx.Header(KeyHeader)
		if key == "" || s.Keys == nil {
			next(ctx)
			return
		}
		g := humagin.Unwrap(ctx)
		o, err := s.claim(g, actorOf(ctx.Context()).User, key)
		switch {
		case err != nil:
			_ = s.problem(ctx.Context(), err) // for the log
			s.abort(g, err)
		case o.Status != 0:
			replay(g, o)
		default:
			s.work(ctx, g, o, f, next)
		}
	}
}

// claim returns the request with its answer, or claimed by us.
func (s *server) claim(g *gin.Context, user, key string) (director.Once, error) {
	if len(key) > maxKey {
		return director.Once{}, director.Invalid("api.once", "the key is wrong", []director.Field{
			{Path: "header." + KeyHeader, Msg: "is too long", Hint: "use a UUID"},
		})
	}
	text, err := io.ReadAll(http.MaxBytesReader(g.Writer, g.Request.Body, maxDocuments+1))
	if err != nil {
		if _, ok := errors.AsType[*http.MaxBytesError](err); ok {
			p := newProblem(director.KindInvalid, http.StatusRequestEntityTooLarge)
			p.Detail = "the request is too large"
			return director.Once{}, p
		}
		return director.Once{}, director.Errorf(director.KindUnavailable, "api.once", "the request broke off: %w", err)
	}
	g.Request.Body = io.NopCloser(bytes.NewReader(text))
	sum := sha256.New()
	for _, part := range []string{
		g.Request.Method, g.Request.URL.RequestURI(), g.GetHeader("Content-Type"), g.GetHeader("If-Match"),
		g.GetHeader("If-None-Match"),
	} {
		sum.Write([]byte(part + "\x00"))
	}
	sum.Write(text)
	name := make([]byte, 8)
	_, _ = rand.Read(name) // never fails
	ours := director.Once{
		Actor: user, Key: key, Request: hex.EncodeToString(sum.Sum(nil)), Claim: hex.EncodeToString(name),
	}
	now := s.Now()
	o, err := s.Keys.ClaimOnce(g.Request.Context(), ours, now, now.Add(claimTime), now.Add(keepAnswer))
	switch {
	case err != nil:
		return o, err
	case o.Request != ours.Request:
		return o, director.Invalid("api.once", "the key belongs to another request", []director.Field{
			{Path: "header." + KeyHeader, Msg: "was used for something else", Hint: "use a new key for each request"},
		})
	case o.Status == 0 && o.Claim != ours.Claim:
		p := newProblem(director.KindConflict, http.StatusConflict)
		p.Detail, p.Hint, p.retryAfter = "the first request with this key is still at work",
			"send it again in a moment", "1"
		return o, p
	}
	return o, nil
}

// work does what was asked, or finds the work of a try that died, and keeps the answer before it is sent: who never
// hears it asks again.
func (s *server) work(ctx huma.Context, g *gin.Context, o director.Once, f again, next func(huma.Context)) {
	stop := s.renew(ctx.Context(), o)
	defer stop()
	out := g.Writer
	rec := &recorder{ResponseWriter: out, header: out.Header().Clone(), status: http.StatusOK}
	if o.Witness != "" {
		s.repeat(ctx.Context(), g, rec, o, f)
	} else {
		g.Writer = rec
		// After a panic it is unknown what was done: the claim stays, and runs out like that of a process that died.
		defer func() { g.Writer = out }()
		next(huma.WithContext(ctx, director.WithOnce(ctx.Context(), o)))
	}
	o.Status, o.Body, o.Header = rec.status, rec.body.Bytes(), map[string]string{}
	for _, k := range []string{"Content-Type", "Location", "ETag"} {
		if v := rec.header.Get(k); v != "" {
			o.Header[k] = v
		}
	}
	keep := context.WithoutCancel(ctx.Context()) // the caller may have gone
	var err error
	if rec.status < http.StatusBadRequest {
		err = s.Keys.AnswerOnce(keep, o)
	} else {
		err = s.Keys.ReleaseOnce(keep, o)
	}
	if err != nil {
		s.Log.ErrorContext(keep, "an answer was not kept for its key", "request_id", requestID(keep), "err", err)
	}
	for k, v := range rec.header {
		out.Header()[k] = v
	}
	out.WriteHeader(rec.status)
	_, _ = out.Write(rec.body.Bytes()) // the status is out: a failure is a caller who has gone
}

// repeat answers from the witness.
func (s *server) repeat(ctx context.Context, g *gin.Context, rec *recorder, o director.Once, f again) {
	status, location, body, err := f(ctx, o.Witness)
	if err != nil {
		g.Writer, rec.ResponseWriter = rec, g.Writer
		s.abort(g, s.problem(ctx, err))
		g.Writer = rec.ResponseWriter
		return
	}
	text, err := wire.Marshal(body)
	if err != nil {
		s.Log.ErrorContext(ctx, "an answer does not marshal", "request_id", requestID(ctx), "err", err)
	}
	rec.status = status
	rec.header.Set("Content-Type", typeJSON)
	if location != "" {
		rec.header.Set("Location", location)
	}
	_, _ = rec.body.Write(text) // into memory
}

// renew keeps the claim while the work is going on.
func (s *server) renew(ctx context.Context, o director.Once) (stop func()) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(claimTime / 3)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if _, err := s.Keys.RenewOnce(ctx, o, s.Now().Add(claimTime)); err != nil && ctx.Err() == nil {
				s.Log.WarnContext(ctx, "a claim was not renewed", "request_id", requestID(ctx), "err", err)
			}
		}
	}()
	return func() { cancel(); <-done }
}

// replay sends a kept answer. The header says so, for people who look.
func replay(g *gin.Context, o director.Once) {
	for k, v := range o.Header {
		g.Header(k, v)
	}
	g.Header("Idempotency-Replayed", "true")
	g.Status(o.Status)
	_, _ = g.Writer.Write(o.Body) // the status is out: a failure is a caller who has gone
}

// recorder holds an answer back until it is kept.
type recorder struct {
	gin.ResponseWriter
	header http.Header
	status int
	body   bytes.Buffer
}

// Header returns the header of the answer that is held back.
func (r *recorder) Header() http.Header { return r.header }

// WriteHeader takes the status.
func (r *recorder) WriteHeader(status int) { r.status = status }

// WriteHeaderNow does nothing: there is nothing to send yet.
func (r *recorder) WriteHeaderNow() {}

// Write takes a part of the body.
func (r *recorder) Write(b []byte) (int, error) { return r.body.Write(b) }

// WriteString takes a part of the body.
func (r *recorder) WriteString(s string) (int, error) { return r.body.WriteString(s) }

// Status returns the status that was taken.
func (r *recorder) Status() int { return r.status }

// Size returns how long the body is.
func (r *recorder) Size() int { return r.body.Len() }

// Written reports whether a body has begun.
func (r *recorder) Written() bool { return r.body.Len() > 0 }

// Unwrap gives the deadlines of the connection to who asks for them.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
