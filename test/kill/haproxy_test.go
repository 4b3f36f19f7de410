package kill

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/test/rig"
)

// startHAProxy starts HAProxy with the configuration of docs/operate/high-availability.md in front of the fleet.
func startHAProxy(t *testing.T, f *fleet) {
	t.Helper()
	program, err := exec.LookPath("haproxy")
	if err != nil {
		program = "/usr/sbin/haproxy"
	}
	if _, err := os.Stat(program); err != nil {
		if os.Getenv("KAAS_REQUIRE_REAL") == "1" {
			t.Fatal("HAProxy is not installed; run: test/lab/need.sh haproxy")
		}
		t.Skip("HAProxy is not installed; run: test/lab/need.sh haproxy")
	}
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "operate", "high-availability.md"))
	must(t, err)
	block := regexp.MustCompile("(?s)\n```text\n(defaults\n.*?)\n```\n").FindSubmatch(page)
	if block == nil {
		t.Fatal("the page has no configuration of HAProxy")
	}
	_, api, _ := strings.Cut(f.API, ":")
	_, registry, _ := strings.Cut(f.Registry, ":")
	config := strings.NewReplacer(
		"192.0.2.10:", "127.0.0.1:", "192.0.2.11:", "127.0.0.2:", "192.0.2.12:", "127.0.0.3:",
	).Replace(string(block[1]))
	config = strings.NewReplacer(":8443", ":"+api, ":5000", ":"+registry).Replace(config)
	file := filepath.Join(t.TempDir(), "haproxy.cfg")
	must(t, os.WriteFile(file, []byte(config+"\n"), 0o600))
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), program, "-db", "-f", file)
	var said bytes.Buffer
	cmd.Stdout, cmd.Stderr = &said, &said
	must(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		_ = cmd.Wait()
		if t.Failed() || strings.Contains(said.String(), "missing") {
			t.Logf("HAProxy said:\n%s", said.String())
		}
	})
}

// directorctl runs the command line as a person at a terminal does, and returns what it says. Its configuration is in
// the directory.
func directorctl(t *testing.T, dir string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(
		ctx, filepath.Join(binaries(t), "directorctl"),
		append([]string{"--config", filepath.Join(dir, "directorctl.yaml")}, args...)...,
	)
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// A person works through the balancer alone. Their command line follows a plan to its end although the director that it
// speaks to is killed, and once more although the other stands still.
func TestBehindHAProxy(t *testing.T) {
	t.Parallel()
	f := newFleet(t)
	startHAProxy(t, f)
	first := f.Directors[0]
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	api, err := first.ClientAt(ctx, f.API)
	must(t, err)
	t.Cleanup(api.Close)
	await(t, "the balancer finds a director that is ready", func() bool { return api.Ready(ctx) == nil })
	if out, err := directorctl(
		t, f.Dir, "login", "--server", "https://"+f.API, "--ca-file", first.Seen("tls/ca.crt"), "--password-file",
		first.PasswordFile(),
	); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	for _, tt := range []struct {
		name         string
		strike, mend func(*rig.Rig) error
	}{
		{"killed", (*rig.Rig).Kill, (*rig.Rig).Start},
		{
			"stopped", func(r *rig.Rig) error { return r.Signal(syscall.SIGSTOP) },
			func(r *rig.Rig) error { return r.Signal(syscall.SIGCONT) },
		},
	} {
		name := tt.name
		t.Run(name, func(t *testing.T) {
			hit, victim, said := f.applyAndStrike(t, name, tt.strike)
			if status := hit.end(t); status != string(plan.StatusDone) {
				t.Errorf("the plan is %s", status)
			}
			f.checkTakeover(t, hit, 1-victim)
			if out := <-said; !strings.Contains(out, "done") || strings.Contains(out, "exit status") {
				t.Errorf("the command line says: %s", out)
			}
			must(t, tt.mend(f.Directors[victim]))
			await(t, "it is back", func() bool { return f.api[victim].Ready(t.Context()) == nil })
		})
	}
}

// applyAndStrike makes clusters with the command line until the director that it follows the plan on could be struck.
// It returns which that was, and what the command line will say.
func (f *fleet) applyAndStrike(
	t *testing.T, name string, strike func(*rig.Rig) error,
) (s struck, victim int, said <-chan string) {
	t.Helper()
	s = untilStruck(t, name, func(cluster string) (struck, bool) {
		file := filepath.Join(t.TempDir(), "cluster.yaml")
		must(t, os.WriteFile(file, []byte(rig.Cluster(cluster, "shared", workers)), 0o600))
		output := make(chan string, 1)
		go func() {
			out, err := directorctl(t, f.Dir, "apply", "-f", file, "--start", "--wait", "--yes")
			if err != nil {
				out += "\n" + err.Error()
			}
			output <- out
		}()
		var id string
		await(t, "the plan runs", func() bool {
			c, err := f.api[1].Cluster(t.Context(), cluster)
			if err == nil {
				id = c.Plan
			}
			return id != ""
		})
		victim, said = f.streaming(t), output
		return f.strike(t, id, 1-victim, victim, func() error { return strike(f.Directors[victim]) })
	})
	return s, victim, said
}

// streaming returns which director holds the command line's stream of events.
func (f *fleet) streaming(t *testing.T) int {
	t.Helper()
	ca, err := os.ReadFile(f.Directors[0].Seen("tls/ca.crt"))
	must(t, err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	c := &http.Client{
		Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}},
	}
	defer c.CloseIdleConnections()
	found := -1
	await(t, "a director has the stream", func() bool {
		for i, r := range f.Directors {
			token, err := os.ReadFile(r.Seen("metrics.token"))
			must(t, err)
			req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+r.Listen+"/metrics", nil)
			must(t, err)
			req.Header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
			resp, err := c.Do(req)
			if err != nil {
				continue
			}
			text, err := io.ReadAll(resp.Body)
			if err == nil && resp.Body.Close() == nil && bytes.Contains(text, []byte("\ndirector_http_streams 1\n")) {
				found = i
			}
		}
		return found >= 0
	})
	return found
}
