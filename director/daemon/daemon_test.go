package daemon

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/wire"
)

func testConfig(t testing.TB) Config {
	t.Helper()
	c := DefaultConfig()
	c.StateDir, c.Listen, c.RegistryListen = filepath.Join(t.TempDir(), "state"), "127.0.0.1:0", "127.0.0.2:0"
	c.Address = netip.MustParseAddr("127.0.0.1")
	c.ImageDirs, c.BundleDirs = confine.Dirs{os.TempDir()}, confine.Dirs{os.TempDir()}
	return c
}

func start(t *testing.T, c Config, out io.Writer) (*Daemon, error) {
	t.Helper()
	d, err := Start(t.Context(), c, Build{Version: "test"}, slog.New(slog.NewTextHandler(t.Output(), nil)), out)
	if err == nil {
		t.Cleanup(func() {
			// the test's own has ended
			ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
			defer cancel()
			if err := d.Stop(ctx); err != nil {
				t.Error(err)
			}
		})
	}
	return d, err
}

func TestFirstStart(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	var out bytes.Buffer
	d, err := start(t, c, &out)
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(c.StateDir, "admin-password")
	text, err := os.ReadFile(file)
	first := strings.TrimSpace(string(text))
	if err != nil || first == "" || !strings.Contains(out.String(), file) || strings.Contains(out.String(), first) {
		t.Fatalf("%v: %q", err, out.String())
	}
	if info, err := os.Stat(file); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if code, body := post(t, c, d, "/api/v1/login", `{"user":"admin","password":"`+first+`"}`); code != http.StatusOK {
		t.Errorf("the first password is refused: %d %s", code, body)
	}
	if code, body := post(
		t, c, d, "/api/v1/apply", `{}`,
	); code != http.StatusUnauthorized || !strings.Contains(body, `"kind":"unauthenticated"`) {
		t.Errorf("without a token: %d %s", code, body)
	}
	if code, body := get(
		t, c, d, "/readyz",
	); code != http.StatusOK || !strings.Contains(body, `"name":"registry","ok":true`) {
		t.Errorf("not ready: %d %s", code, body)
	}
	if code, body := get(
		t, c, d, "/docs/",
	); code != http.StatusOK && !strings.Contains(body, "built without its manual") {
		t.Errorf("the manual is not there without a token: %d %s", code, body)
	}
	if _, err := start(t, c, io.Discard); director.KindOf(err) != director.KindConflict {
		t.Errorf("a second director on the same state: %v, want conflict", err)
	}
	if err := d.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	out.Reset()
	if _, err := start(t, c, &out); err != nil || out.Len() > 0 {
		t.Errorf("the second start says %q, %v; the password is shown once", out.String(), err)
	}
	if info, err := os.Stat(c.StateDir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("the state directory is open to others: %v %v", info, err)
	}
}

func post(t *testing.T, c Config, d *Daemon, path, body string) (int, string) {
	t.Helper()
	return send(t, c, d, http.MethodPost, path, body)
}

func get(t *testing.T, c Config, d *Daemon, path string) (int, string) {
	t.Helper()
	return send(t, c, d, http.MethodGet, path, "")
}

func send(t *testing.T, c Config, d *Daemon, method, path, body string) (int, string) {
	t.Helper()
	ca, err := os.ReadFile(filepath.Join(c.StateDir, "tls", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(ca)
	transport := &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, MinVersion: tls.VersionTLS12}}
	defer transport.CloseIdleConnections()
	req, err := http.NewRequestWithContext(
		t.Context(), method, "https://"+d.Addr().String()+path, strings.NewReader(body),
	)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := (&http.Client{Transport: transport, Timeout: 30 * time.Second}).Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// Every kind of step that planners write has a handler.
func TestEveryStepKindHasAHandler(t *testing.T) {
	t.Parallel()
	handlers := steps.Handlers(steps.Env{})
	for _, kind := range step.Kinds() {
		if handlers[kind] == nil {
			t.Errorf("no handler for %s", kind)
		}
	}
	if len(handlers) != len(step.Kinds()) {
		t.Errorf("%d handlers for %d kinds", len(handlers), len(step.Kinds()))
	}
}

func TestBadConfig(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		text string
		want []string
	}{
		"unknown key": {"addresses: 10.0.0.1", []string{"addresses"}},
		"all at once": {
			"stateDir: var\naddress: 0.0.0.0\nforks: 0\nlogFormat: xml\nlisten: \":1\"\nregistryListen: \":1\"",
			[]string{"stateDir", "address", "forks", "logFormat", "registryListen"},
		},
		"no address": {"stateDir: /x", []string{"address"}},
		"not yaml":   {"a: [", []string{"did not find"}},
		"a notice that is too long": {
			"address: 192.0.2.1\nnotice: " + strings.Repeat("x", 2001), []string{"notice: has 2001 bytes"},
		},
		"a notice with an escape": {
			"address: 192.0.2.1\nnotice: \"\\e[31m\"", []string{"notice: has the control character U+001B"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "director.yaml")
			if err := os.WriteFile(path, []byte(tt.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := LoadConfig(path)
			if director.KindOf(err) != director.KindInvalid {
				t.Fatalf("err = %v, want invalid", err)
			}
			for _, w := range tt.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("the error does not name %s: %v", w, err)
				}
			}
		})
	}
}

// A mistake in the file of causes stops the start, with line and field.
func TestBadCausesFile(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	c.CausesFile = filepath.Join(t.TempDir(), "causes.yml")
	if err := c.Validate(); err == nil ||
		!strings.Contains(err.Error(), "causesFile: ansible.causes: the causes cannot be read") {
		t.Errorf("no file: %v", err)
	}
	text := "causes:\n- {id: a, match: x, class: person, explain: y}\n"
	if err := os.WriteFile(
		c.CausesFile, []byte(text+"- {id: b, match: '(', class: maybe, explain: y}\n"), 0o600,
	); err != nil {
		t.Fatal(err)
	}
	_, err := start(t, c, io.Discard)
	for _, want := range []string{
		"causes.yml:3: causes[1].match: is not a regular", "causes.yml:3: causes[1].class: is \"maybe\"",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if err := os.WriteFile(c.CausesFile, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := c.Validate(); err != nil {
		t.Error(err)
	}
}

// A new director has schedules that keep it small and saved; what is deleted is not made again at the next start. A
// backup restores it.
func TestDefaultSchedulesAndRestore(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	c.AdminPasswordFile = filepath.Join(t.TempDir(), "password")
	if err := os.WriteFile(c.AdminPasswordFile, []byte("correct horse battery"), 0o600); err != nil {
		t.Fatal(err)
	}
	d, err := start(t, c, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	api := login(t, c, d)
	list, err := api.Schedules(t.Context())
	if err != nil || len(list) != 3 || list[0].Name != "backup" || list[1].Name != "certificates" ||
		list[2].Name != "prune" || list[0].Next == nil {
		t.Fatalf("got %+v, %v", list, err)
	}
	text := "apiVersion: kaas/v1\nkind: Schedule\nmetadata: {name: bad}\nspec: {cron: often, job: {name: backup, " +
		"params: {keep: 0}}}\n"
	_, err = api.Apply(t.Context(), []byte(text), "bad.yaml", false)
	for _, want := range []string{
		"Schedule/bad: spec.cron: \"often\" is not a time", "Schedule/bad: spec.job.params.keep: 0 is not allowed",
	} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in %v", want, err)
		}
	}
	if err := api.DeleteDocument(t.Context(), model.Ref{Kind: model.KindSchedule, Name: "prune"}); err != nil {
		t.Fatal(err)
	}
	if s, err := api.SuspendSchedule(t.Context(), "backup", true); err != nil || !s.Suspended || s.Next != nil {
		t.Errorf("suspended: %+v, %v", s, err)
	}
	if r, err := api.RunSchedule(t.Context(), "backup"); err != nil || r.Status != "running" || r.By != "admin" {
		t.Fatalf("run: %+v, %v", r, err)
	}
	var run wire.ScheduleRun
	for deadline := time.After(time.Minute); run.FinishedAt == nil; {
		select {
		case <-deadline:
			t.Fatal("the backup does not end")
		default:
		}
		s, err := api.Schedule(t.Context(), "backup")
		if err != nil {
			t.Fatal(err)
		}
		run = s.Runs[0]
	}
	copies, err := filepath.Glob(filepath.Join(c.StateDir, "backups", "director-*.db"))
	if err != nil || len(copies) != 1 || run.Status != "done" {
		t.Fatalf("run %+v, copies %v, %v", run, copies, err)
	}
	if err := d.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}

	// A machine of its own: the backup, and the sealing key from where it was kept apart.
	fresh := testConfig(t)
	if err := os.MkdirAll(fresh.StateDir, 0o700); err != nil {
		t.Fatal(err)
	}
	key, err := os.ReadFile(filepath.Join(c.StateDir, "sealing.key"))
	if err != nil {
		t.Fatal(err)
	}
	saved, err := os.ReadFile(copies[0])
	if err != nil || bytes.Contains(saved, bytes.TrimSpace(key)) {
		t.Fatalf("the backup holds the sealing key (%v)", err)
	}
	if err := errors.Join(os.WriteFile(filepath.Join(fresh.StateDir, "director.db"), saved, 0o600),
		os.WriteFile(filepath.Join(fresh.StateDir, "sealing.key"), key, 0o600)); err != nil {
		t.Fatal(err)
	}
	restored, err := start(t, fresh, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	list, err = login(t, fresh, restored).Schedules(t.Context())
	if err != nil || len(list) != 2 || list[0].Name != "backup" || !list[0].Suspended ||
		list[1].Name != "certificates" {
		t.Errorf("after the restore: %+v, %v", list, err)
	}
}

func login(t *testing.T, c Config, d *Daemon) *client.Client {
	t.Helper()
	return loginAs(t, c, d, "admin", "correct horse battery")
}

// loginAs returns a client of the user, who trusts the director's own authority.
func loginAs(t *testing.T, c Config, d *Daemon, user string, password director.Secret) *client.Client {
	t.Helper()
	ca, err := os.ReadFile(filepath.Join(c.StateDir, "tls", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	conf := client.Config{Server: "https://" + d.Addr().String(), CA: ca}
	anonymous, err := client.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	defer anonymous.Close()
	s, err := anonymous.Login(t.Context(), user, password)
	if err != nil {
		t.Fatal(err)
	}
	conf.Token = director.Secret(s.Token)
	out, err := client.New(conf)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(out.Close)
	return out
}
