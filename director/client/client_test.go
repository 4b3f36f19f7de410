package client_test

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/api/apitest"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
	"github.com/director-kaas/kaas/test/loopback"
)

const password = "correct horse battery"

const cluster = `apiVersion: kaas/v1
kind: Cluster
metadata: {name: demo, labels: {runs: RUNS}}
spec: {release: r, provider: p, image: i, network: n, workers: [{name: w, count: 1}]}
`

// start serves the real API over TLS and returns it with the CA that its clients need.
func start(t *testing.T, ports api.Ports, wrap func(http.Handler) http.Handler) (*httptest.Server, []byte) {
	t.Helper()
	svc, err := auth.New(apitest.OpenStore(t), auth.Config{Hash: auth.Params{MemoryKiB: 64, Passes: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := svc.EnsureAdmin(t.Context(), password); err != nil {
		t.Fatal(err)
	}
	log := slog.New(slog.NewTextHandler(t.Output(), nil))
	handler := api.New(api.Config{Ports: ports, Auth: svc, Log: log, Version: "test", Stopping: t.Context()})
	if wrap != nil {
		handler = wrap(handler)
	}
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = api.NewServer(handler, nil, slog.New(slog.DiscardHandler))
	srv.EnableHTTP2 = true
	srv.StartTLS()
	t.Cleanup(srv.Close)
	t.Cleanup(srv.CloseClientConnections)
	return srv, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw})
}

func login(t *testing.T, c client.Config) *client.Client {
	t.Helper()
	first, err := client.New(c)
	if err != nil {
		t.Fatal(err)
	}
	defer first.Close()
	s, err := first.Login(t.Context(), "admin", password)
	if err != nil {
		t.Fatal(err)
	}
	c.Token = director.Secret(s.Token)
	api, err := client.New(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(api.Close)
	return api
}

func TestTrust(t *testing.T) {
	t.Parallel()
	srv, ca := start(t, apitest.New().Ports(), nil)
	other := httptest.NewTLSServer(http.NotFoundHandler())
	defer other.Close()
	certs, err := client.Probe(t.Context(), srv.URL)
	if err != nil {
		t.Fatal(err)
	}
	pin := client.Fingerprint(certs[0])
	if client.Trusted(srv.URL, certs) {
		t.Error("the system trusts a test certificate")
	}
	wrong := "SHA256:" + strings.Repeat("0a", 32)
	for name, c := range map[string]struct {
		config client.Config
		msg    string // of the error; "" for none
	}{
		"by CA":             {client.Config{CA: ca}, ""},
		"by fingerprint":    {client.Config{Fingerprint: pin}, ""},
		"in another form":   {client.Config{Fingerprint: colons(pin)}, ""},
		"unknown":           {client.Config{}, "unknown authority"},
		"wrong fingerprint": {client.Config{Fingerprint: wrong}, "not the trusted one; it has the fingerprint " + pin},
	} {
		c.config.Server = srv.URL
		api, err := client.New(c.config)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		_, err = api.Version(t.Context())
		api.Close()
		switch {
		case c.msg == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.msg != "" &&
			(director.KindOf(err) != director.KindUnavailable || !strings.Contains(err.Error(), c.msg) ||
				director.HintOf(err) == ""):
			t.Errorf("%s: %v, hint %q; want %q", name, err, director.HintOf(err), c.msg)
		}
	}
	for _, bad := range []string{"x", "SHA256:12", "MD5:" + strings.Repeat("0a", 16)} {
		if _, err := client.New(client.Config{
			Server: srv.URL, Fingerprint: bad,
		}); director.KindOf(err) != director.KindInvalid {
			t.Errorf("fingerprint %q: %v", bad, err)
		}
	}
	for _, bad := range []string{"", "http://h:1", "h:1", "https://", "https://h:1/path", "https://u@h:1"} {
		if _, err := client.New(client.Config{Server: bad}); director.KindOf(err) != director.KindInvalid {
			t.Errorf("server %q: %v", bad, err)
		}
	}
}

func colons(pin string) string {
	digits := strings.ToUpper(strings.TrimPrefix(pin, "SHA256:"))
	var parts []string
	for i := 0; i < len(digits); i += 2 {
		parts = append(parts, digits[i:i+2])
	}
	return strings.Join(parts, ":")
}

// TestNothingIsSentToAnUntrustedServer looks at what reaches a server whose certificate is not the pinned one.
func TestNothingIsSentToAnUntrustedServer(t *testing.T) {
	t.Parallel()
	var asked atomic.Int32
	srv := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked.Add(1) }))
	srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
	srv.StartTLS()
	defer srv.Close()
	for _, c := range []client.Config{{}, {Fingerprint: "SHA256:" + strings.Repeat("0a", 32)}} {
		c.Server, c.Token = srv.URL, "canary"
		api, err := client.New(c)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := api.Login(t.Context(), "admin", "canary"); err == nil {
			t.Error("a login at an untrusted server")
		}
		api.Close()
	}
	if n := asked.Load(); n > 0 {
		t.Errorf("%d requests reached the server", n)
	}
}

func TestErrorsComeBackWhole(t *testing.T) {
	t.Parallel()
	srv, ca := start(t, apitest.New().Ports(), nil)
	api := login(t, client.Config{Server: srv.URL, CA: ca})
	_, err := api.Apply(t.Context(), []byte(strings.Replace(cluster, "image:", "imag:", 1)), "c.yaml", false)
	e, ok := errors.AsType[*director.Error](err)
	if !ok {
		t.Fatalf("%T %v", err, err)
	}
	want := []director.Field{
		{
			Path: "c.yaml:4: spec.imag", Document: "Cluster/demo", Msg: "is not a field here",
			Hint: "did you mean image?",
		},
		{Path: "c.yaml:4: spec.image", Document: "Cluster/demo", Msg: "is missing"},
	}
	if diff := cmp.Diff(want, e.Fields); diff != "" || e.Kind != director.KindInvalid {
		t.Errorf("%s: %s", e.Kind, diff)
	}
	if _, err := api.Document(t.Context(), model.Ref{
		Kind: model.KindImage, Name: "none",
	}); director.KindOf(err) != director.KindNotFound {
		t.Errorf("%v", err)
	}
	if err := api.Logout(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := api.Me(t.Context()); director.KindOf(err) != director.KindUnauthenticated ||
		director.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
}

func TestWhatIsNoDirector(t *testing.T) {
	t.Parallel()
	srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "<html>", http.StatusBadGateway)
	}))
	defer srv.Close()
	pin := client.Fingerprint(srv.Certificate())
	api, err := client.New(client.Config{Server: srv.URL, Fingerprint: pin})
	if err != nil {
		t.Fatal(err)
	}
	defer api.Close()
	if _, err := api.Version(t.Context()); director.KindOf(err) != director.KindUnavailable {
		t.Errorf("%v", err)
	}
	closed := "https://" + loopback.FreeFor(t).String()
	for _, server := range []string{closed} {
		api, err := client.New(client.Config{Server: server, Fingerprint: pin})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := api.Version(t.Context()); director.KindOf(err) != director.KindUnavailable ||
			!strings.Contains(err.Error(), "does not answer") {
			t.Errorf("%v", err)
		}
		if _, err := client.Probe(t.Context(), server); director.KindOf(err) != director.KindUnavailable {
			t.Errorf("%v", err)
		}
	}
}

func (b *following) begin(t *testing.T, runs string) wire.Plan {
	t.Helper()
	if _, err := b.api.Apply(t.Context(), []byte(strings.Replace(cluster, "RUNS", runs, 1)), "", false); err != nil {
		t.Fatal(err)
	}
	p, err := b.api.MakePlan(t.Context(), "demo", plan.Request{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = b.api.StartPlan(t.Context(), p.ID, p.Hash); err != nil {
		t.Fatal(err)
	}
	return p // with its steps, which the answer to the start does not have
}

type following struct {
	ops *apitest.Operations
	api *client.Client
}

// TestLostAnswerIsAskedForAgain loses the answer to a first try, and has others in its place until the director knows
// what became of it. Without a lost answer a conflict is one at once.
func TestLostAnswerIsAskedForAgain(t *testing.T) {
	t.Parallel()
	busy := wire.Problem{
		Kind: string(director.KindConflict), Detail: "the first request with this key is still at work",
	}
	for name, tt := range map[string]struct {
		answers []int // 0 breaks the connection off, and 1 does in the middle of the answer
		want    director.Kind
	}{
		"in the end it was done": {
			[]int{0, 0, http.StatusServiceUnavailable, http.StatusConflict, http.StatusCreated}, "",
		},
		"half of the answer came": {[]int{1, http.StatusCreated}, ""},
		"it failed":               {[]int{0, http.StatusConflict, http.StatusForbidden}, director.KindForbidden},
		"none was lost":           {[]int{http.StatusConflict}, director.KindConflict},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var keys []string
			srv := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				keys = append(keys, r.Header.Get("Idempotency-Key"))
				status := tt.answers[len(keys)-1]
				var body any = wire.Plan{PlanSummary: wire.PlanSummary{ID: "p1"}}
				switch status {
				case 0:
					conn, _, err := w.(http.Hijacker).Hijack()
					if err != nil || conn.Close() != nil {
						t.Error(err)
					}
					return
				case 1:
					w.Header().Set("Content-Length", "1000")
					w.WriteHeader(http.StatusCreated)
					if _, err := io.WriteString(w, `{"id": "p`); err != nil {
						t.Error(err)
					}
					w.(http.Flusher).Flush()
					panic(http.ErrAbortHandler)
				case http.StatusConflict:
					w.Header().Set("Retry-After", "1")
					body = busy
				case http.StatusServiceUnavailable:
					body = wire.Problem{Kind: string(director.KindUnavailable)}
				case http.StatusForbidden:
					body = wire.Problem{Kind: string(director.KindForbidden)}
				}
				if status >= http.StatusBadRequest {
					w.Header().Set("Content-Type", "application/problem+json")
				}
				w.WriteHeader(status)
				if err := json.NewEncoder(w).Encode(body); err != nil {
					t.Error(err)
				}
			}))
			defer srv.Close()
			c, err := client.New(client.Config{Server: srv.URL, Fingerprint: client.Fingerprint(srv.Certificate())})
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			client.SetBackoff(c, time.Millisecond)
			p, err := c.MakePlan(t.Context(), "demo", plan.Request{})
			if tt.want == "" && (err != nil || p.ID != "p1") || tt.want != "" && director.KindOf(err) != tt.want {
				t.Errorf("%+v, %v", p, err)
			}
			if distinct := slices.Compact(
				slices.Clone(keys),
			); len(keys) != len(tt.answers) || len(distinct) != 1 || distinct[0] == "" {
				t.Errorf("it was sent %d times with the keys %q", len(keys), distinct)
			}
		})
	}
}

// TestFollowTakesUpBrokenStreams cuts the stream after each event, and wants every event once and in order.
func TestFollowTakesUpBrokenStreams(t *testing.T) {
	t.Parallel()
	var cuts atomic.Int32
	ops := apitest.New()
	srv, ca := start(t, ops.Ports(), func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if strings.HasSuffix(r.URL.Path, "/events") {
				cuts.Add(1)
				w = &cutter{ResponseWriter: w, left: 2}
			}
			next.ServeHTTP(w, r)
		})
	})
	b := &following{ops, login(t, client.Config{Server: srv.URL, CA: ca})}
	client.SetBackoff(b.api, time.Millisecond)
	p := b.begin(t, "hold")
	go ops.Release()
	var seqs []int64
	status, err := b.api.Follow(t.Context(), p.ID, 0, func(e wire.Event) error {
		seqs = append(seqs, e.Seq)
		if err := p.Apply(e); err != nil {
			t.Error(err)
		}
		return nil
	}, nil, nil)
	if err != nil || status != "done" {
		t.Fatalf("status %q, %v", status, err)
	}
	for i, s := range seqs {
		if s != int64(i+1) {
			t.Fatalf("events %v", seqs)
		}
	}
	if p.Status != "done" || p.StepsDone != p.StepsTotal {
		t.Errorf("the fold of the events is %s, %d of %d steps", p.Status, p.StepsDone, p.StepsTotal)
	}
	if cuts.Load() < 3 {
		t.Errorf("only %d streams were opened", cuts.Load())
	}
}

// cutter breaks the connection after some messages.
type cutter struct {
	http.ResponseWriter
	left int
}

func (c *cutter) Unwrap() http.ResponseWriter { return c.ResponseWriter }

func (c *cutter) Flush() { c.ResponseWriter.(http.Flusher).Flush() }

func (c *cutter) Write(p []byte) (int, error) {
	if strings.HasPrefix(string(p), "id: ") {
		if c.left == 0 {
			c.Flush() // what was written before the break arrives
			panic(http.ErrAbortHandler)
		}
		c.left--
	}
	return c.ResponseWriter.Write(p)
}

func TestFollowEnds(t *testing.T) {
	t.Parallel()
	ops := apitest.New()
	srv, ca := start(t, ops.Ports(), nil)
	b := &following{ops, login(t, client.Config{Server: srv.URL, CA: ca})}
	client.SetBackoff(b.api, time.Millisecond)
	p := b.begin(t, "hold")

	ctx, cancel := context.WithCancel(t.Context())
	_, err := b.api.Follow(ctx, p.ID, 0, func(e wire.Event) error {
		if e.Seq == 3 {
			cancel()
		}
		return nil
	}, nil, nil)
	if !errors.Is(err, context.Canceled) {
		t.Errorf("after a cancel: %v", err)
	}
	mine := errors.New("mine")
	if _, err := b.api.Follow(
		t.Context(), p.ID, 0, func(wire.Event) error { return mine }, nil, nil,
	); !errors.Is(err, mine) {
		t.Errorf("after an error of the caller: %v", err)
	}
	if _, err := b.api.Follow(t.Context(), "none", 0, nil, nil, nil); director.KindOf(err) != director.KindNotFound {
		t.Errorf("of no plan: %v", err)
	}
	srv.CloseClientConnections()
	srv.Close()
	var mu sync.Mutex
	var lost []error
	_, err = b.api.Follow(t.Context(), p.ID, 0, nil, nil, func(err error) {
		mu.Lock()
		defer mu.Unlock()
		lost = append(lost, err)
	})
	if director.KindOf(err) != director.KindUnavailable || len(lost) != 1 {
		t.Errorf("of a director that is gone: %v, told %v", err, lost)
	}
}

func TestStepLogFromAnOffset(t *testing.T) {
	t.Parallel()
	ops := apitest.New()
	srv, ca := start(t, ops.Ports(), nil)
	b := &following{ops, login(t, client.Config{Server: srv.URL, CA: ca})}
	p := b.begin(t, "none")
	for offset, want := range map[int64]string{0: `{"time"`, 2: `time"`} {
		r, err := b.api.StepLog(t.Context(), p.ID, "vm.ensure/demo-master-1", 0, offset)
		if err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(r)
		_ = r.Close()
		if err != nil || !strings.HasPrefix(string(text), want) {
			t.Errorf("from %d: %q, %v", offset, text, err)
		}
	}
}

// TestPinnedAuthority pins the authority instead of the certificate: a renewed certificate of it is good, one for
// another name is not.
func TestPinnedAuthority(t *testing.T) {
	t.Parallel()
	authority := newAuthority(t)
	for name, good := range map[string]bool{"127.0.0.1": true, "other.example": false} {
		srv := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			_, _ = io.WriteString(w, `{"version":"x"}`)
		}))
		srv.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelInfo)
		srv.TLS = &tls.Config{Certificates: []tls.Certificate{authority.issue(t, name)}}
		srv.StartTLS()
		api, err := client.New(client.Config{Server: srv.URL, Fingerprint: client.Fingerprint(authority.cert)})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := api.Version(t.Context()); (err == nil) != good {
			t.Errorf("a certificate for %s: %v", name, err)
		}
		api.Close()
		srv.Close()
	}
}
