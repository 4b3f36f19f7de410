// Package consultest starts a real Consul for tests: one server over TLS whose ACLs deny by default.
package consultest

import (
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/consul/api"
)

const (
	// Datacenter is that of the server.
	Datacenter = "dc1"
	// Domain is the one that the server answers for.
	Domain = "consul"
	// Name is in the server's certificate.
	Name = "server.dc1.consul"

	patience = time.Minute
)

// Server is a running Consul.
type Server struct {
	URL        string // https://127.0.0.1:PORT
	CA         string // PEM
	Management string // a token that may do everything

	binary, dir string
	cmd         *exec.Cmd
	said        *bytes.Buffer
}

// Start starts a server with nothing in it, and ends it with the test. Without the binary the test is skipped, or fails
// if KAAS_REQUIRE_REAL is set: test/consul/build.sh builds it.
func Start(t *testing.T) *Server {
	t.Helper()
	_, here, _, _ := runtime.Caller(0)
	build := filepath.Join(filepath.Dir(here), "../../../test/consul/build.sh")
	out, err := exec.CommandContext(t.Context(), build, "--cached").Output()
	if err != nil {
		if os.Getenv("KAAS_REQUIRE_REAL") == "" {
			t.Skip("Consul is not built: test/consul/build.sh")
		}
		t.Fatalf("Consul is not built: test/consul/build.sh: %v", err)
	}
	s := &Server{binary: strings.TrimSpace(string(out)), dir: t.TempDir(), Management: uuid.NewString()}
	s.certificates(t)
	s.configure(t)
	t.Cleanup(func() {
		s.Stop()
		if t.Failed() {
			t.Logf("the end of what Consul said:\n%s", s.said.Bytes()[max(0, s.said.Len()-4000):])
		}
	})
	s.Run(t)
	return s
}

// Run starts the server again after Stop, and waits until it leads.
func (s *Server) Run(t *testing.T) {
	t.Helper()
	s.said = &bytes.Buffer{}
	s.cmd = exec.CommandContext(
		context.WithoutCancel(t.Context()), s.binary, "agent", "-config-file", filepath.Join(s.dir, "config.json"),
	)
	s.cmd.Env, s.cmd.Stdout, s.cmd.Stderr = []string{"HOME=" + s.dir}, s.said, s.said
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	c := s.Client(t, s.Management)
	for {
		// The token is there as soon as the server that leads has set up the ACLs.
		_, _, err := c.ACL().TokenReadSelf((&api.QueryOptions{}).WithContext(ctx))
		if err == nil {
			return
		}
		select {
		case <-ctx.Done():
			t.Fatalf("Consul does not start: %v\n%s", err, s.said.String())
		case <-tick.C:
		}
	}
}

// Stop ends the server. Its data stay.
func (s *Server) Stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
	s.cmd = nil
}

// Wipe removes the data of a server that was stopped.
func (s *Server) Wipe(t *testing.T) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(s.dir, "data")); err != nil {
		t.Fatal(err)
	}
}

// Client returns a client with the token.
func (s *Server) Client(t *testing.T, token string) *api.Client {
	t.Helper()
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(s.CA))
	c, err := api.NewClient(&api.Config{
		Address: strings.TrimPrefix(s.URL, "https://"), Scheme: "https", Token: token,
		HttpClient: &http.Client{Transport: &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: Name},
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// Token makes a token with the rules, and returns it with how its rules are changed.
func (s *Server) Token(t *testing.T, rules string) (token string, change func(rules string)) {
	t.Helper()
	acl := s.Client(t, s.Management).ACL()
	p, _, err := acl.PolicyCreate(&api.ACLPolicy{Name: "p-" + uuid.NewString(), Rules: rules}, nil)
	if err != nil {
		t.Fatal(err)
	}
	made, _, err := acl.TokenCreate(&api.ACLToken{Policies: []*api.ACLTokenPolicyLink{{ID: p.ID}}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return made.SecretID, func(rules string) {
		t.Helper()
		p.Rules = rules
		if _, _, err := acl.PolicyUpdate(p, nil); err != nil {
			t.Fatal(err)
		}
	}
}

func (s *Server) configure(t *testing.T) {
	t.Helper()
	ports := freePorts(t, 3)
	s.URL = "https://127.0.0.1:" + strconv.Itoa(ports[0])
	text, err := json.Marshal(map[string]any{
		"datacenter": Datacenter, "node_name": "server1", "server": true, "bootstrap": true,
		"data_dir": filepath.Join(s.dir, "data"), "bind_addr": "127.0.0.1", "client_addr": "127.0.0.1",
		"ports": map[string]int{
			"http": -1, "https": ports[0], "server": ports[1], "serf_lan": ports[2], "serf_wan": -1, "dns": -1,
			"grpc": -1, "grpc_tls": -1,
		},
		"tls": map[string]any{"defaults": map[string]any{
			"ca_file": filepath.Join(s.dir, "ca.pem"), "cert_file": filepath.Join(s.dir, "cert.pem"),
			"key_file": filepath.Join(s.dir, "key.pem"), "verify_outgoing": true,
		}},
		"acl": map[string]any{
			"enabled": true, "default_policy": "deny",
			"tokens": map[string]string{"initial_management": s.Management, "agent": s.Management},
		},
		"limits":      map[string]int{"http_max_conns_per_client": 1000},
		"performance": map[string]int{"raft_multiplier": 1}, "connect": map[string]bool{"enabled": false},
		"disable_update_check": true, "log_level": "warn",
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(s.dir, "config.json"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer func() { _ = l.Close() }()
		ports = append(ports, l.Addr().(*net.TCPAddr).Port)
	}
	return ports
}

// certificates makes an authority and a certificate for the server.
func (s *Server) certificates(t *testing.T) {
	t.Helper()
	caKey, err1 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	key, err2 := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err := errors.Join(err1, err2); err != nil {
		t.Fatal(err)
	}
	ca := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "consul test"}, IsCA: true,
		BasicConstraintsValid: true, KeyUsage: x509.KeyUsageCertSign, NotBefore: time.Now().Add(-time.Hour),
		NotAfter: time.Now().AddDate(1, 0, 0),
	}
	leaf := &x509.Certificate{
		SerialNumber: big.NewInt(2), Subject: pkix.Name{CommonName: Name}, DNSNames: []string{Name},
		NotBefore: ca.NotBefore, NotAfter: ca.NotAfter, KeyUsage: x509.KeyUsageDigitalSignature,
		ExtKeyUsage: []x509.ExtKeyUsage{x509.ExtKeyUsageServerAuth, x509.ExtKeyUsageClientAuth},
	}
	caText, err1 := x509.CreateCertificate(rand.Reader, ca, ca, &caKey.PublicKey, caKey)
	text, err2 := x509.CreateCertificate(rand.Reader, leaf, ca, &key.PublicKey, caKey)
	keyText, err3 := x509.MarshalPKCS8PrivateKey(key)
	if err := errors.Join(err1, err2, err3); err != nil {
		t.Fatal(err)
	}
	s.CA = string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: caText}))
	for name, block := range map[string]*pem.Block{
		"ca.pem": {Type: "CERTIFICATE", Bytes: caText}, "cert.pem": {Type: "CERTIFICATE", Bytes: text},
		"key.pem": {Type: "PRIVATE KEY", Bytes: keyText},
	} {
		if err := os.WriteFile(filepath.Join(s.dir, name), pem.EncodeToMemory(block), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}
