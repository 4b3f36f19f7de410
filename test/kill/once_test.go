package kill

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
	"github.com/director-kaas/kaas/test/rig"
)

// thief stands between directorctl and a director, and keeps the answer of the first POST to each path that has to do
// with plans: the director has done what was asked, and the connection breaks before anybody hears of it. All else
// passes, logins too.
type thief struct {
	mu   sync.Mutex
	keys map[string][]string // Idempotency-Keys by path, in the order of the requests
	cut  []string
}

var errCut = errors.New("the answer was cut")

func (th *thief) wants(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.Contains(r.URL.Path, "/plans")
}

func (th *thief) answer(resp *http.Response) error {
	r := resp.Request
	if !th.wants(r) {
		return nil
	}
	th.mu.Lock()
	defer th.mu.Unlock()
	path := r.URL.Path
	th.keys[path] = append(th.keys[path], r.Header.Get("Idempotency-Key"))
	if slices.Contains(th.cut, path) || resp.StatusCode >= 300 {
		return nil
	}
	th.cut = append(th.cut, path)
	return errCut
}

// serve returns a server that leads to the director.
func (th *thief) serve(t *testing.T, r *rig.Rig) *httptest.Server {
	t.Helper()
	ca, err := os.ReadFile(r.Seen("tls/ca.crt"))
	must(t, err)
	pool := x509.NewCertPool()
	if !pool.AppendCertsFromPEM(ca) {
		t.Fatal("the director's authority cannot be read")
	}
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		DisableKeepAlives: true, // a connection whose answer was cut carries no second request
	}
	t.Cleanup(transport.CloseIdleConnections)
	proxy := httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "https", Host: r.Listen})
	proxy.Transport, proxy.FlushInterval, proxy.ModifyResponse = transport, -1, th.answer
	// the connection breaks
	proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
	srv := httptest.NewTLSServer(proxy)
	t.Cleanup(srv.Close)
	t.Cleanup(srv.CloseClientConnections)
	return srv
}

// directorctl sends what must happen once again when its answer was lost, and it has happened once: one plan is made,
// and started once.
func TestLostAnswersAreGivenAgain(t *testing.T) {
	t.Parallel()
	r, api := setup(t, nil)
	th := &thief{keys: map[string][]string{}}
	srv := th.serve(t, r)
	home := t.TempDir()
	ca := filepath.Join(home, "ca.crt")
	must(t, os.WriteFile(ca, pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: srv.Certificate().Raw}), 0o600))
	directorctl := func(args ...string) string {
		t.Helper()
		cmd := exec.CommandContext(t.Context(), filepath.Join(binaries(t), "directorctl"), args...)
		cmd.Env = append(os.Environ(), "DIRECTOR_SERVER="+srv.URL, "DIRECTOR_CONFIG=", "XDG_CONFIG_HOME="+home)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("directorctl %s: %v\n%s", strings.Join(args, " "), err, out)
		}
		return string(out)
	}
	directorctl("login", "--password-file", r.PasswordFile(), "--ca-file", ca)
	_, err := api.Apply(t.Context(), []byte(rig.Cluster("one", clusters["one"], workers)), "documents", false)
	must(t, err)
	directorctl("plan", "one", "--start", "--yes")

	plans, err := api.Plans(t.Context(), client.PlanFilter{Cluster: "one"})
	must(t, err)
	if len(plans) != 1 {
		t.Fatalf("%d plans were made: %+v", len(plans), plans)
	}
	th.mu.Lock()
	defer th.mu.Unlock()
	if len(th.cut) != 2 || !strings.HasSuffix(th.cut[1], "/"+plans[0].ID+"/start") {
		t.Fatalf("the answers of %v were cut, want those of a plan's making and of its start", th.cut)
	}
	for _, path := range th.cut {
		// a busy machine may lose one more answer: what counts is that every request has the first one's key
		keys := th.keys[path]
		if len(keys) < 2 || keys[0] == "" || len(slices.Compact(slices.Clone(keys))) != 1 {
			t.Errorf("POST %s came with the keys %q, want the same one each time, twice or more", path, keys)
		}
	}
	starts := 0
	_, err = api.Follow(t.Context(), plans[0].ID, 0, func(e wire.Event) error {
		if plan.EventKind(e.Kind) == plan.PlanStarted {
			starts++
		}
		if starts > 0 && e.Step != "" {
			return errCut // it runs: that is all that was to be seen
		}
		return nil
	}, nil, nil)
	if !errors.Is(err, errCut) || starts != 1 {
		t.Errorf("the plan was started %d times: %v", starts, err)
	}
	_, err = api.CancelPlan(t.Context(), plans[0].ID, true)
	must(t, err)
}
