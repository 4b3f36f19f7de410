package api_test

import (
	"context"
	"errors"
	"net/http"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/documents"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/wire"
)

// failing answers every question for documents with one error.
type failing struct {
	api.Documents
	err error
}

func (f failing) ApplyIf(
	context.Context, documents.Author, []byte, string, bool, documents.Condition,
) ([]model.Change, error) {
	return nil, f.err
}

func TestEveryKindHasAStatus(t *testing.T) {
	t.Parallel()
	cause := errors.New("canary-cause")
	seen := map[int]director.Kind{}
	for _, kind := range director.Kinds() {
		b := setup(t, func(c *api.Config) {
			c.Documents = failing{c.Documents, &director.Error{
				Kind: kind, Op: "test.op", Msg: "a message", Hint: "a hint", Err: cause,
				Fields: []director.Field{{Path: "spec.x", Msg: "is wrong", Hint: "be right"}},
			}}
		})
		p := problemOf(t, b.send(t, http.MethodPost, "/apply", "x: y"))
		want := wire.Problem{
			Type: p.Type, Title: p.Title, Status: p.Status, RequestID: p.RequestID,
			Detail: "a message", Kind: string(kind), Hint: "a hint",
			Errors: []wire.ProblemField{{Field: "spec.x", Pointer: "/spec/x", Message: "is wrong", Hint: "be right"}},
		}
		if diff := cmp.Diff(want, p); diff != "" {
			t.Errorf("%s: %s", kind, diff)
		}
		if p.Status < 400 {
			t.Errorf("%s has the status %d", kind, p.Status)
		}
		if other, ok := seen[p.Status]; ok {
			t.Errorf("%s and %s have the same status", kind, other)
		}
		seen[p.Status] = kind
		if !strings.Contains(b.log.String(), "canary-cause") {
			t.Errorf("%s: the cause is not in the log", kind)
		}
	}
}

func TestForeignErrorsAndPanicsShowNothing(t *testing.T) {
	t.Parallel()
	for name, ops := range map[string]api.Documents{
		"error": failing{err: errors.New("canary-secret")},
		"panic": panicking{},
	} {
		b := setup(t, func(c *api.Config) { c.Documents = ops })
		resp := b.send(t, http.MethodPost, "/apply", "x: y")
		p := problemOf(t, resp)
		if p.Kind != string(director.KindInternal) || strings.Contains(p.Detail+p.Hint, "canary") {
			t.Errorf("%s: %+v", name, p)
		}
		if !strings.Contains(b.log.String(), "canary-secret") {
			t.Errorf("%s: the cause is not in the log", name)
		}
	}
}

type panicking struct{ api.Documents }

func (panicking) ApplyIf(
	context.Context, documents.Author, []byte, string, bool, documents.Condition,
) ([]model.Change, error) {
	panic("canary-secret")
}

func TestBadRequests(t *testing.T) {
	t.Parallel()
	b := setup(t)
	big := "x: " + strings.Repeat("y", 5<<20)
	for _, c := range []struct {
		name, method, path, body string
		header                   []string
		status                   int
		kind, field              string
	}{
		{"no route", "GET", "/nothing", "", nil, 404, "not_found", ""},
		{"no method", "PUT", "/login", "{}", nil, 405, "not_found", ""},
		{"no such kind", "GET", "/documents/Pod", "", nil, 422, "invalid", "path.kind"},
		{"no such document", "GET", "/documents/Cluster/none", "", nil, 404, "not_found", ""},
		{"no such cluster", "GET", "/clusters/none", "", nil, 404, "not_found", ""},
		{"no such plan", "GET", "/plans/none", "", nil, 404, "not_found", ""},
		{
			"no such plan to follow", "GET", "/plans/none/events", "",
			[]string{"Accept", "text/event-stream"},
			404,
			"not_found", "",
		},
		{"no such plan to start", "POST", "/plans/none/start", `{"hash":"x"}`, nil, 404, "not_found", ""},
		{"no hash", "POST", "/plans/none/start", `{}`, nil, 422, "invalid", "body"},
		{"no step", "GET", "/plans/none/log", "", nil, 422, "invalid", "query.step"},
		{"unknown query", "GET", "/plans?foo=1", "", nil, 422, "invalid", "query.foo"},
		{"limit", "GET", "/plans?limit=0", "", nil, 422, "invalid", "query.limit"},
		{"unknown field", "POST", "/login", `{"user":"a","password":"b","x":1}`, nil, 422, "invalid", "body.x"},
		{"wrong type", "POST", "/login", `{"user":1,"password":"b"}`, nil, 422, "invalid", "body.user"},
		{"not JSON", "POST", "/login", `{"user`, nil, 422, "invalid", ""},
		{
			"unknown operation", "POST", "/clusters/demo/plans", `{"operation":"cluster.explode"}`, nil, 422, "invalid",
			"body.operation",
		},
		{"media type", "POST", "/apply", "x", []string{"Content-Type", "text/html"}, 415, "invalid", ""},
		{"too much", "POST", "/apply", big, nil, 413, "invalid", ""},
		{"too much JSON", "POST", "/login", `{"user":"` + strings.Repeat("y", 100<<10) + `"}`, nil, 413, "invalid", ""},
		{
			"1 MB of reasons", "POST", "/hook-deliveries/d1/answer",
			`{"decision":"continue","reason":"` + strings.Repeat("y", 1<<20) + `"}`, nil, 413, "invalid", "",
		},
		{
			"a long reason", "POST", "/hook-deliveries/d1/answer",
			`{"decision":"continue","reason":"` + strings.Repeat("y", 1001) + `"}`, nil, 422, "invalid", "body.reason",
		},
		{
			"unknown field of a model", "POST", "/apply?source=c.yaml", strings.Replace(cluster, "image:", "imag:", 1),
			nil, 422, "invalid", "c.yaml:4: spec.imag",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			p := problemOf(t, b.send(t, c.method, c.path, c.body, c.header...))
			if p.Status != c.status || p.Kind != c.kind {
				t.Errorf("%d %s, want %d %s: %+v", p.Status, p.Kind, c.status, c.kind, p)
			}
			if c.field != "" && (len(p.Errors) == 0 || p.Errors[0].Field != c.field) {
				t.Errorf("errors %+v, want the field %s", p.Errors, c.field)
			}
		})
	}
}
