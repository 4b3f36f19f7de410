package main

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/pem"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/daemon"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
)

// heldCluster is a cluster whose plan waits for an answer before it checks the cluster.
const heldCluster = `apiVersion: kaas/v1
kind: Provider
metadata: {name: lab}
spec: {type: sim, sim: {hosts: [{name: h1}]}}
---
apiVersion: kaas/v1
kind: Network
metadata: {name: net}
spec: {provider: lab, cidr: 10.88.0.0/24, pool: {from: 10.88.0.10, to: 10.88.0.99}}
---
apiVersion: kaas/v1
kind: Hook
metadata: {name: hold}
spec: {url: "https://127.0.0.1:1/x", phases: [before.verify], allow: [127.0.0.1/32]}
---
apiVersion: kaas/v1
kind: Cluster
metadata: {name: demo}
spec: {release: k8s, provider: lab, image: node, network: net}
`

// startHeld starts a plan that waits for an answer, and returns its id and how to answer.
func startHeld(t *testing.T, api *client.Client) (id string, answer func()) {
	t.Helper()
	if _, err := api.Apply(t.Context(), []byte(heldCluster), "", false); err != nil {
		t.Fatal(err)
	}
	p, err := api.MakePlan(t.Context(), "demo", plan.Request{})
	if err == nil {
		_, err = api.StartPlan(t.Context(), p.ID, p.Hash)
	}
	if err != nil {
		t.Fatal(err)
	}
	asked, err := awaitHook(t.Context(), api)
	if err != nil {
		t.Fatal(err)
	}
	return p.ID, func() {
		_, err := api.AnswerHookDelivery(t.Context(), asked, wire.HookAnswer{Decision: string(director.HookContinues)})
		if err != nil {
			t.Error(err)
		}
	}
}

// inFrontOf serves what the director serves, without the requests that are to be broken off.
func inFrontOf(t *testing.T, d simulated, breaks func() bool) client.Config {
	t.Helper()
	to, err := url.Parse(d.url)
	if err != nil {
		t.Fatal(err)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = &tls.Config{InsecureSkipVerify: true} // the test's own director
	t.Cleanup(transport.CloseIdleConnections)
	pass := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) { r.SetURL(to) }, Transport: transport,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if breaks() {
			panic(http.ErrAbortHandler)
		}
		pass.ServeHTTP(w, r)
	}))
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	t.Cleanup(srv.Close)
	return client.Config{
		Server: srv.URL, CA: pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}),
	}
}

func loggedIn(t *testing.T, conf client.Config) *client.Client {
	t.Helper()
	api, err := login(t.Context(), conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	return api
}

// Following logs continues where it was when the director was away, and prints nothing twice.
func TestLogsAreFollowedOverARestart(t *testing.T) {
	t.Parallel()
	d, err := startSimulated(t.Context(), func(*daemon.Config) {})
	t.Cleanup(func() {
		if err := d.end(context.Background()); err != nil {
			t.Error(err)
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	var broken, gone atomic.Bool
	var n atomic.Int32
	var answer func()
	front := loggedIn(t, inFrontOf(t, d, func() bool {
		if broken.Load() {
			switch n.Add(1) {
			case 6:
				answer()
				return true
			case 2, 3, 7, 9:
				return true
			}
		}
		return gone.Load()
	}))
	direct := loggedIn(t, client.Config{Server: d.url, CA: d.ca})
	var id string
	id, answer = startHeld(t, direct)
	reader := func(api *client.Client, out, said *bytes.Buffer) *logReader {
		return &logReader{
			api: api, out: out, err: said, raw: true, id: id, every: time.Millisecond, places: map[string]*logPlace{},
		}
	}
	broken.Store(true)
	var followed, said bytes.Buffer
	follower := reader(front, &followed, &said)
	if err := follower.run(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	var whole bytes.Buffer
	if err := reader(direct, &whole, &said).run(t.Context(), false); err != nil {
		t.Fatal(err)
	}
	want, got := slices.Sorted(strings.Lines(whole.String())), slices.Sorted(strings.Lines(followed.String()))
	if diff := cmp.Diff(want, got); diff != "" || len(want) == 0 {
		t.Errorf("of %d lines (-want +got):\n%s", len(want), diff)
	}
	if !strings.Contains(said.String(), "the connection is lost, trying again") ||
		!strings.Contains(said.String(), "connected again") {
		t.Errorf("it says %q", said.String())
	}
	gone.Store(true)
	if err := follower.run(t.Context(), false); director.KindOf(err) != director.KindUnavailable {
		t.Errorf("who does not follow is told at once: %v", err)
	}
}
