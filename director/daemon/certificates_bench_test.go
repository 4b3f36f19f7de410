package daemon

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/netip"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/crypto/ssh"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/certificates"
	"github.com/director-kaas/kaas/director/hypervisor/cloudinit"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
)

const (
	scanClusters = 100
	scanNodes    = 10 // of each, three of them masters
	scanMasters  = 3
)

// scanned is a fleet of pretended nodes, each with an address of its own on loopback. What answers there is real: TLS
// with certificates of the node, SSH at port 22 with a log-in by certificate, and no API server. The command that reads
// a node's files is answered with what a node with kubeadm would print; it is not run.
type scanned struct {
	p        pki.ClusterPKI // one for all clusters: making a hundred takes longer than the scan
	host     ssh.Signer
	machines []director.Machine
}

// scannedStore has the machines of the fleet, which no plan has made.
type scannedStore struct {
	certificateStore
	machines []director.Machine
}

func (s scannedStore) Machines(context.Context) ([]director.Machine, error) { return s.machines, nil }

// BenchmarkCertificateScan looks at the certificates of 1,000 nodes of 100 clusters as the director does every ten
// minutes, with its own log-ins, TLS, sealed keys and database. It binds port 22 of addresses on loopback, for which it
// has to run as root.
func BenchmarkCertificateScan(b *testing.B) {
	db, err := store.Open(b.Context(), filepath.Join(b.TempDir(), "director.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = db.Close() })
	box, err := seal.Open(filepath.Join(b.TempDir(), "key"), true)
	if err != nil {
		b.Fatal(err)
	}
	env := steps.Env{
		Installation: steps.Installation{Director: db.DirectorID(), Now: time.Now},
		Clusters:     steps.Clusters{Keys: steps.Keys{Secrets: db, Sealer: box}},
	}
	fleet := startScanned(b, env)
	d := &Daemon{log: slog.New(slog.DiscardHandler)}
	i := d.inventoryOf(db, env, nil, nil)
	i.Store = scannedStore{certificateStore{db}, fleet.machines}
	i.Own = func(context.Context) ([]certificates.Own, error) { return nil, nil }
	var took time.Duration
	for b.Loop() {
		began := time.Now()
		if err := i.Look(b.Context(), ""); err != nil {
			b.Fatal(err)
		}
		took = max(took, time.Since(began))
	}
	found, _, err := i.List(b.Context(), director.CertificateQuery{}, director.Page{})
	if err != nil {
		b.Fatal(err)
	}
	seen := map[director.CertificateSource]map[string]bool{}
	for _, c := range found {
		if seen[c.Source] == nil {
			seen[c.Source] = map[string]bool{}
		}
		seen[c.Source][c.ClusterUID+" "+c.Node] = true
	}
	const all = scanClusters * scanNodes
	if n, m := len(seen[director.CertificateFile]), len(seen[director.CertificateTLS]); n != all || m != all {
		b.Fatalf("files of %d nodes and servers of %d were seen, of %d", n, m, all)
	}
	b.ReportMetric(took.Seconds(), "s-longest")
	b.ReportMetric(float64(len(found)), "certificates")
}

func startScanned(b *testing.B, env steps.Env) *scanned {
	b.Helper()
	p, err := pki.NewCluster("scan")
	if err != nil {
		b.Fatal(err)
	}
	key, err := cloudinit.NewHostKey()
	if err != nil {
		b.Fatal(err)
	}
	f := &scanned{p: p}
	if f.host, err = ssh.ParsePrivateKey([]byte(key.Private.Reveal())); err != nil {
		b.Fatal(err)
	}
	keep := func(owner, name string, plain string) {
		sealed, err := env.Sealer.Seal(owner, name, []byte(plain))
		if err == nil {
			err = env.Secrets.SetSecret(b.Context(), owner, name, sealed)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
	public := strings.TrimSpace(string(ssh.MarshalAuthorizedKey(f.host.PublicKey())))
	for c := range scanClusters {
		uid := fmt.Sprintf("scan%03d", c)
		sealed, err := p.Seal(env.Sealer, uid, steps.SecretPKI)
		if err == nil {
			err = env.Secrets.SetSecret(b.Context(), uid, steps.SecretPKI, sealed)
		}
		if err != nil {
			b.Fatal(err)
		}
		for n := range scanNodes {
			m := director.Machine{
				ID: fmt.Sprintf("%s-%d", uid, n), ClusterUID: uid, Cluster: uid, Name: fmt.Sprintf("%s-n%d", uid, n),
				Role: director.RoleWorker, Kubernetes: "v1.37.1", Address: fmt.Sprintf("127.66.%d.%d", c, n+1),
			}
			if n < scanMasters {
				m.Role = director.RoleMaster
			}
			keep(m.ID, steps.SecretHostKey, fmt.Sprintf(`{"public": %q}`, public))
			keep(m.ID, steps.SecretTrust, fmt.Sprintf(`{"cluster": %q}`, uid))
			f.serve(b, m)
			f.machines = append(f.machines, m)
		}
	}
	return f
}

// serve answers as the machine until the benchmark ends.
func (f *scanned) serve(b *testing.B, m director.Machine) {
	b.Helper()
	server := func(ca pki.Pair) tls.Certificate {
		pair, err := pki.ServerCert(ca, []string{m.Name}, []netip.Addr{netip.MustParseAddr(m.Address)}, time.Hour)
		if err != nil {
			b.Fatal(err)
		}
		cert, err := tls.X509KeyPair([]byte(pair.Cert), []byte(pair.Key.Reveal()))
		if err != nil {
			b.Fatal(err)
		}
		return cert
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM([]byte(f.p.EtcdCA.Cert))
	shake := func(c *tls.Config) func(net.Conn) {
		return func(conn net.Conn) {
			_, _ = io.Copy(io.Discard, tls.Server(conn, c)) // until the director closes it
		}
	}
	f.listen(b, m, "10250", shake(&tls.Config{Certificates: []tls.Certificate{server(f.p.CA)}}))
	if m.Role == director.RoleMaster {
		f.listen(b, m, "2379", shake(&tls.Config{
			Certificates: []tls.Certificate{server(f.p.EtcdCA)}, ClientAuth: tls.RequireAndVerifyClientCert,
			ClientCAs: roots,
		}))
	}
	config := &ssh.ServerConfig{PublicKeyCallback: func(_ ssh.ConnMetadata, k ssh.PublicKey) (*ssh.Permissions, error) {
		if _, ok := k.(*ssh.Certificate); !ok {
			return nil, fmt.Errorf("%s is no certificate", k.Type())
		}
		return nil, nil
	}}
	config.AddHostKey(f.host)
	printed := f.printed(b, m)
	f.listen(b, m, "22", func(conn net.Conn) { f.shell(conn, config, printed) })
}

// listen hands each connection to a port of the machine to answer, and closes it behind.
func (*scanned) listen(b *testing.B, m director.Machine, port string, answer func(net.Conn)) {
	b.Helper()
	l, err := (&net.ListenConfig{}).Listen(b.Context(), "tcp", net.JoinHostPort(m.Address, port))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer func() { _ = conn.Close() }()
				answer(conn)
			}()
		}
	}()
}

// shell answers every command of a connection with the same.
func (*scanned) shell(conn net.Conn, config *ssh.ServerConfig, printed []byte) {
	server, channels, requests, err := ssh.NewServerConn(conn, config)
	if err != nil {
		return
	}
	defer func() { _ = server.Close() }()
	go ssh.DiscardRequests(requests)
	for c := range channels {
		channel, asked, err := c.Accept()
		if err != nil {
			return
		}
		for r := range asked {
			_ = r.Reply(r.Type == "exec", nil)
			if r.Type == "exec" {
				_, _ = channel.Write(printed)
				_, _ = channel.SendRequest("exit-status", false, []byte{0, 0, 0, 0})
				_ = channel.Close()
			}
		}
	}
}

// printed is what the files of a machine are answered with: what kubeadm and the kubelet leave.
func (f *scanned) printed(b *testing.B, m director.Machine) []byte {
	b.Helper()
	var out bytes.Buffer
	fmt.Fprintf(&out, "### clock %d\n", time.Now().Unix())
	write := func(file, text string) { fmt.Fprintf(&out, "### %s\n%s", file, text) }
	issue := func(ca pki.Pair, file, name string) {
		pair, err := pki.ClientCert(ca, name, nil, 24*time.Hour)
		if err != nil {
			b.Fatal(err)
		}
		write(file, pair.Cert)
	}
	const dir = "/etc/kubernetes/"
	write(dir+"pki/ca.crt", f.p.CA.Cert)
	issue(f.p.CA, "/var/lib/kubelet/pki/kubelet-client-current.pem", "system:node:"+m.Name)
	issue(f.p.CA, "/var/lib/kubelet/pki/kubelet-server-current.pem", "system:node:"+m.Name)
	issue(f.p.CA, dir+"kubelet.conf", "system:node:"+m.Name)
	if m.Role != director.RoleMaster {
		return out.Bytes()
	}
	write(dir+"pki/front-proxy-ca.crt", f.p.FrontProxyCA.Cert)
	write(dir+"pki/etcd/ca.crt", f.p.EtcdCA.Cert)
	issue(f.p.FrontProxyCA, dir+"pki/front-proxy-client.crt", "front-proxy-client")
	for _, name := range []string{"server", "peer", "healthcheck-client"} {
		issue(f.p.EtcdCA, dir+"pki/etcd/"+name+".crt", name)
	}
	issue(f.p.EtcdCA, dir+"pki/apiserver-etcd-client.crt", "kube-apiserver-etcd-client")
	for _, name := range []string{"apiserver", "apiserver-kubelet-client"} {
		issue(f.p.CA, dir+"pki/"+name+".crt", name)
	}
	for _, name := range []string{"admin", "super-admin", "controller-manager", "scheduler"} {
		issue(f.p.CA, dir+name+".conf", name)
	}
	return out.Bytes()
}
