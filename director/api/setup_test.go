package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/api/apitest"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/identity"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/wire"
)

const password = "correct horse battery"

type bundle struct {
	ops   *apitest.Operations
	users *store.Store
	url   string
	http  *http.Client
	token string
	log   *syncBuffer
	stop  context.CancelFunc
}

type syncBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (s *syncBuffer) Write(p []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.Write(p)
}

func (s *syncBuffer) String() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.b.String()
}

func setup(t *testing.T, adjust ...func(*api.Config)) *bundle {
	t.Helper()
	b := &bundle{ops: apitest.New(), users: apitest.OpenStore(t), log: &syncBuffer{}}
	svc, err := auth.New(b.users, auth.Config{Hash: auth.Params{MemoryKiB: 64, Passes: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := svc.EnsureAdmin(t.Context(), password); err != nil {
		t.Fatal(err)
	}
	stopping, stop := context.WithCancel(context.Background())
	b.stop = stop
	t.Cleanup(stop)
	c := api.Config{
		Ports: b.ops.Ports(), Auth: svc, Version: "test", Stopping: stopping,
		Log: slog.New(slog.NewJSONHandler(io.MultiWriter(b.log, t.Output()), nil)),
	}
	c.Users = identity.New(identity.Config{Store: b.users, Passwords: svc, Now: time.Now})
	for _, f := range adjust {
		f(&c)
	}
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = api.NewServer(api.New(c), nil, c.Log)
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	t.Cleanup(stop)
	b.url, b.http = srv.URL+wire.Prefix, srv.Client()
	var s wire.Session
	b.do(t, http.MethodPost, "/login", `{"user":"admin","password":"`+password+`"}`, http.StatusOK, &s)
	b.token = s.Token
	return b
}

// send sends a request; a body that begins with { is JSON, any other is YAML.
func (b *bundle) send(t *testing.T, method, path, body string, header ...string) *http.Response {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, b.url+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	if strings.HasPrefix(body, "{") {
		req.Header.Set("Content-Type", "application/json")
	} else if body != "" {
		req.Header.Set("Content-Type", "application/yaml")
	}
	if b.token != "" {
		req.Header.Set("Authorization", "Bearer "+b.token)
	}
	for i := 0; i+1 < len(header); i += 2 {
		req.Header.Set(header[i], header[i+1])
	}
	resp, err := b.http.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = resp.Body.Close() })
	return resp
}

func (b *bundle) do(t *testing.T, method, path, body string, status int, out any) {
	t.Helper()
	resp := b.send(t, method, path, body)
	raw, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	if resp.StatusCode != status {
		t.Fatalf("%s %s: %s: %s", method, path, resp.Status, raw)
	}
	if out != nil {
		if err := json.Unmarshal(raw, out); err != nil {
			t.Fatalf("%s %s: %v: %s", method, path, err, raw)
		}
	}
}

func problemOf(t *testing.T, resp *http.Response) wire.Problem {
	t.Helper()
	if ct := resp.Header.Get("Content-Type"); ct != "application/problem+json" {
		t.Errorf("the content type of an error is %q", ct)
	}
	var p wire.Problem
	if err := json.NewDecoder(resp.Body).Decode(&p); err != nil {
		t.Fatal(err)
	}
	if p.Status != resp.StatusCode {
		t.Errorf("the body says %d, the status %d", p.Status, resp.StatusCode)
	}
	if p.RequestID == "" || p.RequestID != resp.Header.Get(api.RequestIDHeader) {
		t.Errorf("request id %q, header %q", p.RequestID, resp.Header.Get(api.RequestIDHeader))
	}
	if p.Type != wire.ProblemTypePrefix+p.Kind || p.Title == "" || p.Detail == "" {
		t.Errorf("incomplete problem %+v", p)
	}
	return p
}

const cluster = `apiVersion: kaas/v1
kind: Cluster
metadata: {name: demo}
spec: {release: r, provider: p, image: i, network: n, workers: [{name: w, count: 1}]}
`

func (b *bundle) apply(t *testing.T, runs string) {
	t.Helper()
	text := cluster
	if runs != "" {
		text = strings.Replace(cluster, "{name: demo}", "{name: demo, labels: {runs: "+runs+"}}", 1)
	}
	b.do(t, http.MethodPost, "/apply", text, http.StatusOK, nil)
}

func (b *bundle) start(t *testing.T) wire.Plan {
	t.Helper()
	var p wire.Plan
	b.do(t, http.MethodPost, "/clusters/demo/plans", "", http.StatusCreated, &p)
	b.do(t, http.MethodPost, "/plans/"+p.ID+"/start", `{"hash":"`+p.Hash+`"}`, http.StatusAccepted, &p)
	return p
}
