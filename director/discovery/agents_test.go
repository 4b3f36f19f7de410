package discovery

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/consul/api"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/discovery/consultest"
	"github.com/director-kaas/kaas/director/model"
)

// manned has agents of the cluster installed by a plan on its machines, and returns what is sealed of them.
func (f *fixture) manned(uid string) director.ConsulAgents {
	a := director.ConsulAgents{Consul: "dc1", Tokens: map[string]director.AgentToken{}}
	for _, m := range f.world.machines {
		if m.ClusterUID == uid {
			a.Tokens[m.Name] = director.AgentToken{
				Machine: m.ID, Accessor: uuid.NewString(), Secret: director.Secret(uuid.NewString()),
			}
		}
	}
	f.sealed.setAgents(uid, &a)
	return a
}

// keep is KeepAgents that has to succeed.
func (f *fixture) keep(t *testing.T, uid string) {
	t.Helper()
	if state, err := f.KeepAgents(t.Context(), "dc1", uid); err != nil || state != director.TokenThere {
		t.Fatalf("kept: %s, %v", state, err)
	}
}

// accessors returns those of the tokens of the cluster's agents in Consul, sorted; nil without a policy.
func (f *fixture) accessors(t *testing.T, uid string) []string {
	t.Helper()
	acl := f.consul.Client(t, f.consul.Management).ACL()
	p, _, err := acl.PolicyReadByName(agentPrefix+uid, nil)
	if err != nil {
		t.Fatal(err)
	}
	if p == nil {
		return nil
	}
	list, _, err := acl.TokenListFiltered(api.ACLTokenFilterOptions{Policy: p.ID}, nil)
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, e := range list {
		out = append(out, e.AccessorID)
	}
	slices.Sort(out)
	return out
}

func sorted(accessors ...string) []string { return slices.Sorted(slices.Values(accessors)) }

// agent starts the agent of a node with services, and returns how it ends.
func (f *fixture) agent(
	t *testing.T, uid, node string, token director.AgentToken, services ...map[string]any,
) func(os.Signal) {
	t.Helper()
	dir := t.TempDir()
	ports := consultest.FreePorts(t, 3)
	text, err := json.Marshal(map[string]any{
		"datacenter": consultest.Datacenter, "node_name": Node(node), "node_id": uuid.NewString(),
		"data_dir": filepath.Join(dir, "data"), "bind_addr": "127.0.0.1", "encrypt": f.consul.Gossip,
		"retry_join": []string{f.consul.Join}, "leave_on_terminate": false,
		"ports":     map[string]int{"http": ports[0], "dns": ports[1], "serf_lan": ports[2]},
		"node_meta": map[string]string{MetaOwner: f.Director, MetaCluster: uid, MetaNode: node},
		"services":  append([]map[string]any{}, services...),
		"acl": map[string]any{
			"enabled": true,
			"tokens":  map[string]string{"agent": token.Secret.Reveal(), "default": token.Secret.Reveal()},
		},
	})
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return f.consul.Agent(t, filepath.Join(dir, "config.json"))
}

// absent returns which nodes have no agent that is seen, each with how that differs.
func (f *fixture) absent(t *testing.T) []string {
	t.Helper()
	list, err := f.Services(t.Context(), "dc1")
	if err != nil {
		t.Fatal(err)
	}
	out := []string{}
	for _, r := range list {
		if r.ID == serfHealth {
			out = append(out, r.Tags[0]+" "+string(r.Drift))
		}
	}
	return out
}

// until waits for what other processes bring about.
func until(t *testing.T, what string, is func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for !is() {
		select {
		case <-ctx.Done():
			t.Fatalf("never seen: %s", what)
		case <-tick.C:
		}
	}
}

// The life of the agents of a cluster: tokens that write one node alone, nodes that come by themselves, and nothing
// that is left of machines and clusters that are gone.
func testAgents(t *testing.T, server *consultest.Server) {
	f := setup(t, server, "director-agents")
	f.cluster("a1", "crew", "dc1", 2)
	first := f.manned("a1")
	one, two := "crew-master-1", "crew-master-2"
	if _, err := f.KeepAgents(t.Context(), "dc1", "a1"); director.KindOf(err) != director.KindForbidden ||
		!strings.Contains(director.HintOf(err), aclRule) {
		t.Errorf("a director that may make no tokens: %v", err)
	}
	may, _ := server.Token(t, makerRules)
	f.account.token = director.Secret(may)
	f.keep(t, "a1")
	f.keep(t, "a1")
	both := sorted(first.Tokens[one].Accessor, first.Tokens[two].Accessor)
	if got := f.accessors(t, "a1"); !slices.Equal(got, both) {
		t.Errorf("made are %v", got)
	}
	if got := f.absent(t); !slices.Equal(got, []string{one + " missing", two + " missing"}) {
		t.Errorf("before there is an agent: %v", got)
	}
	end := f.agent(t, "a1", one, first.Tokens[one])
	until(t, "the agent", func() bool { return slices.Equal(f.absent(t), []string{two + " missing"}) })
	c := server.Client(t, first.Tokens[one].Secret.Reveal())
	if nodes, _, err := c.Catalog().Nodes(nil); err != nil || len(nodes) < 2 {
		t.Errorf("the agent does not see all nodes: %d, %v", len(nodes), err)
	}
	if _, err := c.Catalog().Register(&api.CatalogRegistration{Node: Node(two), Address: "10.9.9.9"}, nil); err == nil {
		t.Error("the token of an agent writes the node of another one")
	}
	f.well(t)
	acl := server.Client(t, server.Management).ACL()
	if _, err := acl.TokenDelete(first.Tokens[two].Accessor, nil); err != nil {
		t.Fatal(err)
	}
	if s := f.pass(t); !strings.Contains(s.Problem, "tokens of agents were revoked in Consul: crew") {
		t.Errorf("a token that was revoked: %+v", s)
	}
	f.cluster("a1", "crew", "dc1", 1)
	f.well(t) // its machine is gone

	second := f.renewed(t, "a1", first)
	both = sorted(first.Tokens[one].Accessor, second.Tokens[one].Accessor)
	if got := f.accessors(t, "a1"); !slices.Equal(got, both) {
		t.Errorf("while nodes are given others: %v", got)
	}
	second.Former = false
	f.sealed.setAgents("a1", &second)
	f.well(t)
	if got := f.accessors(t, "a1"); !slices.Equal(got, []string{second.Tokens[one].Accessor}) {
		t.Errorf("after the renewal: %v", got)
	}
	f.gone(t, end)
}

// renewed has other tokens made while the former ones stay.
func (f *fixture) renewed(t *testing.T, uid string, former director.ConsulAgents) director.ConsulAgents {
	t.Helper()
	second := f.manned(uid)
	second.Former = true
	f.sealed.setAgents(uid, &second)
	f.keep(t, uid)
	f.well(t)
	if len(second.Tokens) != 1 || len(former.Tokens) != 2 {
		t.Errorf("%d tokens after %d", len(second.Tokens), len(former.Tokens))
	}
	return second
}

// gone ends the agent of crew-master-1 and its cluster.
func (f *fixture) gone(t *testing.T, end func(os.Signal)) {
	t.Helper()
	has := func() bool {
		n, _, err := f.consul.Client(t, f.consul.Management).Catalog().Node("kaas-crew-master-1", nil)
		return err == nil && n != nil
	}
	f.drop("a1", "crew")
	f.sealed.setAgents("a1", nil)
	for range 2 {
		if err := f.EndAgents(t.Context(), "dc1", "a1"); err != nil {
			t.Fatal(err)
		}
	}
	if f.well(t); !has() || f.accessors(t, "a1") != nil {
		t.Errorf("while its agent answers, the node is there: %t, and tokens %v", has(), f.accessors(t, "a1"))
	}
	end(os.Kill)
	until(t, "the end of the node", func() bool { f.well(t); return !has() })
}

// A node whose machine lives stays while its agent is off, and a machine of another director is not touched.
func testAgentThatIsOff(t *testing.T, server *consultest.Server) {
	f := setup(t, server, "director-off")
	may, _ := server.Token(t, makerRules)
	f.account.token = director.Secret(may)
	f.cluster("o1", "off", "dc1", 1)
	node := "off-master-1"
	end := f.agent(t, "o1", node, f.manned("o1").Tokens[node]) // before its token is there
	f.keep(t, "o1")
	until(t, "the agent", func() bool { return len(f.absent(t)) == 0 })
	end(os.Kill)
	until(t, "the end of the agent", func() bool { return slices.Equal(f.absent(t), []string{node + " changed"}) })
	f.well(t)
	if got := f.absent(t); !slices.Equal(got, []string{node + " changed"}) {
		t.Errorf("an agent that is off: %v", got)
	}
	// Removed by a plan whose Consul was away.
	f.sealed.setAgents("o1", nil)
	f.well(t)
	if got := f.accessors(t, "o1"); got != nil {
		t.Errorf("a cluster without agents has tokens %v", got)
	}
	n, _, err := server.Client(t, server.Management).Catalog().Node(Node(node), nil)
	if err != nil || n != nil {
		t.Errorf("and the node %v, %v", n, err)
	}
	f.world.docs[model.Ref{Kind: model.KindCluster, Name: "off"}].Cluster.Discovery.Agents = true
	if err, asked := findings(t, f)["right acl:write"]; !asked || err != nil {
		t.Errorf("the test of a Consul asks for the right: %t, %v", asked, err)
	}
	for key, want := range map[director.Secret]bool{"short": false, director.Secret(server.Gossip + "\n"): true} {
		f.account.token = key
		f.world.docs[model.Ref{Kind: model.KindConsul, Name: "dc1"}].Consul.Gossip = "gossip"
		if got, err := f.GossipKey(t.Context(), "dc1"); (err == nil) != want || want && got.Reveal() != server.Gossip {
			t.Errorf("the gossip key %q: %v", key, err)
		}
	}
}
