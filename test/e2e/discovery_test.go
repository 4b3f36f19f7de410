package e2e

import (
	"crypto/sha256"
	"crypto/tls"
	"fmt"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/hashicorp/consul/api"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/discovery/consultest"
	"github.com/director-kaas/kaas/director/pki"
)

// here is the address of the lab that nodes and pods reach.
const here = "172.30.0.1"

// discovered is what the cluster and a Consul are to learn of each other.
const discovered = "  api: {vip: " + vip + "}\n" + `  discovery:
    consul: dc1
    agents: true
    dns: true
    export: {annotated: true, names: [shop-*]}
    import: [{service: greeter, namespace: shop, port: 80}]
`

// program is what each worker is to register: its kubelet.
const program = `      services: [{name: kubelets, port: 10250, check: {tcp: true, interval: 5s}}]
`

// found is a Consul with what the play puts into it, and a hook that is asked meanwhile.
type found struct {
	*suite
	consul *consultest.Server
	client *api.Client
	hook   *receiver

	url, ca string // of the program of Consul, for as long as the test runs: a node fetches it again when it rejoins
}

// TestDiscovery is a cluster and a Consul that find each other: agents on the nodes, Services both ways, and names,
// also while the director is away. Its members keep their identities over a rejoin and an upgrade, of which a hook is
// asked, and it leaves nothing in Consul.
func TestDiscovery(t *testing.T) {
	s := begin(t, older, suite{workers: 2, spec: discovered, pool: program})
	f := found{suite: s, consul: consultest.StartAt(t, here), hook: receive(t)}
	f.client = f.consul.Client(t, f.consul.Management)
	f.url, f.ca = f.files(t)
	s.runParts(t, []part{
		{"starts", s.startsAndAsksForALogin},
		{"creates a cluster whose nodes are members of Consul", f.createsMembers},
		{"pods find a service of Consul", f.podsFindIt},
		{"Consul finds a service of the cluster", f.consulFindsIt},
		{"all of it works while the director is away", f.directorIsAway},
		{"Consul is away, and nothing is lost", f.consulIsAway},
		{"a worker less is a member less", f.aMemberLess},
		{"a hook is asked from now on", f.asksAHook},
		{"a worker that was out rejoins as the member that it was", f.memberRejoins},
		{"another token for all of it", f.renewsTokens},
		{"members stay who they are over an upgrade", f.membersAreUpgraded},
		{"deletes the cluster", s.deletesCluster},
		{"Consul has nothing of the cluster any more", f.nothingIsLeft},
		{"leaves nothing", s.leavesNothing},
	})
}

// files serves the program of Consul over HTTPS, as a mirror of an administrator does, and returns its address and
// authority.
func (f found) files(t *testing.T) (url, ca string) {
	t.Helper()
	mux := http.NewServeMux()
	mux.HandleFunc("/consul", func(w http.ResponseWriter, r *http.Request) { http.ServeFile(w, r, f.consul.Binary) })
	secured, ca := secure(t)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: time.Minute, TLSConfig: secured}
	return "https://" + serve(t, server, true) + "/consul", ca
}

// secure returns what a server at the lab's address serves with, and its authority.
func secure(t *testing.T) (*tls.Config, string) {
	t.Helper()
	issuer, err := pki.NewCA("files")
	if err != nil {
		t.Fatal(err)
	}
	cert, err := pki.ServerCert(issuer, nil, []netip.Addr{netip.MustParseAddr(here)}, 24*time.Hour)
	if err != nil {
		t.Fatal(err)
	}
	pair, err := tls.X509KeyPair([]byte(cert.Cert), []byte(cert.Key.Reveal()))
	if err != nil {
		t.Fatal(err)
	}
	return &tls.Config{Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS12}, issuer.Cert
}

// indented is a certificate as the value of a text in a document, behind so many spaces.
func indented(text string, by int) string {
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n"+strings.Repeat(" ", by))
}

// serve has the server answer at the lab's address until the test ends.
func serve(t *testing.T, server *http.Server, secure bool) (address string) {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", here+":0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = server.Close() })
	if secure {
		go func() { _ = server.ServeTLS(l, "", "") }()
	} else {
		go func() { _ = server.Serve(l) }()
	}
	return l.Addr().String()
}

func (f found) createsMembers(t *testing.T) {
	text, err := os.ReadFile(f.consul.Binary)
	if err != nil {
		t.Fatal(err)
	}
	f.write("models/consul.yaml", fmt.Sprintf(`apiVersion: kaas/v1
kind: Consul
metadata: {name: dc1}
spec:
  addresses: [%q]
  datacenter: dc1
  dns: [%q]
  credentials: consul-token
  gossip: consul-gossip
  tls:
    serverName: %s
    ca: |
        %s
  agents:
    join: [%q]
    program:
      url: %s
      sha256: %x
      ca: |
        %s
`, f.consul.URL, f.consul.DNS, consultest.Name, indented(f.consul.CA, 8), f.consul.Join, f.url, sha256.Sum256(text),
		indented(f.ca, 8)), 0o644)
	for name, secret := range map[string]string{"consul-token": f.consul.Management, "consul-gossip": f.consul.Gossip} {
		f.ctl(t, "provider", "credentials", "set", name, "--user", "director", "--password-file",
			f.write(name, secret, 0o600))
	}
	f.createsACluster(t)
	f.ctl(t, "consul", "test", "dc1")
	f.wantMembers(t, f.nodeNames()...)
	f.await(t, time.Minute, "Consul has the kubelets of the workers, and they are well", func() bool {
		return len(f.passing(t, "kubelets")) == f.workers
	})
}

// passing returns the instances of a service that are well.
func (f found) passing(t *testing.T, service string) []*api.ServiceEntry {
	t.Helper()
	entries, _, err := f.client.Health().Service(service, "", true, nil)
	if err != nil {
		t.Fatal(err)
	}
	return entries
}

// exports has the service of the cluster exported or not, and waits until Consul knows.
func (f found) exports(t *testing.T, yes bool) {
	t.Helper()
	f.annotates(t, yes)
	f.await(t, time.Minute, fmt.Sprintf("Consul has the service of the cluster: %t", yes), func() bool {
		return len(f.passing(t, "shop-web")) > 0 == yes
	})
}

func (f found) annotates(t *testing.T, yes bool) {
	t.Helper()
	f.kubectl(t, "annotate", "--overwrite", "service", "web", fmt.Sprintf("consul.kaas/export=%t", yes))
}

func (f found) directorIsAway(t *testing.T) {
	f.killDirector()
	defer f.startDirector(t)
	f.exports(t, false)
	f.exports(t, true)
	f.wantMembers(t, f.nodeNames()...)
	var said []string
	for _, e := range f.passing(t, "kaas-api-demo") {
		if e.Node.Node == member+"master-1" { // it is the node's agent that says so
			said = append(said, strings.Join(e.Service.Tags, " ")+" at "+e.Service.Address)
		}
	}
	slices.Sort(said)
	if len(said) != 2 || !strings.HasPrefix(said[0], director.ConsulTagMaster+" at ") ||
		said[1] != director.ConsulTagVIP+" at "+vip {
		t.Errorf("while the director is away, Consul has the API server %q by the agent of the master", said)
	}
}

func (f found) consulIsAway(t *testing.T) {
	f.consul.Stop()
	f.annotates(t, false)
	f.consul.Run(t)
	f.await(t, 2*time.Minute, "Consul is told of what went while it was away", func() bool {
		return len(f.passing(t, "shop-web")) == 0
	})
	f.exports(t, true)
	f.wantMembers(t, f.nodeNames()...)
	f.ctl(t, "consul", "test", "dc1")
}

// member begins the names that the nodes of the cluster have in Consul.
const member = director.ConsulPrefix + "demo-"

// wantMembers waits until these nodes are in Consul, with agents that are well, and no others of the cluster. The
// entry of a machine that is gone goes when other members have seen it, and the director has compared.
func (f found) wantMembers(t *testing.T, nodes ...string) {
	t.Helper()
	names := make([]string, len(nodes))
	for i, n := range nodes {
		names[i] = director.ConsulPrefix + n
	}
	slices.Sort(names)
	f.await(t, 2*time.Minute, fmt.Sprintf("Consul has the members %v and no others", names), func() bool {
		checks, _, err := f.client.Health().State(api.HealthPassing, nil)
		if err != nil {
			t.Fatal(err)
		}
		var well []string
		for _, c := range checks {
			if c.CheckID == "serfHealth" && strings.HasPrefix(c.Node, member) {
				well = append(well, c.Node)
			}
		}
		slices.Sort(well)
		there := slices.Sorted(maps.Keys(f.ids(t)))
		return slices.Equal(there, names) && slices.Equal(well, names)
	})
}

// ask runs the toolbox in the pod of the play.
func (f found) ask(t *testing.T, question ...string) (string, int) {
	t.Helper()
	return f.tryKubectl(t, append([]string{"exec", "deployment/web", "--", "toolbox"}, question...)...)
}

func (f found) podsFindIt(t *testing.T) {
	address := serve(t, &http.Server{ReadHeaderTimeout: time.Minute, Handler: http.HandlerFunc(
		func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("greetings from outside\n")) },
	)}, false)
	at := netip.MustParseAddrPort(address)
	_, err := f.client.Catalog().Register(&api.CatalogRegistration{
		Node: "old-host", Address: here, Service: &api.AgentService{
			ID: "greeter", Service: "greeter", Address: here, Port: int(at.Port()),
		},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	f.kubectl(t, "apply", "-f", f.write("web.yaml", service(f.toolbox(t), "web", 1, false, ""), 0o644))
	f.kubectl(t, "rollout", "status", "deployment/web", "--timeout=10m")
	f.await(t, 2*time.Minute, "a pod gets an answer of the imported service", func() bool {
		out, code := f.ask(t, "get", "http://greeter.shop/")
		return code == 0 && strings.Contains(out, "greetings from outside")
	})
	if out, code := f.ask(t, "resolve", "greeter.service.consul"); code != 0 || !strings.Contains(out, here) {
		t.Errorf("a pod resolves the name in Consul to %q", out)
	}
}

func (f found) consulFindsIt(t *testing.T) {
	defer func() {
		if t.Failed() {
			said, _ := f.tryKubectl(
				t, "-n", "kube-system", "logs", "deployment/consul-sync", "--all-pods=true", "--tail=30",
			)
			events, _ := f.tryKubectl(t, "get", "events", "--field-selector=involvedObject.name=web")
			t.Logf("the sync said:\n%s\nevents:\n%s", said, events)
		}
	}()
	f.kubectl(t, "annotate", "service", "web", "consul.kaas/export=true", "consul.kaas/name=shop-web")
	var entries []*api.ServiceEntry
	f.await(t, time.Minute, "Consul has the service of the cluster", func() bool {
		entries = f.passing(t, "shop-web")
		return len(entries) > 0
	})
	for _, e := range entries {
		url := fmt.Sprintf("http://%s:%d/", e.Service.Address, e.Service.Port)
		// Consul may know of the pod a moment before the node's kube-proxy does.
		out := f.ok(t, time.Minute, "curl", "-sS", "--max-time", "20", "--retry", "20", "--retry-connrefused",
			"--retry-delay", "1", url)
		if !strings.HasPrefix(out, "web-") {
			t.Errorf("%s answers %q", url, out)
		}
	}
	if out, code := f.ask(t, "resolve", "shop-web.service.consul"); code != 0 ||
		!strings.Contains(out, entries[0].Service.Address) {
		t.Errorf("a pod resolves the name in Consul to %q", out)
	}
	resolved := strings.TrimSpace(f.onNode(t, "demo-worker-1", fmt.Sprintf(resolves, "shop-web.service.consul")))
	if !slices.ContainsFunc(entries, func(e *api.ServiceEntry) bool { return e.Service.Address == resolved }) {
		t.Errorf("a VM resolves the service of the cluster to %q by its agent", resolved)
	}
	f.await(t, time.Minute, "Consul has the API server, and it is well", func() bool {
		return len(f.passing(t, "kaas-api-demo")) > 0
	})
}

// resolves is a command that asks the agent of a node for the address of a name. Nodes have no program for this.
const resolves = `python3 -c 'import socket; agent = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); ` +
	`agent.settimeout(10); ` +
	`name = b"".join(bytes([len(part)]) + part.encode() for part in "%s".split(".")); ` +
	`agent.sendto(bytes.fromhex("123401000001000000000000") + name + bytes.fromhex("0000010001"), ` +
	`("127.0.0.1", 8600)); ` +
	`print(socket.inet_ntoa(agent.recv(4096)[-4:]))'`

func (f found) aMemberLess(t *testing.T) {
	f.workers = 1
	f.writeFiles()
	f.ctl(t, "apply", "-f", f.path("models"), "--start", "--yes", "--wait")
	f.wantNodes(t, f.nodeNames()...)
	f.wantMembers(t, f.nodeNames()...)
}

func (f found) renewsTokens(t *testing.T) {
	before := f.tokens(t)
	if len(before) == 0 {
		t.Error("the cluster has no tokens")
	}
	f.timed(t, "rotate", "consul-token", "demo", "--wait", "--yes")
	for id := range f.tokens(t) {
		if before[id] {
			t.Errorf("the token %s is there still", id)
		}
	}
	f.wantMembers(t, f.nodeNames()...)
}

// ids returns the identity of each member of the cluster, by its name.
func (f found) ids(t *testing.T) map[string]string {
	t.Helper()
	all, _, err := f.client.Catalog().Nodes(nil)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]string{}
	for _, n := range all {
		if strings.HasPrefix(n.Node, member) {
			ids[n.Node] = n.ID
		}
	}
	return ids
}

// wantIDs wants the members to be those of before, whatever became of their nodes meanwhile.
func (f found) wantIDs(t *testing.T, before map[string]string) {
	t.Helper()
	f.wantMembers(t, f.nodeNames()...)
	if diff := cmp.Diff(before, f.ids(t)); diff != "" || len(before) == 0 {
		t.Errorf("the identities of the members: %s", diff)
	}
}

func (f found) memberRejoins(t *testing.T) {
	before := f.ids(t)
	f.timed(t, "node", "delete", "demo", "demo-worker-1", "--keep-vm", "--yes", "--wait")
	f.timed(t, "node", "rejoin", "demo", "demo-worker-1", "--yes", "--wait")
	f.wantNodes(t, f.nodeNames()...)
	f.wantIDs(t, before)
	f.wantAsked(t, "demo-worker-1", "before.drain", "after.drain", "before.delete", "after.delete", "before.rejoin",
		"after.rejoin", "after.unlock")
}

func (f found) membersAreUpgraded(t *testing.T) {
	before, tokens := f.ids(t), f.tokens(t)
	f.use(t, newer)
	f.timed(t, "apply", "-f", f.path("models"), "--start", "--yes", "--wait")
	minor := "v" + f.minors[1] + "."
	versions := f.kubectl(t, "get", "nodes", "-o", "jsonpath={.items[*].status.nodeInfo.kubeletVersion}")
	if strings.Count(versions, minor) != len(f.nodeNames()) {
		t.Errorf("the kubelets run %s", versions)
	}
	f.wantIDs(t, before)
	if diff := cmp.Diff(tokens, f.tokens(t)); diff != "" {
		t.Errorf("the tokens: %s", diff)
	}
	if strategy == "" { // others take the VM away
		f.wantAsked(t, "demo-worker-1", "before.drain", "after.drain", "before.upgrade", "after.upgrade",
			"before.verify", "after.verify", "before.unlock", "after.unlock")
	}
}

// tokens returns the accessors of the tokens that the director has made.
func (f found) tokens(t *testing.T) map[string]bool {
	t.Helper()
	list, _, err := f.client.ACL().TokenList(nil)
	if err != nil {
		t.Fatal(err)
	}
	ids := map[string]bool{}
	for _, token := range list {
		ofCluster := func(p *api.ACLLink) bool { return strings.HasPrefix(p.Name, director.ConsulPrefix) }
		if slices.ContainsFunc(token.Policies, ofCluster) {
			ids[token.AccessorID] = true
		}
	}
	return ids
}

// nothingIsLeft waits until Consul and the director, which still runs, have noticed that the machines are gone.
func (f found) nothingIsLeft(t *testing.T) {
	f.wantMembers(t)
	if left := f.tokens(t); len(left) > 0 {
		t.Errorf("%d tokens are left", len(left))
	}
	services, _, err := f.client.Catalog().Services(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name := range services {
		if name != "consul" && name != "greeter" && name != "kaas-director" {
			t.Errorf("the service %s is left", name)
		}
	}
}
