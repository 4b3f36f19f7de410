package daemon

import (
	"crypto/x509"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/logserver"
	"github.com/director-kaas/kaas/director/syslog/syslogtest"
)

// fieldsOf returns the paths of the wrong fields of auditSyslog.
func fieldsOf(t *testing.T, err error) (out []string) {
	t.Helper()
	if err == nil {
		return nil
	}
	if director.KindOf(err) != director.KindInvalid {
		t.Errorf("%v is not invalid", err)
	}
	for _, f := range director.FieldsOf(err) {
		if !strings.HasPrefix(f.Path, "auditSyslog.") || f.Msg == "" || f.Hint == "" {
			t.Errorf("%+v", f)
		}
		out = append(out, strings.TrimPrefix(f.Path, "auditSyslog."))
	}
	return out
}

func TestAuditSyslogConfig(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][]string{
		"{}": nil,
		"{address: logs.example.org, facility: 23, caFile: /ca, certFile: /c, keyFile: /k, serverName: x, " +
			"hostName: y}": nil,
		"{address: 'logs.example.org:6514'}":            nil,
		"{address: '[2001:db8::1]:6514'}":               nil,
		"{address: '2001:db8::1'}":                      nil,
		"{address: '10.0.0.9'}":                         nil,
		"{facility: 13}":                                {"address"},
		"{caFile: /ca}":                                 {"address"},
		"{address: ':6514'}":                            {"address"},
		"{address: 'logs:0'}":                           {"address"},
		"{address: 'logs:65536'}":                       {"address"},
		"{address: 'logs:syslog'}":                      {"address"},
		"{address: 'logs:1:2'}":                         {"address"},
		"{address: '[2001:db8::1]'}":                    {"address"},
		"{address: 'tcp://logs'}":                       {"address"},
		"{address: 'a b'}":                              {"address"},
		"{address: logs, facility: -1}":                 {"facility"},
		"{address: logs, facility: 24}":                 {"facility"},
		"{address: logs, certFile: /c}":                 {"keyFile"},
		"{address: logs, keyFile: /k}":                  {"keyFile"},
		"{address: logs, caFile: ca.crt}":               {"caFile"},
		"{address: logs, certFile: c, keyFile: k}":      {"certFile", "keyFile"},
		"{journal: true}":                               {"address", "journal"},
		"{address: logs, journal: true}":                {"journal"}, // this is no appliance
		"{address: 'x:y', facility: 99, certFile: ./c}": {"address", "facility", "keyFile", "certFile"},
	} {
		path := filepath.Join(t.TempDir(), "director.yaml")
		whole := "stateDir: /x\naddress: 10.0.0.1\nauditSyslog: " + text
		if err := os.WriteFile(path, []byte(whole), 0o600); err != nil {
			t.Fatal(err)
		}
		_, err := LoadConfig(path)
		if diff := cmp.Diff(want, fieldsOf(t, err)); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", text, diff)
		}
	}
}

// A director sends what happens to a log server that knows it by its certificate.
func TestAuditSyslog(t *testing.T) {
	t.Parallel()
	server, dir := syslogtest.Start(t, syslogtest.Named), t.TempDir()
	cert, key := server.CA.Issue(t, syslogtest.Peer, x509.ExtKeyUsageClientAuth)
	for name, text := range map[string][]byte{"ca.crt": server.CA.PEM, "c.crt": cert, "c.key": key} {
		if err := os.WriteFile(filepath.Join(dir, name), text, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	c := testConfig(t)
	c.AuditSyslog = logserver.Settings{
		Address: server.Address, CAFile: dir + "/ca.crt", CertFile: dir + "/c.crt", KeyFile: dir + "/c.key",
		HostName: "director1", Facility: 4,
	}
	d, err := start(t, c, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	if code, _ := post(t, c, d, "/api/v1/login", `{"user":"eve","password":"wrong"}`); code != http.StatusUnauthorized {
		t.Fatal(code)
	}
	want := regexp.MustCompile(`^<36>1 \S+ director1 director \d+ login \[.*"object":"User/eve","outcome":"refused"`)
	look := time.NewTicker(50 * time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(time.Minute); !slices.ContainsFunc(server.Lines(t), want.MatchString); <-look.C {
		if time.Now().After(end) {
			t.Fatalf("the log server has %q", server.Lines(t))
		}
	}
	shown := httptest.NewRecorder()
	d.metrics(d.services.db, Build{}).Handler().ServeHTTP(shown, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	if text := shown.Body.String(); !regexp.MustCompile(`(?m)^director_audit_unsent \d+$`).MatchString(text) {
		t.Errorf("the metrics do not say how much has not arrived:\n%s", text)
	}
}

// The files are read at the start, which a wrong one stops.
func TestAuditSyslogFiles(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	c.AuditSyslog = logserver.Settings{Address: "logs.example.org", CAFile: t.TempDir() + "/none"}
	if _, err := start(t, c, t.Output()); len(fieldsOf(t, err)) != 1 {
		t.Errorf("the director starts without the CA: %v", err)
	}
}
