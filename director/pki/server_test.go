package pki

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
)

var (
	testNames = []string{"director.example", "localhost"}
	testIPs   = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
)

// handshake opens a real TLS connection and returns the certificate that the server showed.
func handshake(t *testing.T, s *Server, name string) (*x509.Certificate, error) {
	t.Helper()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", s.TLSConfig())
	if err != nil {
		t.Fatal(err)
	}
	var wg sync.WaitGroup
	wg.Go(func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		_ = c.(*tls.Conn).Handshake()
		_ = c.Close()
	})
	defer wg.Wait()
	defer func() { _ = ln.Close() }()

	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(s.CA()))
	raw, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = raw.Close() }()
	c := tls.Client(raw, &tls.Config{RootCAs: roots, ServerName: name, Time: s.now})
	if err := c.HandshakeContext(t.Context()); err != nil {
		return nil, err
	}
	return c.ConnectionState().PeerCertificates[0], nil
}

func TestEnsureServer(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "tls")
	s, err := EnsureServer(dir, testNames, testIPs)
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"director.example", "127.0.0.1"} {
		if _, err := handshake(t, s, name); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := handshake(t, s, "elsewhere.example"); err == nil {
		t.Error("the certificate is good for any name")
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(entries) != 4 {
		t.Errorf("%d files, want 4: %v", len(entries), entries)
	}
	for _, e := range entries {
		if info, err := e.Info(); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: mode %v, %v", e.Name(), info.Mode(), err)
		}
	}
	if b, err := os.ReadFile(s.CAFile()); err != nil || string(b) != s.CA() {
		t.Errorf("CA file: %v", err)
	}
}

func TestEnsureServerAgain(t *testing.T) {
	t.Parallel()
	hurt := func(name string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			if err := os.WriteFile(filepath.Join(dir, name), []byte("damaged"), 0o600); err != nil {
				t.Fatal(err)
			}
		}
	}
	drop := func(names ...string) func(t *testing.T, dir string) {
		return func(t *testing.T, dir string) {
			t.Helper()
			for _, n := range names {
				if err := os.Remove(filepath.Join(dir, n)); err != nil {
					t.Fatal(err)
				}
			}
		}
	}
	for _, tc := range []struct {
		name    string
		before  func(t *testing.T, dir string)
		names   []string
		after   time.Duration
		wantNew bool
		newCA   bool
		fails   director.Kind
	}{
		{name: "nothing changed", names: testNames},
		{name: "names in another order", names: []string{"localhost", "director.example"}},
		{name: "a name more", names: append([]string{"extra.example"}, testNames...), wantNew: true},
		{name: "a name less", names: testNames[:1], wantNew: true},
		{name: "thirty-one days left", names: testNames, after: serverLife - 31*24*time.Hour},
		{name: "twenty-nine days left", names: testNames, after: serverLife - 29*24*time.Hour, wantNew: true},
		{name: "key damaged", names: testNames, before: hurt(fileServerKey), wantNew: true},
		{name: "certificate lost", names: testNames, before: drop(fileServerCert), wantNew: true},
		{
			name: "everything lost", names: testNames,
			before: drop(fileServerCert, fileServerKey, fileCACert, fileCAKey), wantNew: true, newCA: true,
		},
		{
			name: "stopped before the authority was written", names: testNames, before: drop(fileCACert), wantNew: true,
			newCA: true,
		},
		{name: "key of the authority lost", names: testNames, before: drop(fileCAKey), fails: director.KindInternal},
		{name: "authority damaged", names: testNames, before: hurt(fileCACert), fails: director.KindInternal},
		{name: "authority expired", names: testNames, after: AuthorityLife + time.Hour, fails: director.KindInternal},
		{name: "clock behind it", names: testNames, after: -2 * time.Hour, fails: director.KindUnavailable},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			first, err := EnsureServer(dir, testNames, testIPs)
			if err != nil {
				t.Fatal(err)
			}
			if tc.before != nil {
				tc.before(t, dir)
			}
			second, err := ensureServer(dir, tc.names, testIPs, func() time.Time { return time.Now().Add(tc.after) })
			if tc.fails != "" {
				if e, ok := errors.AsType[*director.Error](err); !ok || e.Kind != tc.fails || e.Hint == "" {
					t.Fatalf("want the kind %s and a hint, got %v", tc.fails, err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			if isNew := first.cert.Leaf.SerialNumber.Cmp(second.cert.Leaf.SerialNumber) != 0; isNew != tc.wantNew {
				t.Errorf("new certificate: %v, want %v", isNew, tc.wantNew)
			}
			if isNew := first.CA() != second.CA(); isNew != tc.newCA {
				t.Errorf("new authority: %v, want %v", isNew, tc.newCA)
			}
			if _, err := handshake(t, second, "127.0.0.1"); err != nil {
				t.Error(err)
			}
		})
	}
}

// A director that runs for a year must not need a restart.
func TestServerRenewsWhileServing(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s, err := ensureServer(t.TempDir(), testNames, testIPs, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	before := s.NotAfter()
	now = now.Add(serverLife - 10*24*time.Hour)
	c, err := handshake(t, s, "localhost")
	if err != nil {
		t.Fatal(err)
	}
	if !c.NotAfter.After(before) || !s.NotAfter().Equal(c.NotAfter) {
		t.Errorf("shows a certificate until %s, the first was until %s", c.NotAfter, before)
	}

	// The directory vanishes: the old certificate serves on.
	if err := os.RemoveAll(s.dir); err != nil {
		t.Fatal(err)
	}
	last := s.NotAfter()
	now = now.Add(serverLife - 10*24*time.Hour)
	if _, err := handshake(t, s, "localhost"); err != nil {
		t.Error(err)
	}
	if !s.NotAfter().Equal(last) {
		t.Error("a certificate that could not be stored is shown")
	}
}

// A certificate that was made while the clock was ahead would be refused until that time comes.
func TestServerRenewsAfterTheClockWasAhead(t *testing.T) {
	t.Parallel()
	now := time.Now()
	s, err := ensureServer(t.TempDir(), testNames, testIPs, func() time.Time { return now })
	if err != nil {
		t.Fatal(err)
	}
	right := now
	now = now.Add(serverLife)
	ahead, err := handshake(t, s, "localhost")
	if err != nil {
		t.Fatal(err)
	}
	now = right
	s.next = time.Time{} // on a real clock, an hour that passes
	again, err := handshake(t, s, "localhost")
	if err != nil {
		t.Fatal(err)
	}
	if !ahead.NotBefore.After(right) || again.NotBefore.After(right) {
		t.Errorf("it was valid from %s, and is from %s, at %s", ahead.NotBefore, again.NotBefore, right)
	}
}

func TestEnsureServerNeedsAName(t *testing.T) {
	t.Parallel()
	if _, err := EnsureServer(t.TempDir(), nil, nil); director.KindOf(err) != director.KindInvalid {
		t.Errorf("got %v", err)
	}
}
