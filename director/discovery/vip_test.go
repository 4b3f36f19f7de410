package discovery

import (
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/discovery/consultest"
	"github.com/director-kaas/kaas/director/model"
)

// shared is a cluster of two masters whose agents have the virtual address.
type shared struct {
	*fixture
	vip    *port // who answers at the virtual address, as far as checks are concerned
	agents director.ConsulAgents
	ends   map[string]func(os.Signal)
}

// joins starts the agent of a master. Its check of the virtual address asks the port.
func (s shared) joins(t *testing.T, master string) {
	t.Helper()
	check := []map[string]string{{"tcp": fmt.Sprintf("127.0.0.1:%d", s.vip.number), "interval": "100ms"}}
	s.ends[master] = s.agent(t, "v1", master, s.agents.Tokens[master], map[string]any{
		"id": director.ConsulVIPEntry("v1", master), "name": "kaas-api-shared", "address": "10.0.0.1", "port": 6443,
		"tags": []string{TagVIP}, "checks": check,
	})
}

// is wants the virtual address in Consul as these have it, each with its state. The director need not compare for it.
func (s shared) is(t *testing.T, when string, want ...string) {
	t.Helper()
	c := s.consul.Client(t, s.consul.Management)
	slices.Sort(want)
	until(t, fmt.Sprint(when, ": ", want), func() bool {
		list, _, err := c.Health().Service("kaas-api-shared", TagVIP, false, nil)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, e := range list {
			got = append(got, e.Node.Node+"="+e.Checks.AggregatedStatus())
		}
		slices.Sort(got)
		return slices.Equal(got, want)
	})
}

// The agents of masters register the virtual address, so that its check moves while the director is away. The director
// has an entry of its own until one of them reaches the address, and again when none of them is left.
func testVirtualAddress(t *testing.T, server *consultest.Server) {
	const one, two = "shared-master-1", "shared-master-2"
	s := shared{
		fixture: setup(t, server, "director-vip"), vip: &port{number: consultest.FreePorts(t, 1)[0]},
		ends: map[string]func(os.Signal){},
	}
	may, _ := server.Token(t, makerRules)
	s.account.token = director.Secret(may)
	s.cluster("v1", "shared", "dc1", 2)
	s.world.docs[model.Ref{Kind: model.KindCluster, Name: "shared"}].Cluster.Discovery.Agents = true
	s.agents = s.manned("v1")
	for node, token := range s.agents.Tokens {
		token.Services = []string{"kaas-api-shared"}
		s.agents.Tokens[node] = token
	}
	s.sealed.setAgents("v1", &s.agents)
	s.keep(t, "v1")
	s.well(t)
	const own = "kaas-v1=passing"
	s.is(t, "before there is an agent", own)
	s.joins(t, one)
	s.is(t, "before an agent reaches it", own, "kaas-"+one+"=critical")
	s.well(t)
	s.is(t, "and once the director has compared", own, "kaas-"+one+"=critical")

	s.vip.open(t)
	s.is(t, "an agent reaches it", own, "kaas-"+one+"=passing")
	if is := s.well(t); is.Removed != 1 || is.Held != nil {
		t.Errorf("the director's entry is handed over: %+v", is)
	}
	s.is(t, "after that", "kaas-"+one+"=passing")
	s.joins(t, two)
	s.is(t, "with both agents", "kaas-"+one+"=passing", "kaas-"+two+"=passing")
	_ = s.vip.l.Close()
	s.is(t, "no one answers there", "kaas-"+one+"=critical", "kaas-"+two+"=critical")
	s.well(t)
	s.is(t, "and the director leaves it to them", "kaas-"+one+"=critical", "kaas-"+two+"=critical")
	s.vip.open(t)
	s.is(t, "it answers again, without the director", "kaas-"+one+"=passing", "kaas-"+two+"=passing")
	s.wellShown(t, one, two)

	s.ends[one](os.Kill)
	s.is(t, "a master dies", "kaas-"+one+"=critical", "kaas-"+two+"=passing")
	if is := s.well(t); is.Written != 0 {
		t.Errorf("the other one has the address: %+v", is)
	}
	s.ends[two](os.Interrupt) // it leaves
	s.is(t, "the other one is removed", "kaas-"+one+"=critical")
	s.well(t)
	s.is(t, "the director has it again", own, "kaas-"+one+"=critical")
	s.leavesNothing(t)
}

// wellShown wants people to be shown the entries of the agents, and no difference because of them.
func (s shared) wellShown(t *testing.T, masters ...string) {
	t.Helper()
	list, err := s.Services(t.Context(), "dc1")
	if err != nil {
		t.Fatal(err)
	}
	shown := map[string]bool{}
	for _, r := range list {
		if r.Drift != DriftNone {
			t.Errorf("%s/%s is shown as %s", r.Node, r.ID, r.Drift)
		}
		if r.Agent {
			shown[r.ID] = r.Passing && r.ClusterName == "shared" && r.Address == "10.0.0.1"
		}
	}
	for _, m := range masters {
		if !shown[director.ConsulVIPEntry("v1", m)] {
			t.Errorf("the entry of %s is not shown as it is: %v", m, shown)
		}
	}
}

// leavesNothing deletes the cluster, and wants nothing of it in Consul.
func (s shared) leavesNothing(t *testing.T) {
	t.Helper()
	s.drop("v1", "shared")
	s.sealed.setAgents("v1", nil)
	if err := s.EndAgents(t.Context(), "dc1", "v1"); err != nil {
		t.Fatal(err)
	}
	if err := s.Deregister(t.Context(), "dc1", "v1"); err != nil {
		t.Fatal(err)
	}
	nodes, _, err := s.consul.Client(t, s.consul.Management).Catalog().Nodes(&api.QueryOptions{
		NodeMeta: map[string]string{MetaCluster: "v1"},
	})
	if err != nil || len(nodes) > 0 {
		t.Errorf("there are %d nodes of it, %v", len(nodes), err)
	}
	s.is(t, "the cluster is gone")
}
