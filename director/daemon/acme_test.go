package daemon

import (
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/acme/acmetest"
	"github.com/director-kaas/kaas/director/confine"
)

const consoleName = "console.example.org"

// acmeConfig is a configuration with a server that validates at the director's listener.
func acmeConfig(t *testing.T, o acmetest.Options) (Config, *acmetest.Server) {
	t.Helper()
	c := testConfig(t)
	port := acmetest.Port(t)
	c.Listen = net.JoinHostPort("127.0.0.1", strconv.Itoa(port))
	o.TLSPort = port
	s := acmetest.Start(t, o)
	c.ACME = ACME{
		Directory: s.Directory, CAFile: filepath.Join(t.TempDir(), "root.pem"), Email: "admins@example.org",
		Names: []string{consoleName}, Networks: confine.Networks{netip.MustParsePrefix("127.0.0.0/8")},
	}
	if err := os.WriteFile(c.ACME.CAFile, []byte(s.Root), 0o600); err != nil {
		t.Fatal(err)
	}
	return c, s
}

// pageCertificate is what the director shows under the name.
func pageCertificate(t *testing.T, d *Daemon, name string) *x509.Certificate {
	t.Helper()
	c, err := (&tls.Dialer{Config: &tls.Config{ServerName: name, InsecureSkipVerify: true}}).
		DialContext(t.Context(), "tcp", d.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = c.Close() }()
	return c.(*tls.Conn).ConnectionState().PeerCertificates[0]
}

// inventoryHas waits until the inventory has a certificate of the director like that.
func inventoryHas(t *testing.T, d *Daemon, what string, like func(director.Certificate) bool) director.Certificate {
	t.Helper()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	limit := time.After(time.Minute)
	for {
		list, _, err := d.services.inventory.List(t.Context(), director.CertificateQuery{Director: true},
			director.Page{})
		if err != nil {
			t.Fatal(err)
		}
		if i := slices.IndexFunc(list, like); i >= 0 {
			return list[i]
		}
		select {
		case <-tick.C:
		case <-limit:
			t.Fatalf("%s is not in the inventory: %+v", what, list)
		}
	}
}

// A director starts without its ACME server, says what is wrong, and shows its own certificate. When a real step-ca is
// back, it gets a certificate by TLS-ALPN-01 at its own listener, keeps it over a restart, and shows it under its name
// alone.
func TestACMECertificate(t *testing.T) {
	t.Parallel()
	c, server := acmeConfig(t, acmetest.Options{Away: true})
	server.Name(consoleName)
	d, err := start(t, c, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	own := pageCertificate(t, d, "")
	inventoryHas(t, d, "the problem", func(c director.Certificate) bool {
		return c.Name == "director" && strings.Contains(c.Problem, consoleName) &&
			strings.Contains(c.Problem, "does not answer")
	})
	if !pageCertificate(t, d, consoleName).Equal(own) {
		t.Error("something else than the director's own certificate is shown")
	}
	server.Run(t)
	seen := inventoryHas(t, d, "the certificate", func(c director.Certificate) bool {
		return c.Name == director.CertificateACME && c.Problem == ""
	})
	shown := pageCertificate(t, d, consoleName)
	if seen.Serial != shown.SerialNumber.Text(16) || seen.Place != "tls/acme/certificate.pem" || shown.Equal(own) {
		t.Errorf("the inventory has %+v, and %s is shown", seen, shown.SerialNumber.Text(16))
	}
	inventoryHas(t, d, "the director's without a problem", func(c director.Certificate) bool {
		return c.Name == "director" && c.Problem == ""
	})
	for _, name := range []string{"", "localhost", "director", "other.example.org"} {
		if !pageCertificate(t, d, name).Equal(own) {
			t.Errorf("under %q another certificate is shown", name)
		}
	}
	if code, body := trusting(t, server.Root, d, "/readyz"); code != http.StatusOK {
		t.Errorf("a client that trusts the ACME server's authority: %d %s", code, body)
	}
	if code, body := get(t, c, d, "/readyz"); code != http.StatusOK {
		t.Errorf("a client that trusts the director's authority: %d %s", code, body)
	}
	if err := d.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	server.Stop()
	if d, err = start(t, c, io.Discard); err != nil {
		t.Fatal(err)
	}
	if !pageCertificate(t, d, consoleName).Equal(shown) || server.Said("path=/acme/acme/new-order") != 1 {
		t.Errorf("after a restart, with %d orders, another certificate is shown",
			server.Said("path=/acme/acme/new-order"))
	}
}

// trusting asks the director by the name of its pages.
func trusting(t *testing.T, root string, d *Daemon, path string) (int, string) {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(root))
	tr := &http.Transport{TLSClientConfig: &tls.Config{
		RootCAs: roots, ServerName: consoleName,
		MinVersion: tls.VersionTLS12,
	}}
	defer tr.CloseIdleConnections()
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "https://"+d.Addr().String()+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := (&http.Client{Transport: tr, Timeout: 30 * time.Second}).Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = a.Body.Close() }()
	b, err := io.ReadAll(a.Body)
	if err != nil {
		t.Fatal(err)
	}
	return a.StatusCode, string(b)
}

// A server that refuses the name stops nothing, and what it said is told in the log and in what is wrong with
// certificates.
func TestACMEServerRefuses(t *testing.T) {
	t.Parallel()
	c, _ := acmeConfig(t, acmetest.Options{}) // the name leads nowhere
	var log bytes.Buffer
	d, err := Start(t.Context(), c, Build{Version: "test"}, slog.New(slog.NewTextHandler(&log, nil)), io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	inventoryHas(t, d, "the problem", func(c director.Certificate) bool {
		return strings.Contains(c.Problem, "could not validate "+consoleName)
	})
	found, _, err := d.services.inventory.Verify(t.Context(), director.CertificateQuery{Director: true})
	if err != nil || len(found) != 1 || !strings.Contains(found[0].Next, "acme") {
		t.Errorf("found: %+v, %v", found, err)
	}
	if code, body := get(t, c, d, "/readyz"); code != http.StatusOK {
		t.Errorf("not ready: %d %s", code, body)
	}
	if err := d.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if n := strings.Count(log.String(), "could not validate"); n != 1 {
		t.Errorf("the log has %d lines about it:\n%s", n, log.String())
	}
}

// What is wrong in the configuration is said with its field and what to do.
func TestACMEConfig(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		return path
	}
	junk, key := file("junk", "a secret"), file("key", "bGFyZ2UtZW5vdWdoLXRvLWJlLWEta2V5+w==\n")
	for _, tt := range []struct {
		field  string // of the one problem; empty for none
		change func(*ACME)
	}{
		{"", func(*ACME) {}},
		{"", func(a *ACME) { a.KeyID, a.KeyFile = "id", key }},
		{"", func(a *ACME) { *a = ACME{} }},
		{"", func(a *ACME) { a.Names = []string{"director", "Console.Example.Org", "xn--bcher-kva.example"} }},
		{"acme.directory", func(a *ACME) { a.Directory = "" }},
		{"acme.directory", func(a *ACME) { a.Directory = "http://ca.example.org/directory" }},
		{"acme.directory", func(a *ACME) { a.Directory = "https://user:secret@ca.example.org/" }},
		{"acme.directory", func(a *ACME) { a.Directory = "https:///directory" }},
		{"acme.email", func(a *ACME) { a.Email = "Ann <ann@example.org>" }},
		{"acme.names", func(a *ACME) { a.Names = nil }},
		{"acme.names", func(a *ACME) {
			a.Names = nil
			for i := range acmeNames + 1 {
				a.Names = append(a.Names, "n"+strconv.Itoa(i)+".example.org")
			}
		}},
		{"acme.names[0]", func(a *ACME) { a.Names = []string{"10.0.0.5"} }},
		{"acme.names[0]", func(a *ACME) { a.Names = []string{"fd00::1"} }},
		{"acme.names[0]", func(a *ACME) { a.Names = []string{"*.example.org"} }},
		{"acme.names[0]", func(a *ACME) { a.Names = []string{"localhost"} }},
		{"acme.names[0]", func(a *ACME) { a.Names = []string{"a.example.org\nb"} }},
		{"acme.names[0]", func(a *ACME) { a.Names = []string{"a_b.example.org"} }},
		{"acme.names[0]", func(a *ACME) { a.Names = []string{strings.Repeat("a.", 130) + "org"} }},
		{"acme.names[1]", func(a *ACME) { a.Names = []string{"a.example.org", "A.example.org"} }},
		{"acme.caFile", func(a *ACME) { a.CAFile = "ca.pem" }},
		{"acme.caFile", func(a *ACME) { a.CAFile = filepath.Join(dir, "missing") }},
		{"acme.caFile", func(a *ACME) { a.CAFile = junk }},
		{"acme.caFile", func(a *ACME) { a.CAFile = dir }},
		{"acme.keyID", func(a *ACME) { a.KeyID = "id" }},
		{"acme.keyFile", func(a *ACME) { a.KeyID, a.KeyFile = "id", junk }},
		{"acme.keyFile", func(a *ACME) { a.KeyID, a.KeyFile = "id", "/dev/zero" }},
		{"acme.httpListen", func(a *ACME) { a.HTTPListen = "80" }},
		{"acme.httpListen", func(a *ACME) { a.HTTPListen = "127.0.0.1:0" }},
		{"acme.networks[0]", func(a *ACME) { a.Networks = confine.Networks{netip.MustParsePrefix("10.0.0.1/8")} }},
	} {
		c := testConfig(t)
		c.ACME = ACME{Directory: "https://ca.example.org/acme/acme/directory", Names: []string{consoleName}}
		tt.change(&c.ACME)
		fields := director.FieldsOf(c.Validate())
		if tt.field == "" && len(fields) == 0 {
			continue
		}
		if len(fields) != 1 || fields[0].Path != tt.field || fields[0].Hint == "" ||
			strings.Contains(fields[0].Msg, "a secret") {
			t.Errorf("%+v: %+v, want one about %q", c.ACME, fields, tt.field)
		}
	}
	c := testConfig(t)
	c.ACME = ACME{Directory: "https://ca.example.org/", Names: []string{consoleName}}
	c.Address = netip.MustParseAddr("10.0.0.5")
	if fields := director.FieldsOf(c.Validate()); len(fields) != 1 || fields[0].Path != "acme.names" {
		t.Errorf("a director that listens at loopback alone: %+v", fields)
	}
	c = testConfig(t)
	c.ACME = ACME{
		Directory: "https://ca.example.org/", Names: []string{consoleName}, KeyID: "id",
		KeyFile: filepath.Join("/etc/director/providers", "key"),
	}
	if fields := director.FieldsOf(c.Validate()); !slices.ContainsFunc(fields, func(f director.Field) bool {
		return f.Path == "providerFiles[0]"
	}) {
		t.Errorf("documents may name the key: %+v", fields)
	}
}

// The port for HTTP is taken, or answers and leads to the pages.
func TestACMEListensForHTTP(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	c.PublicURL = "https://" + consoleName
	c.ACME = ACME{
		Directory: "https://127.0.0.1:1/", Names: []string{consoleName},
		HTTPListen: net.JoinHostPort("127.0.0.1", strconv.Itoa(acmetest.Port(t))),
	}
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", c.ACME.HTTPListen)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := start(t, c, io.Discard); director.KindOf(err) != director.KindConflict ||
		!strings.Contains(director.HintOf(err), "acme.httpListen") {
		t.Errorf("a port that is taken: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := start(t, c, io.Discard); err != nil {
		t.Fatal(err)
	}
	client := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("no") }}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+c.ACME.HTTPListen+"/clusters", nil)
	if err != nil {
		t.Fatal(err)
	}
	a, err := client.Do(r)
	if a == nil || a.Header.Get("Location") != c.PublicURL+"/clusters" {
		t.Errorf("led to %v, %v", a, err)
	}
}
