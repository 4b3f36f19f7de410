// Package acme gets the certificate of the director's own pages from an ACME server (RFC 8555), and renews it. It is
// the only package that knows the protocol's library.
package acme

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"log/slog"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/acme"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
)

// CertificateFile holds the key and the certificate with its chain, below the directory of the configuration.
const CertificateFile = "certificate.pem"

// challengePath is the path below which an ACME server asks by HTTP-01.
const challengePath = "/.well-known/acme-challenge/"

// How long the next attempt waits after one that failed. Waits double up to the second value. A server that was
// reached and has refused is asked less often: public ones allow five failed validations an hour.
const (
	waitAway, mostAway       = 5 * time.Second, 5 * time.Minute
	waitRefused, mostRefused = 2 * time.Minute, time.Hour
	waitDone                 = time.Minute // after one that succeeded, however short its certificate lives
)

// attemptLimit is how long one attempt may take.
const attemptLimit = 5 * time.Minute

// longestAhead is how long before its end a certificate is renewed at most.
const longestAhead = 30 * 24 * time.Hour

// Config is what Open needs.
type Config struct {
	Directory string         // URL of the server's directory
	Roots     *x509.CertPool // that the server's certificate is from; nil for those that the machine trusts
	Email     string         // whom the server writes to; may be empty
	Names     []string       // of the certificate
	// KeyID and Key bind the account to one that the server knows by other means (external account binding); empty
	// for none.
	KeyID string
	Key   []byte
	// HTTP says that a server that asks at port 80 reaches Handler: HTTP-01 is used where the server offers it.
	HTTP     bool
	Networks confine.Networks // where the server may be
	Dir      string           // for the account's key and the certificate
	Now      func() time.Time
	Log      *slog.Logger
}

// State is what there is of the certificate.
type State struct {
	Certificate *x509.Certificate // nil before there was one
	Problem     string            // of the last attempt; empty if it succeeded, or there was none
}

// Manager has the certificate. It is safe for concurrent use.
type Manager struct {
	Config
	http   *http.Client
	ticked sync.Mutex // held by the one attempt at a time

	mu       sync.Mutex
	cert     *tls.Certificate            // with Leaf; nil before there is one
	unsaved  bool                        // cert could not be written into its file yet
	next     time.Time                   // of the next attempt
	wait     time.Duration               // after the last attempt, if it failed
	problem  string                      // of the last attempt
	alpn     map[string]*tls.Certificate // that prove names, by name
	response map[string]string           // that prove names by HTTP-01, by path
}

// Open returns the manager with the certificate in the directory, if it is there, of this server and for these names.
// It asks no server. Errors: internal if the directory cannot be made.
func Open(c Config) (*Manager, error) {
	c.Names = slices.Clone(c.Names)
	for i, name := range c.Names {
		c.Names[i] = strings.ToLower(name)
	}
	m := &Manager{Config: c, alpn: map[string]*tls.Certificate{}, response: map[string]string{}}
	m.http = m.client()
	if err := m.makeDir(); err != nil {
		return nil, err
	}
	if m.cert = m.load(); m.cert != nil {
		m.next = renewAt(m.cert.Leaf)
	}
	return m, nil
}

// renewAt is a third of its life before the certificate ends, and thirty days at most.
func renewAt(c *x509.Certificate) time.Time {
	return c.NotAfter.Add(-min(c.NotAfter.Sub(c.NotBefore)/3, longestAhead))
}

// State returns what there is of the certificate.
func (m *Manager) State() State {
	m.mu.Lock()
	defer m.mu.Unlock()
	s := State{Problem: m.problem}
	if m.cert != nil {
		s.Certificate = m.cert.Leaf
	}
	return s
}

// Tick asks for a certificate if there is none or it is due, and returns whether there is something to tell: another
// certificate, or another problem. Call it every few seconds. What fails is logged, and tried again later.
func (m *Manager) Tick(ctx context.Context) (changed bool) {
	m.ticked.Lock()
	defer m.ticked.Unlock()
	before := m.State()
	m.mu.Lock()
	due := !m.Now().Before(m.next)
	m.mu.Unlock()
	if !due {
		return false
	}
	if err := m.attempt(ctx); ctx.Err() != nil {
		return false // the director stops
	} else if err != nil {
		m.failed(ctx, err)
	}
	return m.State() != before
}

// attempt gets a certificate, shows it, and writes it into its file. One that could not be written is not asked for
// again.
func (m *Manager) attempt(ctx context.Context) error {
	m.mu.Lock()
	cert, unsaved := m.cert, m.unsaved
	m.mu.Unlock()
	if !unsaved || !m.Now().Before(renewAt(cert.Leaf)) {
		var err error
		if cert, err = m.obtain(ctx); err != nil {
			return err
		}
		m.mu.Lock()
		m.cert, m.unsaved = cert, true
		m.mu.Unlock()
	}
	if err := m.save(cert); err != nil {
		return err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.unsaved, m.problem, m.wait = false, "", 0
	if m.next = renewAt(cert.Leaf); m.next.Before(m.Now().Add(waitDone)) {
		m.next = m.Now().Add(waitDone)
	}
	m.Log.InfoContext(
		ctx, "the ACME server has issued a certificate for the director", "names", m.Names, "directory", m.Directory,
		"notAfter", cert.Leaf.NotAfter, "renewal", m.next,
	)
	return nil
}

// failed writes down what went wrong, and when the next attempt is.
func (m *Manager) failed(ctx context.Context, err error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	f := explain(err)
	first, most := waitRefused, mostRefused
	if f.away {
		first, most = waitAway, mostAway
	}
	m.wait = min(max(2*m.wait, first), most)
	if f.after > 0 { // the server says when
		m.wait = min(max(m.wait, f.after), 24*time.Hour)
	}
	if m.cert != nil { // never so late that there is no time left for another one
		if left := m.cert.Leaf.NotAfter.Sub(m.Now()); left > 0 {
			m.wait = min(m.wait, max(left/4, first))
		}
	}
	m.next, m.problem = m.Now().Add(m.wait), f.what
	m.Log.WarnContext(
		ctx, "there is no new certificate by ACME; the director shows what it has", "names", m.Names,
		"directory", m.Directory, "problem", f.what, "next", f.next, "again", m.next,
	)
}

// TLS returns the settings with which a server shows the certificate to those who ask for one of its names, while it
// is valid, and answers an ACME server that asks by TLS-ALPN-01. All others get what own shows.
func (m *Manager) TLS(own *tls.Config) *tls.Config {
	out := own.Clone()
	out.GetCertificate = func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
		if c := m.named(hello.ServerName); c != nil {
			return c, nil
		}
		return own.GetCertificate(hello)
	}
	out.GetConfigForClient = func(hello *tls.ClientHelloInfo) (*tls.Config, error) {
		if !slices.Equal(hello.SupportedProtos, []string{acme.ALPNProto}) {
			return nil, nil
		}
		m.mu.Lock()
		defer m.mu.Unlock()
		c := m.alpn[clean(hello.ServerName)]
		if c == nil {
			return nil, director.Errorf(director.KindNotFound, "acme.challenge", "no proof of this name is asked for")
		}
		return &tls.Config{
			MinVersion: tls.VersionTLS12, Certificates: []tls.Certificate{*c}, NextProtos: []string{acme.ALPNProto},
		}, nil
	}
	return out
}

func clean(name string) string { return strings.ToLower(strings.TrimSuffix(name, ".")) }

// named returns the certificate if it has the name and is valid.
func (m *Manager) named(name string) *tls.Certificate {
	if !slices.Contains(m.Names, clean(name)) {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.cert == nil || m.Now().After(m.cert.Leaf.NotAfter) {
		return nil
	}
	return m.cert
}

// Handler answers an ACME server that asks by HTTP-01. It leads those who read pages to the same path of the URL, and
// serves nothing else.
func (m *Manager) Handler(pages string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, "use https", http.StatusMethodNotAllowed)
			return
		}
		if strings.HasPrefix(r.URL.Path, challengePath) {
			m.mu.Lock()
			text, ok := m.response[r.URL.Path]
			m.mu.Unlock()
			if !ok {
				http.NotFound(w, r)
				return
			}
			w.Header().Set("Content-Type", "application/octet-stream")
			_, _ = w.Write([]byte(text))
			return
		}
		if !strings.HasPrefix(r.URL.Path, "/") {
			http.NotFound(w, r)
			return
		}
		http.Redirect(w, r, pages+r.URL.RequestURI(), http.StatusFound)
	})
}
