// Package kubetest starts a real etcd and a real kube-apiserver for tests, on loopback, with a cluster's own PKI and in
// a temporary directory. There are no controllers but those that a test starts, no scheduler and no nodes: what a test
// needs of them it writes through the API.
package kubetest

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/pki"
)

const (
	// EnvBinaries names the directory that holds kube-apiserver, etcd and kubectl.
	EnvBinaries = "KAAS_KUBE_BINARIES"
	// EnvRequire turns the skip for want of the programs into a failure.
	EnvRequire = "KAAS_REQUIRE_REAL"

	startLimit = 3 * time.Minute // two busy processors take a while
	life       = time.Hour       // of the certificates
)

// Server is an API server that runs until its test ends.
type Server struct {
	URL     string // https://127.0.0.1:port
	Data    string // etcd's directory, for a look at what is really stored
	Kubectl string // the program, of the server's release
	PKI     pki.ClusterPKI

	tb        testing.TB
	apiserver *program
	etcd      *program
	again     func() // starts the API server as it was started
}

// Start starts an API server that uses p for everything: its own certificate, its clients, etcd, service account tokens
// and encryption at rest. It returns when the server is ready. Without the programs the test is skipped with the
// reason, or fails where EnvRequire is set.
func Start(tb testing.TB, p pki.ClusterPKI) *Server {
	tb.Helper()
	return StartWith(tb, p)
}

// StartWith is Start with further flags of the API server.
func StartWith(tb testing.TB, p pki.ClusterPKI, flags ...string) *Server {
	tb.Helper()
	bin, err := find("kube-apiserver", "etcd", "kubectl")
	if err != nil {
		if os.Getenv(EnvRequire) != "" {
			tb.Fatalf("kubetest: %v", err)
		}
		tb.Skipf("kubetest: %v", err)
	}
	dir := tb.TempDir()
	s := &Server{PKI: p, Data: filepath.Join(dir, "etcd", "data"), Kubectl: bin["kubectl"], tb: tb}
	etcdURL := s.startEtcd(bin["etcd"], filepath.Join(dir, "etcd"))
	s.startAPIServer(bin["kube-apiserver"], filepath.Join(dir, "apiserver"), etcdURL, flags)
	return s
}

// Kubeconfig returns a kubeconfig for a user of the groups, with a certificate of the cluster's authority.
func (s *Server) Kubeconfig(user string, groups ...string) director.Secret {
	s.tb.Helper()
	cert, err := pki.ClientCert(s.PKI.CA, user, groups, life)
	s.must(err)
	k, err := pki.Kubeconfig("kubetest", s.URL, s.PKI.CA.Cert, cert)
	s.must(err)
	return k
}

// Admin returns a kubeconfig that may do everything.
func (s *Server) Admin() director.Secret {
	s.tb.Helper()
	return s.Kubeconfig("admin", "system:masters")
}

// StartControllers starts the named controllers of kube-controller-manager, such as daemonset-controller, until the
// test ends. It does not wait for them.
func (s *Server) StartControllers(names ...string) {
	s.tb.Helper()
	bin, err := find("kube-controller-manager")
	s.must(err)
	dir := s.tb.TempDir()
	s.write(dir, map[string]string{"kubeconfig": s.Admin().Reveal()})
	p := s.run(
		bin["kube-controller-manager"], "--kubeconfig="+filepath.Join(dir, "kubeconfig"),
		"--controllers="+strings.Join(names, ","), "--leader-elect=false", "--secure-port=0",
	)
	s.tb.Cleanup(func() {
		if s.tb.Failed() {
			s.tb.Logf("kube-controller-manager, %s", p.tail())
		}
	})
}

// StopEtcd ends etcd, as when a master's disk dies. The API server runs on and is not ready any more.
func (s *Server) StopEtcd() {
	s.tb.Helper()
	s.etcd.stop()
}

// Stop ends the API server before the test does.
func (s *Server) Stop() {
	s.tb.Helper()
	s.apiserver.stop()
}

// Restart starts the API server again at the same address, on the same etcd. It returns when the server is ready.
func (s *Server) Restart() {
	s.tb.Helper()
	s.apiserver.stop()
	s.again()
}

func (s *Server) startEtcd(bin, dir string) string {
	s.tb.Helper()
	loopback := []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	server, err := pki.ServerCert(s.PKI.EtcdCA, []string{"localhost"}, loopback, life)
	s.must(err)
	s.write(dir, map[string]string{
		"ca.crt": s.PKI.EtcdCA.Cert, "server.crt": server.Cert, "server.key": server.Key.Reveal(),
	})
	ports := s.ports(2)
	url := fmt.Sprintf("https://127.0.0.1:%d", ports[0])
	peer := fmt.Sprintf("http://127.0.0.1:%d", ports[1])
	s.etcd = s.run(bin,
		"--name=kubetest", "--data-dir="+s.Data, "--unsafe-no-fsync=true", "--log-level=warn",
		"--listen-client-urls="+url, "--advertise-client-urls="+url,
		"--listen-peer-urls="+peer, "--initial-advertise-peer-urls="+peer, "--initial-cluster=kubetest="+peer,
		"--cert-file="+filepath.Join(dir, "server.crt"), "--key-file="+filepath.Join(dir, "server.key"),
		"--client-cert-auth=true", "--trusted-ca-file="+filepath.Join(dir, "ca.crt"))
	return url
}

func (s *Server) startAPIServer(bin, dir, etcdURL string, flags []string) {
	s.tb.Helper()
	loopback := []netip.Addr{netip.MustParseAddr("127.0.0.1")}
	server, err := pki.ServerCert(s.PKI.CA, []string{"kubernetes", "localhost"}, loopback, life)
	s.must(err)
	etcdClient, err := pki.ClientCert(s.PKI.EtcdCA, "kube-apiserver-etcd-client", nil, life)
	s.must(err)
	s.write(dir, map[string]string{
		"ca.crt": s.PKI.CA.Cert, "front-proxy-ca.crt": s.PKI.FrontProxyCA.Cert,
		"server.crt": server.Cert, "server.key": server.Key.Reveal(),
		"etcd-ca.crt": s.PKI.EtcdCA.Cert, "etcd.crt": etcdClient.Cert, "etcd.key": etcdClient.Key.Reveal(),
		"sa.key": s.PKI.ServiceAccountKey.Reveal(), "sa.pub": s.PKI.ServiceAccountPublic,
		"encryption.yaml": "apiVersion: apiserver.config.k8s.io/v1\nkind: EncryptionConfiguration\nresources:\n" +
			"- resources: [secrets]\n  providers:\n  - secretbox:\n      keys:\n      - name: key1\n        secret: " +
			s.PKI.EncryptionKey.Reveal() + "\n  - identity: {}\n",
	})
	file := func(name string) string { return filepath.Join(dir, name) }
	port := s.ports(1)[0]
	s.URL = fmt.Sprintf("https://127.0.0.1:%d", port)
	args := append([]string{
		"--etcd-servers=" +
			etcdURL, "--etcd-cafile=" + file("etcd-ca.crt"), "--etcd-certfile=" + file("etcd.crt"),
		"--etcd-keyfile=" + file("etcd.key"),
		"--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--secure-port=" +
			strconv.Itoa(port), "--cert-dir=" + dir,
		"--tls-cert-file=" + file("server.crt"), "--tls-private-key-file=" + file("server.key"),
		"--client-ca-file=" + file("ca.crt"), "--requestheader-client-ca-file=" + file("front-proxy-ca.crt"),
		"--service-account-issuer=https://kubernetes.default.svc", "--service-account-key-file=" + file("sa.pub"),
		"--service-account-signing-key-file=" + file("sa.key"),
		"--encryption-provider-config=" + file("encryption.yaml"),
		"--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=Node,RBAC",
		"--disable-admission-plugins=ServiceAccount", // the controller that makes the accounts does not run
		"--endpoint-reconciler-type=none",
	}, flags...)
	s.again = func() {
		s.tb.Helper()
		s.apiserver = s.run(bin, args...)
		s.waitReady()
	}
	s.again()
}

func (s *Server) waitReady() {
	s.tb.Helper()
	ctx, cancel := context.WithTimeout(s.tb.Context(), startLimit)
	defer cancel()
	tr := &http.Transport{TLSClientConfig: s.clientTLS()}
	defer tr.CloseIdleConnections()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		for _, p := range []*program{s.etcd, s.apiserver} {
			if p.ended() {
				s.tb.Fatalf("kubetest: %s ended: %s", p.name, p.tail())
			}
		}
		if ready(ctx, tr, s.URL) {
			return
		}
		select {
		case <-ctx.Done():
			s.tb.Fatalf("kubetest: not ready after %s: %s", startLimit, s.apiserver.tail())
		case <-tick.C:
		}
	}
}

func ready(ctx context.Context, rt http.RoundTripper, url string) bool {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url+"/readyz", nil)
	if err != nil {
		return false
	}
	resp, err := rt.RoundTrip(req)
	if err != nil {
		return false
	}
	_ = resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func (s *Server) write(dir string, files map[string]string) {
	s.tb.Helper()
	s.must(os.MkdirAll(dir, 0o700))
	for name, text := range files {
		s.must(os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
}

// ports returns ports that were free a moment ago.
func (s *Server) ports(n int) []int {
	s.tb.Helper()
	var out []int
	for range n {
		ln, err := (&net.ListenConfig{}).Listen(s.tb.Context(), "tcp", "127.0.0.1:0")
		s.must(err)
		defer func() { _ = ln.Close() }()
		out = append(out, ln.Addr().(*net.TCPAddr).Port)
	}
	return out
}

func (s *Server) must(err error) {
	s.tb.Helper()
	if err != nil {
		s.tb.Fatalf("kubetest: %v", err)
	}
}

// program is a process that ends with its test.
type program struct {
	name string
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

func (s *Server) run(bin string, args ...string) *program {
	s.tb.Helper()
	p := &program{name: filepath.Base(bin), log: filepath.Join(s.tb.TempDir(), "log"), done: make(chan struct{})}
	out, err := os.Create(p.log)
	s.must(err)
	defer func() { _ = out.Close() }()
	p.cmd = exec.CommandContext(context.WithoutCancel(s.tb.Context()), bin, args...)
	p.cmd.Stdout, p.cmd.Stderr = out, out
	p.cmd.Env = []string{"PATH=/usr/bin:/bin"} // no proxy, no settings of etcd
	// A test binary that is killed runs no clean-up; the kernel does it then.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	s.must(p.cmd.Start())
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
	}()
	s.tb.Cleanup(p.stop)
	return p
}

// stop kills at once: nothing of what these write is wanted.
func (p *program) stop() {
	_ = p.cmd.Process.Kill()
	<-p.done
}

func (p *program) ended() bool {
	select {
	case <-p.done:
		return true
	default:
		return false
	}
}

func (p *program) tail() string {
	b, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	lines := bytes.Split(bytes.TrimSpace(b), []byte("\n"))
	return "its last words:\n" + string(bytes.Join(lines[max(0, len(lines)-15):], []byte("\n")))
}

// find returns the paths of programs: in the directory that EnvBinaries names, or among what the build of the release
// keeps in the cache, the newest first.
func find(names ...string) (map[string]string, error) {
	found := map[string]string{}
	for _, name := range names {
		var candidates []string
		if dir := os.Getenv(EnvBinaries); dir != "" {
			candidates = []string{filepath.Join(dir, name)}
		} else {
			cache, err := os.UserCacheDir()
			if err != nil {
				return nil, err
			}
			candidates, err = filepath.Glob(filepath.Join(cache, "director", "release", "parts", "*", name))
			if err != nil {
				return nil, err
			}
		}
		candidates = slices.DeleteFunc(candidates, func(p string) bool { return changed(p).IsZero() })
		if len(candidates) == 0 {
			return nil, fmt.Errorf(
				"no %s: build a release (images/release/build.sh), or name the directory that has it in %s", name,
				EnvBinaries,
			)
		}
		found[name] = slices.MaxFunc(candidates, func(a, b string) int { return changed(a).Compare(changed(b)) })
	}
	return found, nil
}

func changed(path string) time.Time {
	info, err := os.Stat(path)
	if err != nil || !info.Mode().IsRegular() {
		return time.Time{}
	}
	return info.ModTime()
}
