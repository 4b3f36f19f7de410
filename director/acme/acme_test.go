package acme

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/acme/acmetest"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/pki"
)

const pageName = "director.example.org"

// world is a director's listener with an ACME server.
type world struct {
	*acmetest.Server
	config Config
	own    *pki.Server

	mu    sync.Mutex
	ahead time.Duration // of the clock
}

func newWorld(t *testing.T, o acmetest.Options) *world {
	t.Helper()
	w := &world{Server: acmetest.Start(t, o)}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(w.Root))
	w.config = Config{
		Directory: w.Directory, Roots: roots, Email: "admins@example.org", Names: []string{pageName},
		Networks: confine.Networks{netip.MustParsePrefix("127.0.0.0/8")}, Dir: filepath.Join(t.TempDir(), "acme"),
		Now: w.now, Log: slog.New(slog.NewTextHandler(t.Output(), nil)),
	}
	var err error
	w.own, err = pki.EnsureServer(t.TempDir(), []string{"director"}, []netip.Addr{netip.MustParseAddr("127.0.0.1")})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func (w *world) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Add(w.ahead)
}

func (w *world) pass(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ahead += d
}

func (w *world) open(t *testing.T) *Manager {
	t.Helper()
	m, err := Open(w.config)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// serve serves the manager's pages at the port.
func (w *world) serve(t *testing.T, m *Manager, port int) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address(port))
	if err != nil {
		t.Fatal(err)
	}
	s := &http.Server{
		Handler: http.NotFoundHandler(), TLSConfig: m.TLS(w.own.TLSConfig()), ReadHeaderTimeout: time.Minute,
		ErrorLog: slog.NewLogLogger(slog.DiscardHandler, slog.LevelError),
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		_ = s.ServeTLS(l, "", "")
	}()
	t.Cleanup(func() {
		_ = s.Close()
		<-done
	})
}

func address(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }

// shown is the certificate that the port shows under the name.
func shown(t *testing.T, port int, name string, protocols ...string) (*x509.Certificate, error) {
	t.Helper()
	c, err := (&tls.Dialer{Config: &tls.Config{
		ServerName: name, InsecureSkipVerify: true, MinVersion: tls.VersionTLS12, NextProtos: protocols,
	}}).DialContext(t.Context(), "tcp", address(port))
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.Close() }()
	return c.(*tls.Conn).ConnectionState().PeerCertificates[0], nil
}

func (w *world) mustShow(t *testing.T, port int, name string, want *x509.Certificate) {
	t.Helper()
	if got, err := shown(t, port, name); err != nil || !got.Equal(want) {
		t.Errorf("under %q: %v, %v; want %v", name, got, err, want.Subject)
	}
}

func (w *world) orders() int { return w.Said("path=/acme/acme/new-order") }

// A real step-ca validates by TLS-ALPN-01 and issues. The certificate is shown under its name alone, is renewed a third
// of its life before its end, and is there after a restart with its account.
func TestIssuesAndRenews(t *testing.T) {
	t.Parallel()
	port := acmetest.Port(t)
	w := newWorld(t, acmetest.Options{TLSPort: port, Life: "12m"})
	w.Name(pageName)
	m := w.open(t)
	w.serve(t, m, port)
	w.mustShow(t, port, pageName, w.own.Leaf())
	if !m.Tick(t.Context()) {
		t.Fatal("nothing has happened")
	}
	first := m.State()
	if first.Problem != "" || first.Certificate == nil {
		t.Fatalf("not issued: %+v", first)
	}
	for name, want := range map[string]*x509.Certificate{
		pageName: first.Certificate, "Director.example.org": first.Certificate, "": w.own.Leaf(),
		"director":          w.own.Leaf(),
		"other.example.org": w.own.Leaf(), "127.0.0.1": w.own.Leaf(),
	} {
		w.mustShow(t, port, name, want)
	}
	if c, err := shown(t, port, pageName, "acme-tls/1"); err == nil {
		t.Errorf("a proof that is not asked for is shown: %v", c.Subject)
	}
	if m.Tick(t.Context()) || w.orders() != 1 {
		t.Errorf("another tick changes something, with %d orders", w.orders())
	}

	again := w.open(t)
	account, err := os.ReadFile(filepath.Join(w.config.Dir, accountFile))
	if s := again.State(); err != nil || s.Certificate == nil || !s.Certificate.Equal(first.Certificate) ||
		again.Tick(t.Context()) || w.orders() != 1 {
		t.Errorf("after a restart: %+v, %d orders, %v", s, w.orders(), err)
	}

	w.pass(9 * time.Minute)
	if !m.Tick(t.Context()) {
		t.Fatal("it was not renewed")
	}
	second := m.State()
	if second.Problem != "" || second.Certificate.Equal(first.Certificate) || w.orders() != 2 {
		t.Errorf("renewed: %+v, %d orders", second, w.orders())
	}
	w.mustShow(t, port, pageName, second.Certificate)
	if kept, err := os.ReadFile(filepath.Join(w.config.Dir, accountFile)); err != nil || !bytes.Equal(kept, account) {
		t.Errorf("the account has changed: %v", err)
	}
	w.pass(time.Hour)
	w.mustShow(t, port, pageName, w.own.Leaf()) // better than one that has ended
	for file, mode := range map[string]os.FileMode{".": 0o700, accountFile: 0o600, CertificateFile: 0o600} {
		if i, err := os.Stat(filepath.Join(w.config.Dir, file)); err != nil || i.Mode().Perm() != mode {
			t.Errorf("%s: %v, %v", file, i.Mode(), err)
		}
	}
}

// A server that is away at the start is asked again, at a bounded rate.
func TestServerIsBack(t *testing.T) {
	t.Parallel()
	port := acmetest.Port(t)
	w := newWorld(t, acmetest.Options{TLSPort: port, Away: true})
	w.Name(pageName)
	m := w.open(t)
	w.serve(t, m, port)
	if !m.Tick(t.Context()) || !strings.Contains(m.State().Problem, "does not answer") {
		t.Errorf("a server that is away: %+v", m.State())
	}
	w.mustShow(t, port, pageName, w.own.Leaf())
	w.Run(t)
	if m.Tick(t.Context()) || w.orders() != 0 {
		t.Error("it was asked again at once")
	}
	w.pass(waitAway)
	if !m.Tick(t.Context()) || m.State().Problem != "" {
		t.Errorf("a server that is back: %+v", m.State())
	}
	w.mustShow(t, port, pageName, m.State().Certificate)
	s := m.State().Certificate
	if s.NotAfter.Sub(s.NotBefore) > 25*time.Hour || !renewAt(s).Before(s.NotAfter.Add(-7*time.Hour)) {
		t.Errorf("a certificate of a day, until %s, is renewed at %s", s.NotAfter, renewAt(s))
	}
}

// A server that refuses is not asked again before two minutes, and what it said is told.
func TestServerRefuses(t *testing.T) {
	t.Parallel()
	port := acmetest.Port(t)
	w := newWorld(t, acmetest.Options{TLSPort: port})
	m := w.open(t)
	w.serve(t, m, port)
	if !m.Tick(t.Context()) || !strings.Contains(m.State().Problem, "could not validate "+pageName) {
		t.Fatalf("a name that leads nowhere: %+v", m.State())
	}
	w.mustShow(t, port, pageName, w.own.Leaf())
	w.Name(pageName)
	w.pass(waitRefused - time.Second)
	if m.Tick(t.Context()) || w.orders() != 1 {
		t.Errorf("%d orders within two minutes", w.orders())
	}
	w.pass(time.Second)
	if !m.Tick(t.Context()) || m.State().Problem != "" {
		t.Errorf("a name that leads to the director: %+v", m.State())
	}
	for range 10 { // whatever happens, there is no storm of orders
		m.failed(t.Context(), refusal("has refused"))
	}
	if m.wait != mostRefused {
		t.Errorf("after ten refusals the next attempt waits %s", m.wait)
	}
	w.pass(23*time.Hour + 30*time.Minute)
	m.failed(t.Context(), refusal("has refused"))
	if m.wait > 10*time.Minute {
		t.Errorf("half an hour before the end the next attempt waits %s", m.wait)
	}
}

// With a listener for HTTP, step-ca validates by HTTP-01. The listener serves nothing else.
func TestByHTTP(t *testing.T) {
	t.Parallel()
	port := acmetest.Port(t)
	w := newWorld(t, acmetest.Options{TLSPort: 1, HTTPPort: port})
	w.Name(pageName)
	w.config.HTTP = true
	m := w.open(t)
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", address(port))
	if err != nil {
		t.Fatal(err)
	}
	s := httptest.NewUnstartedServer(m.Handler("https://" + pageName))
	_ = s.Listener.Close()
	s.Listener = l
	s.Start()
	t.Cleanup(s.Close)
	if !m.Tick(t.Context()) || m.State().Certificate == nil {
		t.Fatalf("not issued: %+v", m.State())
	}
	c := http.Client{CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
	for _, tt := range []struct {
		method, path string
		status       int
		location     string
	}{
		{http.MethodGet, challengePath + "unknown", http.StatusNotFound, ""},
		{http.MethodGet, "/clusters?a=b", http.StatusFound, "https://" + pageName + "/clusters?a=b"},
		{http.MethodHead, "//evil.example.org/x", http.StatusFound, "https://" + pageName + "//evil.example.org/x"},
		{http.MethodPost, "/api/v1/login", http.StatusMethodNotAllowed, ""},
	} {
		r, err := http.NewRequestWithContext(t.Context(), tt.method, s.URL+tt.path, nil)
		if err != nil {
			t.Fatal(err)
		}
		a, err := c.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		_ = a.Body.Close()
		if a.StatusCode != tt.status || a.Header.Get("Location") != tt.location {
			t.Errorf("%s %s: %d %q", tt.method, tt.path, a.StatusCode, a.Header.Get("Location"))
		}
	}
}

// What other servers get, and what is told of it.
func TestServersThatAreWrong(t *testing.T) {
	t.Parallel()
	var asked sync.Map
	inside := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		asked.Store(r.URL.Path, true)
	}))
	t.Cleanup(inside.Close)
	answer := func(text string) http.HandlerFunc {
		return func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, text) }
	}
	for name, tt := range map[string]struct {
		handler http.HandlerFunc
		change  func(*Config)
		says    string
	}{
		"no ACME server": {answer("<html>\x1b[31m"), nil, "no ACME server"},
		"too long":       {answer(strings.Repeat(" ", 2*mostAnswer)), nil, "no ACME server"},
		"redirects":      {http.RedirectHandler(inside.URL, http.StatusFound).ServeHTTP, nil, "no ACME server"},
		"leads elsewhere": {answer(
			`{"newNonce":"` + inside.URL + `/n","newAccount":"` + inside.URL + `/a","newOrder":"` + inside.URL + `/o"}`,
		), nil, "leads to http:"},
		"not trusted": {answer("{}"), func(c *Config) { c.Roots = x509.NewCertPool() }, "is not trusted"},
		"not allowed": {answer("{}"), func(c *Config) { c.Networks = confine.Private() }, "not allowed"},
	} {
		s := httptest.NewUnstartedServer(tt.handler)
		s.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
		s.StartTLS()
		t.Cleanup(s.Close)
		roots := x509.NewCertPool()
		roots.AddCert(s.Certificate())
		c := Config{
			Directory: s.URL, Roots: roots, Names: []string{pageName}, Dir: t.TempDir(), Now: time.Now,
			Networks: confine.Networks{netip.MustParsePrefix("127.0.0.0/8")},
			Log:      slog.New(slog.NewTextHandler(t.Output(), nil)),
		}
		if tt.change != nil {
			tt.change(&c)
		}
		m, err := Open(c)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		if !m.Tick(ctx) || !strings.Contains(m.State().Problem, tt.says) || len(m.State().Problem) > mostWords+100 ||
			strings.ContainsRune(m.State().Problem, '\x1b') {
			t.Errorf("%s: %q", name, m.State().Problem)
		}
		cancel()
	}
	asked.Range(func(path, _ any) bool {
		t.Errorf("a server without TLS was asked for %s", path)
		return true
	})
}

// What is in the directory counts only if it is what is wanted.
func TestFilesThatAreOfNoUse(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	m, err := Open(Config{Directory: "https://one", Names: []string{pageName}, Dir: dir, Now: time.Now})
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.NewCA("test")
	if err != nil {
		t.Fatal(err)
	}
	p, err := pki.ServerCert(ca, []string{pageName}, nil, time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	c, err := tls.X509KeyPair([]byte(p.Cert), []byte(p.Key.Reveal()))
	if err != nil {
		t.Fatal(err)
	}
	if err := m.save(&c); err != nil {
		t.Fatal(err)
	}
	for name, tt := range map[string]struct {
		config Config
		there  bool
	}{
		"the same":       {Config{Directory: "https://one", Names: []string{pageName}, Now: time.Now}, true},
		"another server": {Config{Directory: "https://two", Names: []string{pageName}, Now: time.Now}, false},
		"another name": {Config{
			Directory: "https://one", Names: []string{pageName, "b.example.org"},
			Now: time.Now,
		}, false},
		"later": {Config{Directory: "https://one", Names: []string{pageName}, Now: func() time.Time {
			return time.Now().Add(2 * time.Hour)
		}}, false},
	} {
		tt.config.Dir = dir
		m, err := Open(tt.config)
		if err != nil || (m.State().Certificate != nil) != tt.there {
			t.Errorf("%s: %+v, %v", name, m.State(), err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, accountFile), []byte("a secret of mine"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := m.accountKey(); director.HintOf(err) == "" || strings.Contains(err.Error(), "a secret of mine") {
		t.Errorf("an account that cannot be read: %v", err)
	}
}
