// Package syslogtest runs rsyslogd, as a log server with TLS, for tests.
package syslogtest

import (
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"math/big"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/director-kaas/kaas/test/loopback"
)

// Peer is the name that a client's certificate must have where the server wants one.
const Peer = "director.example.org"

// program is the server.
const program = "/usr/sbin/rsyslogd"

// Server is an rsyslogd on loopback. It ends with the test.
type Server struct {
	Address string // its certificate is for localhost
	IP      string // the same with the IP address
	CA      *CA

	conf, file string
	cmd        *exec.Cmd
}

const config = `global(
  defaultNetstreamDriver="gtls"
  defaultNetstreamDriverCAFile="@DIR@/ca.crt"
  defaultNetstreamDriverCertFile="@DIR@/server.crt"
  defaultNetstreamDriverKeyFile="@DIR@/server.key"
  maxMessageSize="16k"
)
module(load="imtcp" streamDriver.name="gtls" streamDriver.mode="1"
  @WHO@)
ruleset(name="director") {
  action(type="omfile" file="@LOG@" template="RSYSLOG_SyslogProtocol23Format" fileCreateMode="0600")
}
input(type="imtcp" @PORT@ ruleset="director")
`

// Config is the configuration of a server with certificates in dir, which listens as port says, such as `port="6514"`,
// and writes to the file. The manual shows one.
func Config(dir, who, port, file string) string {
	return strings.NewReplacer("@DIR@", dir, "@WHO@", who, "@PORT@", port, "@LOG@", file).Replace(config)
}

// How the server looks at clients.
const (
	Anyone = `streamDriver.authMode="anon"`
	Named  = `streamDriver.authMode="x509/name" permittedPeer=["` + Peer + `"]`
)

// Start starts a server that takes messages of Anyone, or of clients with a certificate that are Named.
func Start(tb testing.TB, who string) *Server {
	tb.Helper()
	const gtls = "rsyslog/lmnsd_gtls.so"
	found, _ := filepath.Glob("/usr/lib/*/" + gtls)
	if _, err := os.Stat(program); err != nil || len(found) == 0 {
		const missing = "rsyslogd is missing: apt-get install rsyslog rsyslog-gnutls"
		if os.Getenv("KAAS_REQUIRE_REAL") != "" {
			tb.Fatal(missing)
		}
		tb.Skip(missing)
	}
	free := loopback.FreeFor(tb)
	dir, port := tb.TempDir(), strconv.Itoa(int(free.Port()))
	s := &Server{
		Address: net.JoinHostPort("localhost", port), IP: free.String(), CA: NewCA(tb),
		conf: filepath.Join(dir, "rsyslog.conf"), file: filepath.Join(dir, "director.log"),
	}
	cert, key := s.CA.Issue(tb, "localhost", x509.ExtKeyUsageServerAuth)
	for name, text := range map[string]string{
		"ca.crt": string(s.CA.PEM), "server.crt": string(cert), "server.key": string(key),
		"rsyslog.conf": Config(dir, who, `address="127.0.0.1" port="`+port+`"`, s.file),
	} {
		must(tb, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	tb.Cleanup(func() { s.stop(syscall.SIGKILL) })
	s.Restart(tb)
	return s
}

// Stop has the server write what it has taken, and ends it.
func (s *Server) Stop() { s.stop(syscall.SIGTERM) }

func (s *Server) stop(how syscall.Signal) {
	if s.cmd != nil {
		_ = s.cmd.Process.Signal(how)
		_ = s.cmd.Wait() // ends by the signal
	}
	s.cmd = nil
}

// Restart starts the server again after Stop, at the same address. It returns when the server listens.
func (s *Server) Restart(tb testing.TB) {
	tb.Helper()
	s.cmd = exec.CommandContext(context.WithoutCancel(tb.Context()), program, "-n", "-iNONE", "-f", s.conf)
	s.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	s.cmd.Stdout, s.cmd.Stderr = tb.Output(), tb.Output()
	must(tb, s.cmd.Start())
	look := time.NewTicker(10 * time.Millisecond)
	defer look.Stop()
	for end := time.Now().Add(20 * time.Second); ; <-look.C {
		conn, err := (&net.Dialer{Timeout: time.Second}).DialContext(tb.Context(), "tcp", s.IP)
		if err == nil {
			_ = conn.Close()
			return
		}
		if time.Now().After(end) {
			tb.Fatalf("rsyslogd does not listen: %v", err)
		}
	}
}

// Lines returns what the server has written.
func (s *Server) Lines(tb testing.TB) []string {
	tb.Helper()
	text, err := os.ReadFile(s.file)
	if os.IsNotExist(err) {
		return nil
	}
	must(tb, err)
	out := strings.Split(string(text), "\n")
	return out[:len(out)-1] // the rest of a line is still to come
}

// TLS is how a client reaches the server without a certificate of its own.
func (s *Server) TLS() *tls.Config {
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(s.CA.PEM)
	return &tls.Config{MinVersion: tls.VersionTLS12, RootCAs: pool, ServerName: "localhost"}
}

// CA issues certificates.
type CA struct {
	PEM  []byte
	cert *x509.Certificate
	key  *ecdsa.PrivateKey
}

// NewCA returns a CA that lives for an hour.
func NewCA(tb testing.TB) *CA {
	tb.Helper()
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(tb, err)
	cert := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "Logs CA"},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
		IsCA: true, BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, cert, cert, key.Public(), key)
	must(tb, err)
	cert, err = x509.ParseCertificate(der)
	must(tb, err)
	return &CA{PEM: block("CERTIFICATE", der), cert: cert, key: key}
}

// Issue returns a certificate for the name, and its key, in PEM form.
func (c *CA) Issue(tb testing.TB, name string, use x509.ExtKeyUsage) (cert, key []byte) {
	tb.Helper()
	k, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(tb, err)
	der, err := x509.CreateCertificate(rand.Reader, &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: c.cert.NotBefore, NotAfter: c.cert.NotAfter,
		KeyUsage: x509.KeyUsageDigitalSignature, ExtKeyUsage: []x509.ExtKeyUsage{use},
	}, c.cert, k.Public(), c.key)
	must(tb, err)
	keyDER, err := x509.MarshalPKCS8PrivateKey(k)
	must(tb, err)
	return block("CERTIFICATE", der), block("PRIVATE KEY", keyDER)
}

func block(kind string, der []byte) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: kind, Bytes: der})
}

func must(tb testing.TB, err error) {
	tb.Helper()
	if err != nil {
		tb.Fatal(err)
	}
}
