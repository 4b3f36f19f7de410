// Package s3test starts a real S3 server for tests: over TLS, with one bucket in a directory.
package s3test

import (
	"bytes"
	"context"
	"crypto/tls"
	"errors"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/test/loopback"
	"github.com/director-kaas/kaas/test/tree"
)

// EnvRequire makes tests fail, instead of being skipped, where the server cannot be built.
const EnvRequire = "KAAS_REQUIRE_REAL"

// Server is how one gets into the server.
type Server struct {
	URL, Bucket, Region string
	CA                  string // in PEM
	Key                 string // id of the access key
	Secret              director.Secret
	Dir                 string // has the objects of the bucket as files

	binary string
	start  func(context.Context) *exec.Cmd
	cmd    *exec.Cmd
	said   bytes.Buffer
}

// Start starts the server until the test ends, and returns when it listens.
func Start(tb testing.TB) *Server {
	tb.Helper()
	out, err := exec.CommandContext(tb.Context(), tree.Path(tb, "test/s3/build.sh")).Output()
	if err != nil {
		if os.Getenv(EnvRequire) == "" {
			tb.Skipf("the S3 server cannot be built: %v", err)
		}
		tb.Fatal(err)
	}
	dir := tb.TempDir()
	ca, pair, err := certificate()
	if err == nil {
		err = errors.Join(
			os.WriteFile(filepath.Join(dir, "tls.crt"), []byte(pair.Cert), 0o600),
			os.WriteFile(filepath.Join(dir, "tls.key"), []byte(pair.Key.Reveal()), 0o600),
			os.MkdirAll(filepath.Join(dir, "data/clusters"), 0o700),
		)
	}
	if err != nil {
		tb.Fatal(err)
	}
	address := loopback.FreeFor(tb).String()
	s := &Server{
		URL: "https://" + address, Bucket: "clusters", Region: "us-east-1", CA: ca, Key: "director",
		Secret: "a-key-of-the-test", Dir: filepath.Join(dir, "data/clusters"), binary: strings.TrimSpace(string(out)),
	}
	s.start = func(ctx context.Context) *exec.Cmd {
		cmd := exec.CommandContext(ctx, s.binary, "--port", address, "--cert",
			filepath.Join(dir, "tls.crt"), "--key", filepath.Join(dir, "tls.key"), "posix", filepath.Join(dir, "data"))
		cmd.Env = append(os.Environ(), "ROOT_ACCESS_KEY=director", "ROOT_SECRET_KEY=a-key-of-the-test")
		cmd.Stdout, cmd.Stderr = &s.said, &s.said
		return cmd
	}
	tb.Cleanup(func() {
		s.Kill()
		if tb.Failed() {
			tb.Logf("the server said:\n%s", s.said.String())
		}
	})
	s.Again(tb)
	return s
}

// Kill ends the server at once. What it has stored stays.
func (s *Server) Kill() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
	s.cmd = nil
}

// Again starts the server after Kill, at the same address and with what it has stored, and returns when it listens.
func (s *Server) Again(tb testing.TB) {
	tb.Helper()
	// It serves until the test's other clean-ups are done.
	s.cmd = s.start(context.WithoutCancel(tb.Context()))
	if err := s.cmd.Start(); err != nil {
		tb.Fatal(err)
	}
	listens(tb, strings.TrimPrefix(s.URL, "https://"))
}

// certificate makes an authority, and a certificate of it for loopback.
func certificate() (ca string, pair pki.Pair, err error) {
	authority, err := pki.NewCA("backups")
	if err == nil {
		pair, err = pki.ServerCert(authority, nil, []netip.Addr{netip.MustParseAddr("127.0.0.1")}, time.Hour)
	}
	return authority.Cert, pair, err
}

// listens returns when a TLS server answers at the address.
func listens(tb testing.TB, address string) {
	tb.Helper()
	deadline := time.NewTimer(time.Minute)
	defer deadline.Stop()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	d := tls.Dialer{Config: &tls.Config{InsecureSkipVerify: true}} //nolint:gosec // nothing is sent
	for {
		conn, err := d.DialContext(tb.Context(), "tcp", address)
		if err == nil {
			_ = conn.Close()
			return
		}
		select {
		case <-deadline.C:
			tb.Fatal(err)
		case <-tick.C:
		}
	}
}
