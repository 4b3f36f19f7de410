package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io/fs"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/whole"
)

const (
	serverLife  = 365 * 24 * time.Hour
	serverRenew = 30 * 24 * time.Hour // before the end of its life

	fileCACert     = "ca.crt"
	fileCAKey      = "ca.key"
	fileServerCert = "server.crt"
	fileServerKey  = "server.key"
)

// Server is the director's own TLS identity: an authority that nodes and clients trust, and a certificate signed by it
// for the API and the registry. Safe for concurrent use.
type Server struct {
	dir   string
	names []string
	ips   []netip.Addr
	now   func() time.Time

	mu    sync.Mutex
	ca    Pair             // that signs
	other string           // the other authority that is trusted, while they change
	stage Stage            // of that change
	cert  *tls.Certificate // with Leaf
	next  time.Time        // no renewal is tried before, so that a full disk is not asked at every handshake
}

// EnsureServer returns the identity that lives in dir, and creates what is missing. The authority is created once and
// kept; the certificate is issued again when it names anything else than names and ips, does not belong to the
// authority or its key, has less than thirty days left, or is not valid yet. All files have mode 0600 and are replaced
// as a whole. Errors: invalid without any name or address, unavailable while the clock is behind the authority,
// internal when the authority in dir is damaged or dir cannot be written.
func EnsureServer(dir string, names []string, ips []netip.Addr) (*Server, error) {
	return ensureServer(dir, names, ips, time.Now)
}

func ensureServer(dir string, names []string, ips []netip.Addr, now func() time.Time) (*Server, error) {
	const op = "pki.ensure_server"
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, director.Errorf(director.KindInternal, op, "cannot make the directory of the TLS files: %w", err)
	}
	s := &Server{dir: dir, names: slices.Clone(names), ips: slices.Clone(ips), now: now}
	if err := s.ensureCA(); err != nil {
		return nil, err
	}
	if s.cert = s.load(); s.cert == nil {
		if err := s.renew(); err != nil {
			return nil, err
		}
	}
	return s, nil
}

// CA returns the authority's certificate in PEM, for nodes and clients to trust; both while it changes.
func (s *Server) CA() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return strings.Join(s.trusted(), "")
}

// Roots returns the authorities of CA.
func (s *Server) Roots() *x509.CertPool {
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(s.CA()))
	return roots
}

// CAFile returns the path of the file that holds what CA returns.
func (s *Server) CAFile() string { return filepath.Join(s.dir, fileCACert) }

// Leaf returns the current certificate.
func (s *Server) Leaf() *x509.Certificate { return s.current().Leaf }

// NotAfter returns when the current certificate expires.
func (s *Server) NotAfter() time.Time {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.cert.Leaf.NotAfter
}

// TLSConfig returns a new server configuration, TLS 1.2 or newer, that shows the current certificate and renews it when
// it is due, without a restart. A renewal that fails is tried again an hour later, and the old certificate is shown
// meanwhile.
func (s *Server) TLSConfig() *tls.Config {
	return &tls.Config{
		MinVersion:     tls.VersionTLS12,
		GetCertificate: func(*tls.ClientHelloInfo) (*tls.Certificate, error) { return s.current(), nil },
	}
}

func (s *Server) current() *tls.Certificate {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now := s.now(); s.due(s.cert) && now.After(s.next) {
		s.next = now.Add(time.Hour)
		_ = s.renew() // the old one serves on
	}
	return s.cert
}

// due reports whether a certificate ends soon, or was made while the clock was ahead and is not valid yet.
func (s *Server) due(c *tls.Certificate) bool {
	now := s.now()
	return now.Add(serverRenew).After(c.Leaf.NotAfter) || now.Before(c.Leaf.NotBefore)
}

func (s *Server) ensureCA() error {
	const op = "pki.ensure_server"
	cert, err := s.read(fileCACert)
	if errors.Is(err, fs.ErrNotExist) {
		// No client can trust an authority whose certificate was never written, so a key without one is replaced.
		s.stage = StageNone
		if s.ca, err = newCA("director", s.now(), AuthorityLife); err != nil {
			return err
		}
		if err = s.write(fileCAKey, s.ca.Key.Reveal()); err != nil {
			return err
		}
		return s.write(fileCACert, s.ca.Cert)
	}
	if err != nil {
		return director.Errorf(director.KindInternal, op, "cannot read the director's certificate authority: %w", err)
	}
	hint := "put " + fileCACert + " and " + fileCAKey + " back from a backup, or move both out of " + s.dir +
		": a new authority is made at the next start, and every node and client has to be told to trust it"
	key, err := s.read(fileCAKey)
	if err != nil {
		return director.Errorf(
			director.KindInternal, op, "cannot read the key of the director's certificate authority: %w", err,
		).
			WithHint("%s", hint)
	}
	s.adopt(cert, director.Secret(key))
	if ca, err := ParseCert(s.ca.Cert); err == nil && s.now().Before(ca.NotBefore) {
		return director.Errorf(
			director.KindUnavailable, op, "this machine's clock says %s, and the director's authority begins at %s",
			s.now().UTC().Format(time.RFC3339), ca.NotBefore.UTC().Format(time.RFC3339),
		).
			WithHint("set the clock, and start the director again; if the authority is of a wrong clock: %s", hint)
	}
	if err := ValidateCA(s.ca, s.now()); err != nil {
		return &director.Error{
			Kind: director.KindInternal, Op: op, Msg: "the director's certificate authority cannot be used", Hint: hint,
			Err: err,
		}
	}
	return nil
}

// load returns the certificate in the directory if it is usable, and nil otherwise: a new one replaces it, whatever is
// wrong with it.
func (s *Server) load() *tls.Certificate {
	c, err := tls.LoadX509KeyPair(filepath.Join(s.dir, fileServerCert), filepath.Join(s.dir, fileServerKey))
	if err != nil || s.due(&c) || !covers(c.Leaf, s.names, s.ips) {
		return nil
	}
	if text, err := s.read(fileServerCert); err != nil || !shows(text, s.chain()) {
		return nil
	}
	if ca, err := ParseCert(s.ca.Cert); err != nil || c.Leaf.CheckSignatureFrom(ca) != nil {
		return nil
	}
	return &c
}

func (s *Server) renew() error {
	p, err := serverCert(s.ca, s.names, s.ips, serverLife, s.now())
	if err != nil {
		return err
	}
	shown := p.Cert + s.chain()
	c, err := tls.X509KeyPair([]byte(shown), []byte(p.Key.Reveal()))
	if err != nil {
		return director.Errorf(director.KindInternal, "pki.renew", "the new certificate cannot be used: %w", err)
	}
	if err := s.write(fileServerKey, p.Key.Reveal()); err != nil {
		return err
	}
	if err := s.write(fileServerCert, shown); err != nil {
		return err
	}
	s.cert = &c
	return nil
}

func (s *Server) read(name string) (string, error) {
	b, err := os.ReadFile(filepath.Join(s.dir, name))
	return string(b), err
}

// write replaces a file, which only the director can read.
func (s *Server) write(name, text string) error {
	if err := whole.Write(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
		return director.Errorf(director.KindInternal, "pki.write", "cannot write %s into %s: %w", name, s.dir, err).
			WithHint("check the space and the permissions there")
	}
	return nil
}
