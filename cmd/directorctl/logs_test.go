package main

import (
	"bytes"
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/api/apitest"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/plan"
)

// Following logs continues where it was when the director was away, and prints nothing twice.
func TestLogsAreFollowedOverARestart(t *testing.T) {
	t.Parallel()
	ops := apitest.New(nil)
	svc, err := auth.New(&apitest.Users{}, auth.Config{Hash: auth.Params{MemoryKiB: 64, Passes: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := svc.EnsureAdmin(t.Context(), password); err != nil {
		t.Fatal(err)
	}
	handler := api.New(api.Config{Ports: ops.Ports(), Auth: svc, Log: slog.New(slog.DiscardHandler), Version: "test"})
	var breaks, gone atomic.Bool
	var n atomic.Int32
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if breaks.Load() {
			switch n.Add(1) {
			case 6:
				ops.Release()
				panic(http.ErrAbortHandler)
			case 2, 3, 7, 9:
				panic(http.ErrAbortHandler)
			}
		}
		if gone.Load() {
			panic(http.ErrAbortHandler)
		}
		handler.ServeHTTP(w, r)
	}))
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	defer srv.Close()
	conf := client.Config{
		Server: srv.URL, CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}),
	}
	first, err := client.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	session, err := first.Login(t.Context(), "admin", password)
	if err != nil {
		t.Fatal(err)
	}
	conf.Token = director.Secret(session.Token)
	c, err := client.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	const cluster = "apiVersion: kaas/v1\nkind: Cluster\nmetadata: {name: demo, labels: {runs: hold}}\n" +
		"spec: {release: r, provider: p, image: i, network: n, workers: [{name: w, count: 1}]}\n"
	if _, err := c.Apply(t.Context(), []byte(cluster), "", false); err != nil {
		t.Fatal(err)
	}
	p, err := c.MakePlan(t.Context(), "demo", plan.Request{})
	if err == nil {
		_, err = c.StartPlan(t.Context(), p.ID, p.Hash)
	}
	if err != nil {
		t.Fatal(err)
	}
	breaks.Store(true)
	var out, said bytes.Buffer
	r := &logReader{api: c, out: &out, err: &said, id: p.ID, every: time.Millisecond, places: map[string]*logPlace{}}
	if err := r.run(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	if got := strings.Count(out.String(), "acting attempt=1"); got != len(p.Steps) {
		t.Errorf("%d lines, want one for each of %d steps:\n%s", got, len(p.Steps), out.String())
	}
	if !strings.Contains(said.String(), "the connection is lost, trying again") ||
		!strings.Contains(said.String(), "connected again") {
		t.Errorf("it says %q", said.String())
	}
	gone.Store(true)
	if err := r.run(t.Context(), false); director.KindOf(err) != director.KindUnavailable {
		t.Errorf("who does not follow is told at once: %v", err)
	}
}
