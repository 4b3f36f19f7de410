// Package consultest starts a real Consul for tests: one server or three, over TLS, whose ACLs deny by default.
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
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"errors"
	"math/big"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/consul/api"

	"github.com/director-kaas/kaas/test/tree"
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
	URL        string // https://ADDRESS:PORT
	CA         string // PEM
	Management string // a token that may do everything
	Gossip     string // key of the datacenter
	Join       string // where agents join it
	DNS        string // where it answers names
	Binary     string // path of the program

	place
	node string // its name, and that of its directory below dir
	dir  string // what all servers of the datacenter share
	cmd  *exec.Cmd
	said *bytes.Buffer
}

// place is where a server runs.
type place struct {
	address string
	ports   []int    // of HTTPS, servers, gossip, DNS
	enter   []string // the command that runs a program there; empty for the namespaces of the test
	port    string   // of the switch, for a server with a network of its own
}

// Start starts a server with nothing in it on loopback, and ends it with the test. Without the binary the test is
// skipped, or fails if KAAS_REQUIRE_REAL is set: test/consul/build.sh builds it.
func Start(t testing.TB) *Server {
	t.Helper()
	return StartAt(t, "127.0.0.1")
}

// StartAt is Start at another address of the machine.
func StartAt(t testing.TB, address string) *Server {
	t.Helper()
	return start(t, together(t, address, 1))[0]
}

// StartThree is Start for three servers that elect a leader.
func StartThree(t testing.TB) []*Server {
	t.Helper()
	return start(t, together(t, "127.0.0.1", 3))
}

func together(t testing.TB, address string, count int) []place {
	t.Helper()
	places, ports := make([]place, count), FreePorts(t, 4*count)
	for i := range places {
		places[i] = place{address: address, ports: ports[4*i : 4*i+4]}
	}
	return places
}

func start(t testing.TB, places []place) []*Server {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), tree.Path(t, "test/consul/build.sh"), "--cached").Output()
	if err != nil {
		if os.Getenv("KAAS_REQUIRE_REAL") == "" {
			t.Skip("Consul is not built: test/consul/build.sh")
		}
		t.Fatalf("Consul is not built: test/consul/build.sh: %v", err)
	}
	key := make([]byte, 32)
	if _, err := rand.Read(key); err != nil {
		t.Fatal(err)
	}
	first := Server{
		Binary: strings.TrimSpace(string(out)), dir: t.TempDir(), Management: uuid.NewString(),
		Gossip: base64.StdEncoding.EncodeToString(key),
	}
	first.certificates(t)
	servers := make([]*Server, len(places))
	for i, place := range places {
		s := first
		s.node, s.place = "server"+strconv.Itoa(i+1), place
		s.URL, s.Join, s.DNS = "https://"+s.at(s.ports[0]), s.at(s.ports[2]), s.at(s.ports[3])
		servers[i] = &s
	}
	for _, s := range servers {
		s.configure(t, servers)
		t.Cleanup(func() {
			s.Stop()
			if t.Failed() {
				t.Logf("the end of what %s said:\n%s", s.node, s.said.Bytes()[max(0, s.said.Len()-4000):])
			}
		})
		s.Begin(t)
	}
	for _, s := range servers {
		s.await(t)
	}
	return servers
}

// Node is the name of the server in its datacenter.
func (s *Server) Node() string { return s.node }

func (s *Server) at(port int) string { return net.JoinHostPort(s.address, strconv.Itoa(port)) }

// Run starts the server again after Stop, and waits until it answers for a leader.
func (s *Server) Run(t testing.TB) {
	t.Helper()
	s.Begin(t)
	s.await(t)
}

// Begin is Run without the wait.
func (s *Server) Begin(t testing.TB) {
	t.Helper()
	s.said = &bytes.Buffer{}
	args := append(slices.Clone(s.enter), s.Binary, "agent", "-config-file", filepath.Join(s.dir, s.node+".json"))
	s.cmd = exec.CommandContext(context.WithoutCancel(t.Context()), args[0], args[1:]...)
	s.cmd.Env, s.cmd.Stdout, s.cmd.Stderr = []string{"HOME=" + s.dir}, s.said, s.said
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
}

func (s *Server) await(t testing.TB) {
	t.Helper()
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

// Votes returns how many servers of the datacenter have a vote, and the name of the one that leads, both as the server
// that is asked knows them: another one may know a later state.
func Votes(c *api.Client) (votes int, leader string, err error) {
	raft, err := c.Operator().RaftGetConfiguration(&api.QueryOptions{AllowStale: true})
	if err != nil {
		return 0, "", err
	}
	for _, s := range raft.Servers {
		if s.Voter {
			votes++
		}
		if s.Leader {
			leader = s.Node
		}
	}
	return votes, leader, nil
}

// Stop ends the server. Its data stay.
func (s *Server) Stop() {
	if s.cmd != nil {
		_ = s.cmd.Process.Kill()
		_ = s.cmd.Wait()
	}
	s.cmd = nil
}

// Hang stops the server where it is: connections to it come about, and nothing answers. What it returns lets it go on.
func (s *Server) Hang(t testing.TB) (goOn func()) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGSTOP); err != nil {
		t.Fatal(err)
	}
	return func() { _ = s.cmd.Process.Signal(syscall.SIGCONT) }
}

// Wipe removes the data of a server that was stopped.
func (s *Server) Wipe(t testing.TB) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(s.dir, s.node)); err != nil {
		t.Fatal(err)
	}
}

// Agent starts an agent with files of configuration, and ends it with the test. What it returns sends the agent a
// signal, and waits until it has ended; after SIGHUP the agent runs on with what it reads again.
func (s *Server) Agent(t testing.TB, configs ...string) (end func(os.Signal)) {
	t.Helper()
	said := &bytes.Buffer{}
	args := []string{"agent"}
	for _, c := range configs {
		args = append(args, "-config-file", c)
	}
	cmd := exec.CommandContext(context.WithoutCancel(t.Context()), s.Binary, args...)
	cmd.Env, cmd.Stdout, cmd.Stderr = []string{"HOME=" + s.dir}, said, said
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	var once sync.Once
	end = func(signal os.Signal) {
		if signal == syscall.SIGHUP {
			_ = cmd.Process.Signal(signal)
			return
		}
		once.Do(func() {
			_ = cmd.Process.Signal(signal)
			_ = cmd.Wait()
		})
	}
	t.Cleanup(func() {
		end(os.Kill)
		if t.Failed() {
			t.Logf("the end of what the agent said:\n%s", said.Bytes()[max(0, said.Len()-4000):])
		}
	})
	return end
}

// Client returns a client with the token.
func (s *Server) Client(t testing.TB, token string) *api.Client {
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
func (s *Server) Token(t testing.TB, rules string) (token string, change func(rules string)) {
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

func (s *Server) configure(t testing.TB, all []*Server) {
	t.Helper()
	var others []string
	for _, o := range all {
		if o != s {
			others = append(others, o.Join)
		}
	}
	text, err := json.Marshal(map[string]any{
		"datacenter": Datacenter, "node_name": s.node, "server": true, "bootstrap_expect": len(all),
		"retry_join": others, "retry_interval": "1s",
		"data_dir": filepath.Join(s.dir, s.node), "encrypt": s.Gossip, "bind_addr": s.address, "client_addr": s.address,
		"ports": map[string]int{
			"http": -1, "https": s.ports[0], "server": s.ports[1], "serf_lan": s.ports[2], "serf_wan": -1,
			"dns": s.ports[3], "grpc": -1, "grpc_tls": -1,
		},
		"tls": map[string]any{"defaults": map[string]any{
			"ca_file": filepath.Join(s.dir, "ca.pem"), "cert_file": filepath.Join(s.dir, "cert.pem"),
			"key_file": filepath.Join(s.dir, "key.pem"), "verify_outgoing": true,
		}},
		"acl": map[string]any{
			"enabled": true, "default_policy": "deny",
			"tokens": map[string]string{
				"initial_management": s.Management, "agent": s.Management, "dns": s.Management,
			},
		},
		"limits":      map[string]int{"http_max_conns_per_client": 1000},
		"performance": map[string]int{"raft_multiplier": 1}, "connect": map[string]bool{"enabled": false},
		"disable_update_check": true, "log_level": "warn",
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(s.dir, s.node+".json"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// FreePorts returns ports of the loopback address that nothing listens at.
func FreePorts(t testing.TB, n int) []int {
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
func (s *Server) certificates(t testing.TB) {
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
