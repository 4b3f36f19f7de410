package controller_test

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/consul/api"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/director-kaas/kaas/director/consulsync"
	"github.com/director-kaas/kaas/director/kube/kubetest"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/test/loopback"
)

const (
	// envConsul names the program; without it the newest of test/consul/build.sh in the cache is taken.
	envConsul = "KAAS_CONSUL"

	patience = 2 * time.Minute
	// rules are those that plans give to the syncs of clusters, for all clusters at once, and without those for
	// imports.
	rules = "node_prefix \"kaas-\" { policy = \"write\" }\nservice_prefix \"\" { policy = \"write\" }\n" +
		"service_prefix \"kaas-\" { policy = \"read\" }\nservice \"consul\" { policy = \"read\" }\n"
	readRules = "node_prefix \"\" { policy = \"read\" }\n"
	account   = "system:serviceaccount:kube-system:consul-sync"
)

// eventually fails the test when check still returns an error after a while.
func eventually(t *testing.T, check func() error) {
	t.Helper()
	within(t, patience, check)
}

func within(t *testing.T, limit time.Duration, check func() error) {
	t.Helper()
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		err := check()
		if err == nil {
			return
		}
		select {
		case <-deadline.C:
			t.Fatalf("not after %s: %v", limit, err)
		case <-tick.C:
		}
	}
}

func must[T any](t *testing.T) func(T, error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

// consul is a real server whose ACLs deny by default.
type consul struct {
	bin, dir, url, master string
	dns                   string
	cmd                   *exec.Cmd
	api                   *api.Client
}

func freePorts(t *testing.T, n int) []int {
	t.Helper()
	var ports []int
	for range n {
		ports = append(ports, int(loopback.FreeFor(t).Port()))
	}
	return ports
}

func consulProgram(t *testing.T) string {
	t.Helper()
	if bin := os.Getenv(envConsul); bin != "" {
		return bin
	}
	cache := must[string](t)(os.UserCacheDir())
	found, err := filepath.Glob(filepath.Join(cache, "director", "tools", "consul-*"))
	if err != nil || len(found) == 0 {
		if os.Getenv(kubetest.EnvRequire) != "" {
			t.Fatal("there is no consul: run test/consul/build.sh, or name it in " + envConsul)
		}
		t.Skip("there is no consul: run test/consul/build.sh, or name it in " + envConsul)
	}
	return found[len(found)-1]
}

func startConsul(t *testing.T) *consul {
	t.Helper()
	c := &consul{bin: consulProgram(t), dir: t.TempDir(), master: uuid.NewString()}
	p := freePorts(t, 4)
	c.url, c.dns = fmt.Sprintf("http://127.0.0.1:%d", p[0]), fmt.Sprintf("127.0.0.1:%d", p[3])
	text := must[[]byte](t)(json.Marshal(map[string]any{
		"datacenter": "dc1", "node_name": "server1", "server": true, "bootstrap_expect": 1,
		"bind_addr": "127.0.0.1", "client_addr": "127.0.0.1", "data_dir": filepath.Join(c.dir, "data"),
		"ports": map[string]int{
			"http": p[0], "server": p[1], "serf_lan": p[2], "serf_wan": -1, "dns": p[3], "grpc": -1, "grpc_tls": -1,
		},
		"acl": map[string]any{
			"enabled": true, "default_policy": "deny",
			"tokens": map[string]string{"initial_management": c.master, "agent": c.master, "default": c.master},
		},
		"performance": map[string]int{"raft_multiplier": 1}, "connect": map[string]bool{"enabled": false},
		"limits":               map[string]int{"http_max_conns_per_client": 1000},
		"disable_update_check": true, "log_level": "warn",
	}))
	if err := os.WriteFile(filepath.Join(c.dir, "config.json"), text, 0o600); err != nil {
		t.Fatal(err)
	}
	c.api = must[*api.Client](t)(api.NewClient(&api.Config{Address: c.url, Token: c.master}))
	t.Cleanup(c.kill)
	c.start(t)
	return c
}

func (c *consul) start(t *testing.T) {
	t.Helper()
	c.cmd = exec.Command(c.bin, "agent", "-config-file", filepath.Join(c.dir, "config.json"))
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	eventually(t, func() error {
		_, _, err := c.api.ACL().TokenReadSelf(nil)
		return err
	})
}

// confirms returns an error until the server answers as a leader that has all of its state.
func (c *consul) confirms() error {
	_, _, err := c.api.ACL().TokenReadSelf(&api.QueryOptions{RequireConsistent: true})
	return err
}

// kill ends the server at once. What it has stored stays.
func (c *consul) kill() {
	if c.cmd != nil {
		_ = c.cmd.Process.Kill()
		_ = c.cmd.Wait()
		c.cmd = nil
	}
}

func (c *consul) wipe(t *testing.T) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(c.dir, "data")); err != nil {
		t.Fatal(err)
	}
}

// token makes a token with a known value, so that a Consul which was emptied can have it again.
func (c *consul) token(t *testing.T, secret, text string) (change func(string)) {
	t.Helper()
	p, _, err := c.api.ACL().PolicyCreate(&api.ACLPolicy{Name: "p" + secret, Rules: text}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := c.api.ACL().TokenCreate(&api.ACLToken{
		SecretID: secret, Policies: []*api.ACLTokenPolicyLink{{ID: p.ID}},
	}, nil); err != nil {
		t.Fatal(err)
	}
	return func(text string) {
		t.Helper()
		p.Rules = text
		if _, _, err := c.api.ACL().PolicyUpdate(p, nil); err != nil {
			t.Fatal(err)
		}
	}
}

// entries returns "id name status" of a cluster's entries, sorted.
func (c *consul) entries(cluster string) ([]string, error) {
	nodes, _, err := c.api.Catalog().Nodes(&api.QueryOptions{
		NodeMeta: map[string]string{consulsync.MetaCluster: cluster},
	})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, n := range nodes {
		list, _, err := c.api.Catalog().NodeServiceList(n.Node, nil)
		if err != nil || list == nil {
			return nil, err
		}
		checks, _, err := c.api.Health().Node(n.Node, nil)
		if err != nil {
			return nil, err
		}
		status := map[string]string{}
		for _, k := range checks {
			status[k.ServiceID] = k.Status
		}
		for _, s := range list.Services {
			out = append(out, s.ID+" "+s.Service+" "+status[s.ID])
		}
	}
	slices.Sort(out)
	return out, nil
}

// made returns the index at which each of the cluster's entries was made, by its id.
func (c *consul) made(cluster string) (map[string]uint64, error) {
	nodes, _, err := c.api.Catalog().Nodes(&api.QueryOptions{
		NodeMeta: map[string]string{consulsync.MetaCluster: cluster},
	})
	out := map[string]uint64{}
	for _, n := range nodes {
		list, _, err := c.api.Catalog().NodeServiceList(n.Node, nil)
		if err != nil || list == nil {
			return nil, err
		}
		for _, s := range list.Services {
			out[s.ID] = s.CreateIndex
		}
	}
	return out, err
}

// expect waits until the cluster's entries are exactly these.
func (c *consul) expect(t *testing.T, cluster string, want ...string) {
	t.Helper()
	slices.Sort(want)
	eventually(t, func() error {
		got, err := c.entries(cluster)
		if err == nil && !slices.Equal(got, want) {
			err = fmt.Errorf("entries of %s:\n%s\nwant:\n%s", cluster, strings.Join(got, "\n"),
				strings.Join(want, "\n"))
		}
		return err
	})
}

// instance registers a service as another machine's agent would: it tries again, as its server may have passed the
// write on to a leader that hangs.
func (c *consul) instance(t *testing.T, name, address string, port int, status string) {
	t.Helper()
	eventually(t, func() error {
		ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
		defer cancel()
		_, err := c.api.Catalog().Register(&api.CatalogRegistration{
			Node: "host-" + address, Address: address,
			Service: &api.AgentService{ID: name, Service: name, Port: port},
			Check: &api.AgentCheck{
				Node: "host-" + address, CheckID: "c" + name, Name: "up", Status: status, ServiceID: name,
			},
		}, new(api.WriteOptions).WithContext(ctx))
		return err
	})
}

// cluster is a real API server, without any controller.
type cluster struct {
	server *kubetest.Server
	api    kubernetes.Interface
}

func startCluster(t *testing.T) *cluster {
	t.Helper()
	s := kubetest.Start(t, must[pki.ClusterPKI](t)(pki.NewCluster("sync")))
	rest, err := clientcmd.RESTConfigFromKubeConfig([]byte(s.Admin().Reveal()))
	if err != nil {
		t.Fatal(err)
	}
	rest.QPS = -1
	c := &cluster{server: s, api: must[kubernetes.Interface](t)(kubernetes.NewForConfig(rest))}
	file := filepath.Join(t.TempDir(), "admin.conf")
	if err := os.WriteFile(file, []byte(s.Admin().Reveal()), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), s.Kubectl, "--kubeconfig", file, "apply", "-f",
		"../../../playbooks/roles/consul_sync/files/rbac.yaml").CombinedOutput()
	if err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	return c
}

// namespace makes a namespace that may be imported to.
func (c *cluster) namespace(t *testing.T, name string) {
	t.Helper()
	_, err := c.api.CoreV1().
		Namespaces().
		Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
	_, err = c.api.RbacV1().RoleBindings(name).Create(t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: "consul-sync-import"},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "consul-sync-import"},
		Subjects:   []rbacv1.Subject{{Kind: "ServiceAccount", Name: "consul-sync", Namespace: "kube-system"}},
	}, metav1.CreateOptions{})
	if err != nil && !apierrors.IsAlreadyExists(err) {
		t.Fatal(err)
	}
}

// balanced makes a Service of type LoadBalancer with an address and a ready endpoint.
func (c *cluster) balanced(ctx context.Context, namespace, name, address string, annotations map[string]string) error {
	s, err := c.api.CoreV1().Services(namespace).Create(ctx, &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name, Annotations: annotations},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeLoadBalancer, Ports: []corev1.ServicePort{{Name: "web", Port: 80}},
			AllocateLoadBalancerNodePorts: new(bool),
		},
	}, metav1.CreateOptions{})
	if err != nil {
		return err
	}
	s.Status.LoadBalancer.Ingress = []corev1.LoadBalancerIngress{{IP: address}}
	if _, err := c.api.CoreV1().Services(namespace).UpdateStatus(ctx, s, metav1.UpdateOptions{}); err != nil {
		return err
	}
	_, err = c.api.DiscoveryV1().EndpointSlices(namespace).Create(ctx, &discoveryv1.EndpointSlice{
		ObjectMeta:  metav1.ObjectMeta{Name: name, Labels: map[string]string{discoveryv1.LabelServiceName: name}},
		AddressType: discoveryv1.AddressTypeIPv4,
		Endpoints:   []discoveryv1.Endpoint{{Addresses: []string{"10.244.0.9"}}},
	}, metav1.CreateOptions{})
	return err
}

func (c *cluster) add(t *testing.T, namespace, name, address string, annotations map[string]string) {
	t.Helper()
	if err := c.balanced(t.Context(), namespace, name, address, annotations); err != nil {
		t.Fatal(err)
	}
}

func (c *cluster) remove(t *testing.T, namespace, name string) {
	t.Helper()
	if err := c.api.CoreV1().Services(namespace).Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

// clear deletes all Services but Kubernetes' own, all slices, and what the sync keeps.
func (c *cluster) clear(t *testing.T) {
	t.Helper()
	all := must[*corev1.ServiceList](t)(c.api.CoreV1().Services("").List(t.Context(), metav1.ListOptions{}))
	for _, s := range all.Items {
		if s.Name != "kubernetes" {
			c.remove(t, s.Namespace, s.Name)
		}
	}
	parts := must[*discoveryv1.EndpointSliceList](t)(
		c.api.DiscoveryV1().EndpointSlices("").List(t.Context(), metav1.ListOptions{}),
	)
	for _, s := range parts.Items {
		_ = c.api.DiscoveryV1().EndpointSlices(s.Namespace).Delete(t.Context(), s.Name, metav1.DeleteOptions{})
	}
	_ = c.api.CoreV1().ConfigMaps("kube-system").Delete(t.Context(), "consul-sync-status", metav1.DeleteOptions{})
	_ = c.api.CoordinationV1().Leases("kube-system").Delete(t.Context(), "consul-sync", metav1.DeleteOptions{})
}

// endpoints returns the ready addresses of a Service, sorted.
func (c *cluster) endpoints(t *testing.T, namespace, name string) []string {
	t.Helper()
	list := must[*discoveryv1.EndpointSliceList](t)(c.api.DiscoveryV1().EndpointSlices(namespace).List(t.Context(),
		metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + name}))
	var out []string
	for _, s := range list.Items {
		for _, e := range s.Endpoints {
			out = append(out, fmt.Sprintf("%s:%d", e.Addresses[0], *s.Ports[0].Port))
		}
	}
	slices.Sort(out)
	return out
}

func (c *cluster) expectEndpoints(t *testing.T, namespace, name string, want ...string) {
	t.Helper()
	eventually(t, func() error {
		if got := c.endpoints(t, namespace, name); !slices.Equal(got, want) {
			return fmt.Errorf("endpoints of %s/%s: %v, want %v", namespace, name, got, want)
		}
		return nil
	})
}

// expectEvent waits for an event about an object.
func (c *cluster) expectEvent(t *testing.T, namespace, object, reason string) {
	t.Helper()
	eventually(t, func() error {
		list, err := c.api.CoreV1().Events(namespace).List(t.Context(), metav1.ListOptions{})
		if err != nil {
			return err
		}
		for _, e := range list.Items {
			if e.InvolvedObject.Name == object && e.Reason == reason {
				return nil
			}
		}
		return fmt.Errorf("no event %s about %s/%s", reason, namespace, object)
	})
}

// program builds consul-sync once for all tests.
var program = sync.OnceValues(func() (string, error) {
	dir, err := os.MkdirTemp("", "consul-sync-test-")
	if err != nil {
		return "", err
	}
	bin := filepath.Join(dir, "consul-sync")
	out, err := exec.Command("go", "build", "-o", bin, "../../../cmd/consul-sync").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return bin, nil
})

func TestMain(m *testing.M) {
	code := m.Run()
	if bin, err := program(); code == 0 && err == nil {
		_ = os.RemoveAll(filepath.Dir(bin))
	}
	os.Exit(code)
}

// replica is a running consul-sync.
type replica struct {
	*syncer
	cmd  *exec.Cmd
	url  string
	log  *bytes.Buffer
	done chan error
}

// syncer is what replicas of one cluster share.
type syncer struct {
	dir, uid, token string
	consul          *consul
	more            string // of the configuration
	reach           string // how it gets to Consul; empty for the one server
	names           string // that may be exported, separated by commas; empty for all
}

func newSyncer(t *testing.T, k *cluster, c *consul, uid, more string) *syncer {
	t.Helper()
	s := &syncer{dir: t.TempDir(), uid: uid, token: uuid.NewString(), consul: c, more: more}
	for name, text := range map[string]string{"token": s.token, "kubeconfig": k.server.Kubeconfig(account).Reveal()} {
		if err := os.WriteFile(filepath.Join(s.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s *syncer) start(t *testing.T) *replica {
	t.Helper()
	listen := loopback.FreeFor(t).String()
	text := fmt.Sprintf(
		"owner: director-1\ncluster: %s\nlisten: %s\nkubeconfig: %s\nresync: 5s\nexport: {loadBalancer: true, "+
			"annotated: true, ingress: true, names: [%s]}\nconsul: {%s, tokenFile: %s}\n%s",
		s.uid,
		listen,
		filepath.Join(s.dir, "kubeconfig"),
		s.names,
		cmp.Or(s.reach, fmt.Sprintf("addresses: [%q]", s.consul.url)),
		filepath.Join(s.dir, "token"),
		s.more,
	)
	file := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	r := &replica{syncer: s, url: "http://" + listen, log: &bytes.Buffer{}, done: make(chan error, 1)}
	r.cmd = exec.Command(must[string](t)(program()), "-config", file)
	r.cmd.Stdout, r.cmd.Stderr = r.log, r.log
	r.cmd.Env = []string{"CONSUL_HTTP_TOKEN=wrong", "CONSUL_HTTP_ADDR=192.0.2.1:1", "GOMEMLIMIT=" + memoryLimit(t)}
	r.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := r.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() { r.done <- r.cmd.Wait() }()
	t.Cleanup(func() {
		r.kill()
		if t.Failed() {
			t.Logf("consul-sync:\n%s", r.log.Bytes()[max(0, r.log.Len()-6000):])
		}
		if strings.Contains(r.log.String(), s.token) {
			t.Error("the token is in the log")
		}
	})
	return r
}

// memoryLimit is the one that the role consul_sync gives the program in a cluster.
func memoryLimit(t *testing.T) string {
	t.Helper()
	const template = "../../../playbooks/roles/consul_sync/templates/consul-sync.yaml.j2"
	text := must[[]byte](t)(os.ReadFile(template))
	found := regexp.MustCompile(`name: GOMEMLIMIT\s+value: (\S+)`).FindSubmatch(text)
	if found == nil {
		t.Fatalf("%s sets no GOMEMLIMIT", template)
	}
	return string(found[1])
}

func (r *replica) kill() {
	_ = r.cmd.Process.Kill()
	r.done <- <-r.done
}

// stop ends it as the kubelet does, and returns how it ended.
func (r *replica) stop() error {
	_ = r.cmd.Process.Signal(syscall.SIGTERM)
	err := <-r.done
	r.done <- err
	return err
}

// get returns the status and the body of a page.
func (r *replica) get(path string) (int, string) {
	resp, err := http.Get(r.url + path)
	if err != nil {
		return 0, err.Error()
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, err.Error()
	}
	return resp.StatusCode, string(text)
}

// expectPage waits until a page contains a text.
func (r *replica) expectPage(t *testing.T, path, want string) {
	t.Helper()
	eventually(t, func() error {
		if status, text := r.get(path); !strings.Contains(text, want) {
			return fmt.Errorf("%s: %d %s; want %q", path, status, text, want)
		}
		return nil
	})
}
