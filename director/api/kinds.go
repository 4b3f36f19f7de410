package api

import (
	"context"
	"errors"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/wire"
)

// kinds is the one table from what went wrong to what HTTP says.
var kinds = map[director.Kind]struct {
	status int
	title  string
}{
	director.KindInvalid:         {http.StatusUnprocessableEntity, "The input is wrong"},
	director.KindUnauthenticated: {http.StatusUnauthorized, "Who asks is not known"},
	director.KindForbidden:       {http.StatusForbidden, "Not allowed"},
	director.KindNotFound:        {http.StatusNotFound, "Not found"},
	director.KindConflict:        {http.StatusConflict, "In conflict with what is there"},
	director.KindStale:           {http.StatusPreconditionFailed, "It has changed meanwhile"},
	director.KindExhausted:       {http.StatusTooManyRequests, "Used up"},
	director.KindUnavailable:     {http.StatusServiceUnavailable, "Does not answer"},
	director.KindInternal:        {http.StatusInternalServerError, "A defect of the director"},
}

// StatusOf returns what HTTP says of the kind.
func StatusOf(kind director.Kind) int { return kinds[kind].status }

// kindOf gives a kind to errors that are born in the HTTP layer with nothing but a status.
func kindOf(status int) director.Kind {
	switch status {
	case http.StatusUnauthorized:
		return director.KindUnauthenticated
	case http.StatusForbidden:
		return director.KindForbidden
	case http.StatusNotFound, http.StatusMethodNotAllowed:
		return director.KindNotFound
	case http.StatusConflict:
		return director.KindConflict
	case http.StatusPreconditionFailed:
		return director.KindStale
	case http.StatusTooManyRequests:
		return director.KindExhausted
	case http.StatusRequestTimeout, http.StatusServiceUnavailable:
		return director.KindUnavailable
	}
	if status >= 400 && status < 500 {
		return director.KindInvalid
	}
	return director.KindInternal
}

// problem is a wire.Problem as huma wants errors to be.
type problem struct {
	wire.Problem
	cause      error
	retryAfter string // seconds, for a Retry-After header
}

// Error returns the cause for the log.
func (p *problem) Error() string {
	if p.cause != nil {
		return p.cause.Error()
	}
	return p.Detail
}

// Unwrap returns the cause.
func (p *problem) Unwrap() error { return p.cause }

// GetStatus returns the HTTP status.
func (p *problem) GetStatus() int { return p.Status }

// GetHeaders returns what the header says in addition to the body.
func (p *problem) GetHeaders() http.Header {
	h := http.Header{}
	if p.retryAfter != "" {
		h.Set("Retry-After", p.retryAfter)
	}
	if p.Status == http.StatusUnauthorized {
		h.Set("WWW-Authenticate", `Bearer realm="director"`)
	}
	return h
}

// ContentType returns the media type of the body.
func (p *problem) ContentType(string) string { return "application/problem+json" }

// problemOf is the one place where errors become problems. What is internal shows nothing of its cause: the log does.
func problemOf(ctx context.Context, err error) *problem {
	if p, ok := errors.AsType[*problem](err); ok {
		if p.RequestID == "" {
			p.RequestID = requestID(ctx)
		}
		return p
	}
	kind := director.KindOf(err)
	p := newProblem(kind, kinds[kind].status)
	p.cause = err
	p.RequestID = requestID(ctx)
	e, ok := errors.AsType[*director.Error](err)
	switch {
	case !ok && errors.Is(err, context.Canceled):
		p = newProblem(director.KindUnavailable, kinds[director.KindUnavailable].status)
		p.cause, p.RequestID, p.Detail = err, requestID(ctx), "the request was given up"
		return p
	case !ok:
		p.Detail = "something went wrong inside the director"
		p.Hint = "look for the request id in the director's log"
		return p
	}
	p.Detail, p.Hint = e.Msg, director.HintOf(err)
	if h := e.Holder; h != nil {
		p.Holder = &wire.Holder{
			Plan: h.Plan, Cluster: h.Cluster, Operation: h.Operation, Status: h.Status, By: h.By, Since: h.Since.UTC(),
		}
	}
	for _, f := range e.Fields {
		p.Errors = append(p.Errors, wire.ProblemFieldOf(f))
	}
	return p
}

func newProblem(kind director.Kind, status int) *problem {
	return &problem{Problem: wire.Problem{
		Type: wire.ProblemTypePrefix + string(kind), Title: kinds[kind].title, Status: status, Kind: string(kind),
	}}
}

// frameworkProblem renders an error of huma's own: validation, sizes, media types. The values it quotes are left out,
// since one of them may be a password.
func frameworkProblem(ctx huma.Context, status int, msg string, errs ...error) huma.StatusError {
	if status == http.StatusBadRequest {
		status = http.StatusUnprocessableEntity
	}
	p := newProblem(kindOf(status), status)
	p.Detail = msg
	if ctx != nil {
		p.RequestID = requestID(ctx.Context())
	}
	if status >= http.StatusInternalServerError {
		p.cause = errors.Join(errs...)
		p.Detail = "something went wrong inside the director"
		return p
	}
	if msg == "validation failed" {
		p.Detail = "the request does not have the form that this operation takes"
		p.Hint = "see " + wire.Prefix + "/openapi.json"
	}
	for _, err := range errs {
		if err == nil {
			continue
		}
		f := wire.ProblemField{Field: "request", Message: err.Error()}
		if d, ok := errors.AsType[*huma.ErrorDetail](err); ok {
			f = wire.ProblemField{Field: d.Location, Message: d.Message}
		}
		p.Errors = append(p.Errors, f)
	}
	return p
}
