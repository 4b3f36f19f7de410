package playbooks_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/consul/api"

	"github.com/director-kaas/kaas/director/discovery/consultest"
)

// agentNode is a directory that stands for a node, on which the role consul_agent works.
type agentNode struct {
	t      *testing.T
	consul *consultest.Server
	name   string // in the inventory
	dir    string
	vars   map[string]any
	said   string

	varsFile string // that the play reads; empty for none
}

// play runs the role, or tasks of it, and returns how many tasks changed something.
func (n *agentNode) play(tasks string, args ...string) string {
	n.t.Helper()
	text, err := json.Marshal(n.vars)
	if err != nil {
		n.t.Fatal(err)
	}
	book := filepath.Join(n.dir, tasks+".yml")
	for path, content := range map[string]string{
		filepath.Join(n.dir, "vars.json"): string(text),
		book: "- hosts: all\n  connection: local\n  gather_facts: false\n" +
			"  vars_files: [" + n.varsFile + "]\n  tasks:\n" +
			"    - ansible.builtin.import_role:\n        name: consul_agent\n        tasks_from: " + tasks + "\n",
	} {
		if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
			n.t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(n.t.Context(), "ansible-playbook", append([]string{
		"-vvv", "--diff", "-i", n.name + ",", "-e", "@" + filepath.Join(n.dir, "vars.json"), book,
	}, args...)...)
	cmd.Env = append(os.Environ(), "ANSIBLE_CONFIG=ansible.cfg", "ANSIBLE_HOME="+n.dir)
	out, err := cmd.CombinedOutput()
	counts := regexp.MustCompile(`changed=(\d+)`).FindSubmatch(out)
	if err != nil || counts == nil {
		n.t.Fatalf("ansible-playbook %s: %v\n%s", tasks, err, out)
	}
	n.said += string(out)
	return string(counts[1])
}

// status returns that of the node in Consul's catalog; "" for one that is not there.
func (n *agentNode) status(name string) (string, *api.Node) {
	c := n.consul.Client(n.t, n.consul.Management)
	list, _, err := c.Health().Node(name, nil)
	if err != nil || len(list) == 0 {
		return "", nil
	}
	node, _, err := c.Catalog().Node(name, nil)
	if err != nil || node == nil {
		return "", nil
	}
	return list.AggregatedStatus(), node.Node
}

// until waits until the node has the status. Consul knows that it passes before the agent has written what it is.
func (n *agentNode) until(name, want string) *api.Node {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		is, node := n.status(name)
		if is == want && (is != api.HealthPassing || node.Meta["kaas-node"] != "") {
			return node
		}
		select {
		case <-ctx.Done():
			n.t.Fatalf("node %s is %q and not %q", name, is, want)
		case <-tick.C:
		}
	}
}

// newAgentNode returns a node with the program in its image, and the token of the node's agent.
func newAgentNode(t *testing.T, consul *consultest.Server, name string) *agentNode {
	t.Helper()
	n := &agentNode{t: t, consul: consul, name: "localhost", dir: t.TempDir()}
	acl := consul.Client(t, consul.Management).ACL()
	p, _, err := acl.PolicyCreate(&api.ACLPolicy{Name: "web", Rules: `service "web" { policy = "write" }`}, nil)
	if err != nil {
		t.Fatal(err)
	}
	token, _, err := acl.TokenCreate(&api.ACLToken{
		Policies:       []*api.ACLTokenPolicyLink{{ID: p.ID}},
		NodeIdentities: []*api.ACLNodeIdentity{{NodeName: name, Datacenter: consultest.Datacenter}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(n.dir, "usr/bin"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(consul.Binary, filepath.Join(n.dir, "usr/bin/consul")); err != nil {
		t.Fatal(err)
	}
	ports := consultest.FreePorts(t, 3)
	n.vars = map[string]any{
		"consul_agent_root": n.dir, "consul_agent_live": false, "consul_agent_name": name,
		"consul_agent_node_id": uuid.NewString(), "consul_agent_address": "127.0.0.1",
		"consul_agent_datacenter": consultest.Datacenter, "consul_agent_domain": consultest.Domain,
		"consul_agent_join": []string{consul.Join}, "consul_agent_ca": consul.CA,
		"consul_agent_token": token.SecretID, "consul_agent_gossip": consul.Gossip,
		"consul_agent_meta":  map[string]string{"kaas-owner": "d1", "kaas-node": "w1"},
		"consul_agent_ports": map[string]int{"http": ports[0], "dns": ports[1], "serf_lan": ports[2]},
		"consul_agent_services": []map[string]any{{
			"id": "web-w1", "name": "web", "address": "127.0.0.1", "port": 80, "tags": []string{"blue"},
			"scheme":     "http",
			"check_port": ports[0], "path": "/v1/status/leader", "interval": 1,
		}},
	}
	return n
}

// TestConsulAgent runs the role, and the program with what it writes: the agent joins over TLS with its key and its
// token, stays in the catalog when it is stopped, comes back as the same node, and leaves when it is told to.
func TestConsulAgent(t *testing.T) {
	t.Parallel()
	const name = "kaas-w1"
	consul := consultest.Start(t)
	n := newAgentNode(t, consul, name)
	services := n.vars["consul_agent_services"]
	if got := n.play("main", "--check"); got != "4" {
		t.Errorf("check mode sees %s changes, want 4", got)
	}
	if got := n.play("main"); got != "4" {
		t.Errorf("the first run changed %s tasks, want 4", got)
	}
	if got := n.play("main"); got != "0" {
		t.Errorf("the second run changed %s tasks, want none", got)
	}
	for what, secret := range map[string]string{"token": "consul_agent_token", "key": "consul_agent_gossip"} {
		if strings.Contains(n.said, n.vars[secret].(string)) {
			t.Errorf("Ansible shows the %s", what)
		}
	}
	configs := n.configs()
	if out, err := exec.CommandContext(
		t.Context(), consul.Binary, append([]string{"validate", "-quiet"}, configs...)...,
	).CombinedOutput(); err != nil {
		t.Fatalf("consul validate: %v\n%s", err, out)
	}
	end := consul.Agent(t, configs...)
	first := n.until(name, api.HealthPassing)
	if first.ID != n.vars["consul_agent_node_id"] || first.Meta["kaas-node"] != "w1" ||
		first.Meta["kaas-owner"] != "d1" {
		t.Errorf("the node is %+v", first)
	}
	n.asks(name)
	n.registers(end)
	end(syscall.SIGTERM)
	n.until(name, api.HealthCritical)
	// Another machine of the node: it has nothing of the former one, but a service. Once Consul has that, the agent has
	// written all that it has to: one that leaves earlier may write its node again after the server has removed it.
	if err := os.RemoveAll(filepath.Join(n.dir, "var/lib/consul")); err != nil {
		t.Fatal(err)
	}
	n.vars["consul_agent_services"] = services
	n.play("main")
	end = consul.Agent(t, configs...)
	if again := n.until(name, api.HealthPassing); again.ID != first.ID || again.CreateIndex != first.CreateIndex {
		t.Errorf("the node comes back as %+v after %+v", again, first)
	}
	n.web(1)
	end(syscall.SIGINT)
	n.until(name, "")
	if got := n.play("remove"); got != "1" {
		t.Errorf("the removal changed %s tasks, want 1", got)
	}
	for _, path := range append(configs, filepath.Join(n.dir, "var/lib/consul")) {
		if _, err := os.Stat(path); !os.IsNotExist(err) {
			t.Errorf("%s is still there: %v", path, err)
		}
	}
	if got := n.play("remove"); got != "0" {
		t.Errorf("the second removal changed %s tasks, want none", got)
	}
}

// configs returns the files that the agent reads, in the order of its unit.
func (n *agentNode) configs() []string {
	var out []string
	for _, name := range []string{"director-agent.json", "director.json", "director-services.json"} {
		out = append(out, filepath.Join(n.dir, "etc/consul.d", name))
	}
	return out
}

// asks has the agent's API answer, and refuse what the node's token may not.
func (n *agentNode) asks(name string) {
	n.t.Helper()
	c, err := api.NewClient(&api.Config{
		Address: fmt.Sprintf("127.0.0.1:%d", n.vars["consul_agent_ports"].(map[string]int)["http"]),
	})
	if err != nil {
		n.t.Fatal(err)
	}
	if services, _, err := c.Catalog().Services(nil); err != nil || len(services) == 0 {
		n.t.Errorf("the agent answers with %v, %v", services, err)
	}
	if err := c.Agent().ServiceRegister(&api.AgentServiceRegistration{
		Name: "web", Check: &api.AgentServiceCheck{Args: []string{"true"}, Interval: "10s"},
	}); err == nil {
		n.t.Error("who is on the node registers a service with a script")
	}
	if _, err := c.Catalog().Deregister(&api.CatalogDeregistration{Node: "server1"}, nil); err == nil {
		n.t.Errorf("the token of %s writes other nodes", name)
	}
}

// registers sees the agent register a service with its check, and take it out when it reads its files again.
func (n *agentNode) registers(end func(os.Signal)) {
	n.t.Helper()
	n.web(1)
	n.vars["consul_agent_services"] = []map[string]any{}
	if got := n.play("main"); got != "1" {
		n.t.Errorf("a service less changed %s tasks, want 1", got)
	}
	end(syscall.SIGHUP)
	n.web(0)
}

// web waits until so many instances of the service web pass.
func (n *agentNode) web(want int) {
	n.t.Helper()
	ctx, cancel := context.WithTimeout(n.t.Context(), time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		list, _, err := n.consul.Client(n.t, n.consul.Management).Health().Service("web", "", false, nil)
		if err == nil && len(list) == want && (want == 0 || list[0].Checks.AggregatedStatus() == api.HealthPassing &&
			list[0].Service.Meta["kaas-node"] == "w1" && list[0].Service.Tags[0] == "blue") {
			return
		}
		select {
		case <-ctx.Done():
			n.t.Fatalf("of web there are %+v, %v", list, err)
		case <-tick.C:
		}
	}
}
