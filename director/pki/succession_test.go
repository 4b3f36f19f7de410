package pki

import (
	"crypto/tls"
	"crypto/x509"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
)

// accepts reports whether a client that trusts these authorities alone takes the server for the director.
func accepts(t *testing.T, s *Server, trusted string) bool {
	t.Helper()
	ln, err := tls.Listen("tcp", "127.0.0.1:0", s.TLSConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = ln.Close() }()
	done := make(chan struct{})
	go func() {
		defer close(done)
		if c, err := ln.Accept(); err == nil {
			_ = c.(*tls.Conn).HandshakeContext(t.Context())
			_ = c.Close()
		}
	}()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(trusted))
	d := tls.Dialer{NetDialer: &net.Dialer{Timeout: 5 * time.Second}, Config: &tls.Config{
		RootCAs: roots, ServerName: "localhost", MinVersion: tls.VersionTLS12,
	}}
	c, err := d.DialContext(t.Context(), "tcp", ln.Addr().String())
	if err == nil {
		_ = c.Close()
	}
	<-done
	return err == nil
}

// opensslAccepts asks OpenSSL about the certificate as it lies in the directory.
func opensslAccepts(t *testing.T, dir, trusted string) bool {
	t.Helper()
	root := filepath.Join(t.TempDir(), "root.pem")
	if err := os.WriteFile(root, []byte(trusted), 0o600); err != nil {
		t.Fatal(err)
	}
	shown := filepath.Join(dir, fileServerCert)
	out, err := exec.CommandContext(
		t.Context(), "openssl", "verify", "-CAfile", root, "-untrusted", shown, shown,
	).CombinedOutput()
	t.Logf("%s", out)
	return err == nil
}

// stages opens the server again, as a start does, and wants it in the stage with one valid certificate.
func (s *Server) reopened(t *testing.T, want Stage) *Server {
	t.Helper()
	again, err := EnsureServer(s.dir, testNames, testIPs)
	if err != nil {
		t.Fatal(err)
	}
	if again.Stage() != want || again.CA() != s.CA() || again.Leaf().SerialNumber.Cmp(s.Leaf().SerialNumber) != 0 {
		t.Errorf("after a start it is in stage %s, want %s", again.Stage(), want)
	}
	return again
}

// change brings the change of the authority to the stage.
func (s *Server) change(to Stage) error {
	next, err := s.Next(to)
	if err != nil {
		return err
	}
	return s.Follow(next)
}

// Who trusts the former authority alone is served until it goes, and who trusts the next one from its use on.
func TestAuthorityIsChanged(t *testing.T) {
	t.Parallel()
	s, err := EnsureServer(t.TempDir(), testNames, testIPs)
	if err != nil {
		t.Fatal(err)
	}
	former := s.CA()
	if err := s.change(StageUse); director.KindOf(err) != director.KindConflict || director.HintOf(err) == "" {
		t.Errorf("use without trust: %v", err)
	}
	for range 2 {
		if err := s.change(StageTrust); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.change(StageNone); director.KindOf(err) != director.KindConflict {
		t.Errorf("drop before use: %v", err)
	}
	s = s.reopened(t, StageTrust)
	both := s.CA()
	next := strings.TrimPrefix(both, former)
	if !accepts(t, s, former) || accepts(t, s, next) || len(split(both)) != 2 {
		t.Error("the next authority signs before its use")
	}
	for range 2 {
		if err := s.change(StageUse); err != nil {
			t.Fatal(err)
		}
	}
	s = s.reopened(t, StageUse)
	if err := s.change(StageTrust); director.KindOf(err) != director.KindConflict {
		t.Errorf("a change in a change: %v", err)
	}
	for _, trusted := range []string{former, next, both} {
		if !accepts(t, s, trusted) || !opensslAccepts(t, s.dir, trusted) {
			t.Error("a client is refused while both are trusted")
		}
	}
	for range 2 {
		if err := s.change(StageNone); err != nil {
			t.Fatal(err)
		}
	}
	s = s.reopened(t, StageNone)
	if s.CA() != next || !accepts(t, s, next) || accepts(t, s, former) || opensslAccepts(t, s.dir, former) {
		t.Error("the former authority still leads to the director")
	}
	if left, err := os.ReadDir(s.dir); err != nil || len(left) != 4 {
		t.Errorf("the directory has %v (%v)", left, err)
	}
}

// The director is killed between any two files that a stage writes, and goes on.
func TestChangeOfAuthorityIsCutOff(t *testing.T) {
	t.Parallel()
	for name, tt := range map[string]struct {
		cut  func(t *testing.T, s *Server)
		want Stage
	}{
		"a key without a certificate": {func(t *testing.T, s *Server) {
			t.Helper()
			if err := os.WriteFile(filepath.Join(s.dir, fileNextKey), []byte("half"), 0o600); err != nil {
				t.Fatal(err)
			}
		}, StageNone},
		"the key is in its place, and nothing is signed": {func(t *testing.T, s *Server) {
			t.Helper()
			if err := s.change(StageTrust); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(filepath.Join(s.dir, fileNextKey), filepath.Join(s.dir, fileCAKey)); err != nil {
				t.Fatal(err)
			}
		}, StageUse},
		"the key of the next one is lost": {func(t *testing.T, s *Server) {
			t.Helper()
			if err := s.change(StageTrust); err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(filepath.Join(s.dir, fileNextKey)); err != nil {
				t.Fatal(err)
			}
		}, StageTrust},
		"the former one is out, and its chain is shown": {func(t *testing.T, s *Server) {
			t.Helper()
			if err := s.change(StageTrust); err != nil {
				t.Fatal(err)
			}
			if err := s.change(StageUse); err != nil {
				t.Fatal(err)
			}
			if err := s.write(fileCACert, s.ca.Cert); err != nil {
				t.Fatal(err)
			}
		}, StageNone},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			first, err := EnsureServer(t.TempDir(), testNames, testIPs)
			if err != nil {
				t.Fatal(err)
			}
			tt.cut(t, first)
			s, err := EnsureServer(first.dir, testNames, testIPs)
			if err != nil || s.Stage() != tt.want || !accepts(t, s, s.CA()) {
				t.Fatalf("it starts in stage %s, want %s: %v", s.Stage(), tt.want, err)
			}
			if tt.want == StageUse {
				if !accepts(t, s, s.other) || s.change(StageNone) != nil {
					t.Error("the change does not end")
				}
			}
			for _, to := range []Stage{StageTrust, StageUse, StageNone} {
				if err := s.change(to); err != nil {
					t.Fatal(err)
				}
			}
			if left, err := os.ReadDir(s.dir); err != nil || len(left) != 4 || !accepts(t, s, s.CA()) {
				t.Errorf("the directory has %v (%v)", left, err)
			}
		})
	}
}

// Directors with one authority take each stage from the one that makes it, also several stages at once, and also when
// they were killed between two files.
func TestDirectorsFollowASuccession(t *testing.T) {
	t.Parallel()
	leader, err := EnsureServer(t.TempDir(), testNames, testIPs)
	if err != nil {
		t.Fatal(err)
	}
	follower := func() *Server {
		t.Helper()
		dir := t.TempDir()
		for _, name := range []string{fileCACert, fileCAKey} {
			text, err := leader.read(name)
			if err == nil {
				err = os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		s, err := EnsureServer(dir, testNames, testIPs)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	former := leader.CA()
	each, late, killed := follower(), follower(), follower()
	for _, to := range []Stage{StageTrust, StageUse, StageNone} {
		if err := leader.change(to); err != nil {
			t.Fatal(err)
		}
		now, err := leader.Succession()
		if err != nil {
			t.Fatal(err)
		}
		if to == StageUse { // killed before it has the key
			both := killed.ca.Cert + leader.ca.Cert
			if err := killed.write(fileCACert, both); err != nil {
				t.Fatal(err)
			}
			if killed, err = EnsureServer(killed.dir, testNames, testIPs); err != nil || !accepts(t, killed, former) {
				t.Fatalf("it does not start: %v", err)
			}
		}
		following := []*Server{each}
		if to != StageTrust {
			following = append(following, killed)
		}
		if to == StageNone {
			following = append(following, late)
		}
		for _, s := range following {
			plain, err := now.Encode()
			if err != nil {
				t.Fatal(err)
			}
			read, err := DecodeSuccession(plain)
			if err == nil {
				err = s.Follow(read)
			}
			own, serr := s.reopened(t, to).Succession()
			if err != nil || serr != nil || own != now || own.Revision() != now.Revision() {
				t.Errorf("%s: a director does not follow: %v, %v", to, err, serr)
			}
			if !accepts(t, s, leader.CA()) || accepts(t, s, former) != (to != StageNone) {
				t.Errorf("%s: a director shows another certificate than the leader", to)
			}
		}
	}
	other, err := EnsureServer(t.TempDir(), testNames, testIPs)
	if err != nil {
		t.Fatal(err)
	}
	if err := late.Follow(Succession{CA: other.CA(), Key: late.ca.Key}); director.KindOf(err) != director.KindInvalid {
		t.Errorf("a key of another authority: %v", err)
	}
	late.reopened(t, StageNone)
}
