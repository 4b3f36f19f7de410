package certificates_test

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/certificates"
	"github.com/director-kaas/kaas/director/kube"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/store"
)

// held is a cluster with one secret for TLS.
type held struct{ pem string }

func (h held) HeldCertificates(context.Context) ([]kube.HeldCertificate, error) {
	return []kube.HeldCertificate{{Name: "tls-secret", Place: "Secret/shop/web", PEM: h.pem}}, nil
}

func (held) Close() {}

func noneOwn(context.Context) ([]certificates.Own, error) { return nil, nil }

// machines is a real store, with machines that no plan has made.
type machines struct {
	*store.Store
	list  []director.Machine
	ended map[string]time.Time
}

func (m machines) EndedPlans(context.Context, ...string) (map[string]time.Time, error) {
	return maps.Collect(maps.All(m.ended)), nil
}

func (m machines) Machines(context.Context) ([]director.Machine, error) { return m.list, nil }

func (m machines) Members(context.Context) (out []director.Member, err error) {
	for _, n := range m.list {
		if n.Kubernetes != "" {
			out = append(out, director.Member{
				ClusterUID: n.ClusterUID, Cluster: n.Cluster, Name: n.Name,
				Address: n.Address,
			})
		}
	}
	slices.SortFunc(out, func(a, b director.Member) int { return strings.Compare(a.Name, b.Name) })
	return out, nil
}

// nodeRoot writes what kubeadm and a kubelet leave on a master, below a directory.
func nodeRoot(t *testing.T, p pki.ClusterPKI) string {
	t.Helper()
	root := t.TempDir()
	write := func(path, text string) {
		path = filepath.Join(root, path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o700),
			os.WriteFile(path, []byte(text), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	issue := func(ca pki.Pair, name string, life time.Duration) pki.Pair {
		pair, err := pki.ClientCert(ca, name, nil, life)
		if err != nil {
			t.Fatal(err)
		}
		return pair
	}
	write("/etc/kubernetes/pki/ca.crt", p.CA.Cert)
	write("/etc/kubernetes/pki/apiserver.crt", issue(p.CA, "kube-apiserver", 24*time.Hour).Cert)
	write("/etc/kubernetes/pki/etcd/peer.crt", issue(p.CA, "wrong authority", 400*24*time.Hour).Cert)
	kubelet := issue(p.CA, "system:node:m1", 400*24*time.Hour)
	write("/var/lib/kubelet/pki/kubelet-client-current.pem", kubelet.Cert+kubelet.Key.Reveal())
	config, err := pki.Kubeconfig("demo", "https://10.0.0.1:6443", p.CA.Cert, issue(p.CA, "admin", 400*24*time.Hour))
	if err != nil {
		t.Fatal(err)
	}
	write("/etc/kubernetes/admin.conf", config.Reveal())
	return root
}

// reader runs the script that nodes are read with on directories instead, and keeps what it printed.
type reader struct {
	mu      sync.Mutex
	root    string
	printed string
}

func (r *reader) read(ctx context.Context, m director.Machine, script string) (string, error) {
	if m.Name != "m1" {
		return "", errors.New("no route to host")
	}
	script = strings.NewReplacer(
		"/etc/kubernetes", r.root+"/etc/kubernetes", "/var/lib/kubelet", r.root+"/var/lib/kubelet",
	).Replace(script)
	out, err := exec.CommandContext(ctx, "sh", "-c", script).Output()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.printed = string(out)
	return strings.ReplaceAll(r.printed, r.root, ""), err
}

func TestInventory(t *testing.T) {
	t.Parallel()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "director.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	p, err := pki.NewCluster("demo")
	if err != nil {
		t.Fatal(err)
	}
	nodes := &reader{root: nodeRoot(t, p)}
	machine := func(name string, role director.Role) director.Machine {
		return director.Machine{
			ClusterUID: "u1", Cluster: "demo", Name: name, Address: "127.0.66.1", Role: role, Kubernetes: "v1.37.1",
		}
	}
	i := certificates.NewInventory(certificates.Config{
		Serving: pki.Serving,
		Store: machines{
			Store: db, list: []director.Machine{machine("m1", director.RoleMaster), machine("w1", director.RoleWorker)},
		},
		PKI:  func(context.Context, string) (pki.ClusterPKI, error) { return p, nil },
		Read: nodes.read,
		Connect: func(context.Context, string, string, string) (certificates.Holder, error) {
			return held{p.FrontProxyCA.Cert}, nil
		},
		Own: noneOwn, Now: time.Now, Log: slog.New(slog.DiscardHandler),
	})
	found, looked, err := i.Verify(t.Context(), director.CertificateQuery{})
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, f := range found {
		what, _, _ := strings.Cut(f.What, " on 2")
		got = append(got, f.Node+" "+f.Name+" "+what+": "+f.Next)
	}
	want := []string{
		"m1 etcd-peer the cluster's authority has not signed it: see whose machine or which clock it is; a node that " +
			"was away while the authority was changed joins again: directorctl node rejoin demo m1",
	}
	if diff := cmp.Diff(want, got); diff != "" || looked != 9 {
		t.Errorf("%d were looked at (-want +got):\n%s", looked, diff)
	}
	if strings.Contains(nodes.printed, "PRIVATE") {
		t.Error("the script prints keys")
	}
	ends, err := i.Ends(t.Context(), "u1")
	if left := time.Until(ends["m1"]); err != nil || len(ends) != 1 || left > 24*time.Hour || left < 23*time.Hour {
		t.Errorf("ends: %v %v", ends, err)
	}
	nodes.root = "/nowhere"
	if _, _, err := i.Verify(t.Context(), director.CertificateQuery{Cluster: "demo"}); err != nil {
		t.Fatal(err)
	}
	if ends, err := i.Ends(t.Context(), "u1"); err != nil || len(ends) != 0 {
		t.Errorf("certificates that are gone are still known: %v %v", ends, err)
	}
}

// Tick looks at a new node at once, and at a cluster whose plan has ended, and at nothing twice before its time.
func TestTick(t *testing.T) {
	t.Parallel()
	db, err := store.Open(t.Context(), filepath.Join(t.TempDir(), "director.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = db.Close() }()
	p, err := pki.NewCluster("demo")
	if err != nil {
		t.Fatal(err)
	}
	now := time.Now()
	var read []string
	var mu sync.Mutex
	list := &machines{Store: db}
	i := certificates.NewInventory(certificates.Config{
		Serving: pki.Serving,
		Store:   list, PKI: func(context.Context, string) (pki.ClusterPKI, error) { return p, nil },
		Read: func(_ context.Context, m director.Machine, _ string) (string, error) {
			mu.Lock()
			defer mu.Unlock()
			read = append(read, m.Name)
			return "", nil
		},
		Own: noneOwn, Now: func() time.Time { return now },
		Log: slog.New(slog.DiscardHandler),
	})
	node := func(name string) director.Machine {
		return director.Machine{
			ClusterUID: "u1", Cluster: "demo", Name: name, Address: "127.0.66.1", Role: director.RoleWorker,
			Kubernetes: "v1.37.1",
		}
	}
	tick := func(what string, want ...string) {
		t.Helper()
		read = nil
		if err := i.Tick(t.Context()); err != nil {
			t.Fatal(err)
		}
		slices.Sort(read)
		if !slices.Equal(read, want) {
			t.Errorf("%s: %v were read, want %v", what, read, want)
		}
	}
	tick("no machine")
	list.list = []director.Machine{{ClusterUID: "u1", Cluster: "demo", Name: "w1", Address: "127.0.66.1"}}
	tick("a machine that is no node yet")
	list.list = []director.Machine{node("w1")}
	tick("a new node", "w1")
	tick("nothing new")
	list.list = []director.Machine{node("w2"), node("w1")}
	tick("one more node", "w1", "w2")
	list.ended = map[string]time.Time{"demo": now, "other": now}
	tick("a plan has ended, such as a rotation", "w1", "w2")
	tick("nothing new since the plan")
	now = now.Add(certificates.Every)
	tick("it is time", "w1", "w2")
	list.ended["demo"] = now.Add(time.Second)
	tick("another plan has ended", "w1", "w2")
	list.list = nil
	tick("the cluster is gone")
}
