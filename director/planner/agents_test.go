package planner

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// stepOf returns the step of that id.
func stepOf(t *testing.T, c plan.Content, id string) plan.Step {
	t.Helper()
	i := slices.IndexFunc(c.Steps, func(s plan.Step) bool { return s.ID == id })
	if i < 0 {
		t.Fatalf("there is no step %s among %v", id, ids(t, c, nil))
	}
	return c.Steps[i]
}

// manned is a cluster that runs, whose document and installation say so of agents.
func manned(t *testing.T, was, is model.Discovery) World {
	t.Helper()
	w := syncing(t, was, is)
	w.Consul.Consul.Agents = model.ConsulAgents{Join: []string{"10.0.0.11", "consul.example.org:8302"}}
	return w
}

// What a change of spec.discovery.agents does to a cluster that runs.
func TestAgentsFollowTheDocument(t *testing.T) {
	t.Parallel()
	with, without := model.Discovery{Consul: "dc1", Agents: true}, model.Discovery{Consul: "dc1"}
	elsewhere := model.Discovery{Consul: "dc2", Agents: true}
	for name, tt := range map[string]struct {
		was, is model.Discovery
		want    []string
	}{
		"agents come": {without, with, []string{
			"release.push/k8s-1.37", "consul.agents/make", "consul_agents/demo", "cluster.ready/demo",
		}},
		"agents go": {with, without, []string{
			"release.push/k8s-1.37", "consul_agents_remove/demo", "consul.agents/end", "cluster.ready/demo",
		}},
		"another Consul": {elsewhere, with, []string{
			"release.push/k8s-1.37", "consul_agents_remove/demo", "consul.agents/end", "consul.agents/make",
			"consul_agents/demo", "cluster.ready/demo",
		}},
		"names come beside agents": {with, model.Discovery{Consul: "dc1", Agents: true, DNS: true}, []string{
			"release.push/k8s-1.37", "cluster_dns/demo", "cluster.ready/demo",
		}},
	} {
		c, err := Apply(manned(t, tt.was, tt.is), plan.Request{})
		if diff := cmp.Diff(tt.want, ids(t, c, err)); diff != "" {
			t.Errorf("%s (-want +got)\n%s", name, diff)
		}
		if name == "another Consul" && !strings.Contains(string(c.Steps[2].Params), `"consul":"dc2"`) {
			t.Errorf("the tokens of another Consul end: %s", c.Steps[2].Params)
		}
	}
	w := manned(t, with, with)
	w.Seen = map[string]Seen{"demo-master-1": {Ready: true}}
	c, err := Consul(w, plan.Request{Operation: plan.ClusterConsul})
	if diff := cmp.Diff([]string{
		"release.push/k8s-1.37", "consul.agents/renew", "consul_agents/demo", "consul.agents/settle",
		"cluster.ready/demo",
	}, ids(t, c, err)); diff != "" {
		t.Error(diff)
	}
	if play := string(c.Steps[2].Params); strings.Contains(play, "demo-worker-1") ||
		!strings.Contains(strings.Join(c.Warnings, "\n"), "demo-worker-1 does not answer") {
		t.Errorf("a node that is off: %s, %q", play, c.Warnings)
	}
}

// Each node that a plan prepares has its token before, and the facts say what its agent is told.
func TestAgentsOfNewNodes(t *testing.T) {
	t.Parallel()
	agents := model.Discovery{Consul: "dc1", Agents: true}
	w := demo(t)
	w.Consul = manned(t, agents, agents).Consul
	w.Consul.Consul.Agents.Program = model.ConsulProgram{URL: "https://files.example.org/consul", SHA256: "abc"}
	w.Cluster.Cluster.Discovery = agents
	c, err := Create(w)
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range c.Steps {
		if s.Class() == "prepare" && !slices.Contains(s.Needs, "consul.agents/make") {
			t.Errorf("%s needs %v", s.ID, s.Needs)
		}
		if s.ID == "consul_agents/demo" {
			t.Error("the agents are installed twice")
		}
	}
	f, err := step.DecodeFacts(c)
	if err != nil || f.Agents == nil {
		t.Fatal(f.Agents, err)
	}
	if diff := cmp.Diff(&step.Agents{
		Owner: w.Director.ID, Datacenter: "east", Domain: "consul", CA: "PEM",
		Join: []string{"10.0.0.11:8301", "consul.example.org:8302"},
		URL:  "https://files.example.org/consul", SHA256: "abc",
	}, f.Agents); diff != "" {
		t.Error(diff)
	}
	gone, err := Delete(w, plan.Request{})
	if err != nil {
		t.Fatal(err)
	}
	if s := stepOf(t, gone, "consul.agents/end"); !slices.Contains(stepOf(t, gone, "cluster.forget/demo").Needs, s.ID) {
		t.Errorf("the cluster is forgotten before its agents: %+v", s)
	}
	more := manned(t, agents, agents)
	want(&more, func(c *model.Cluster) { c.Workers[0].Count++ })
	c, err = Apply(more, plan.Request{})
	if err != nil {
		t.Fatal(err)
	}
	if s := stepOf(t, c, "join/demo-worker-2"); !slices.Contains(s.Needs, "consul.agents/make") {
		t.Errorf("the new node needs %v", s.Needs)
	}
}

// Gossip comes from the networks of the document, and from the servers.
func TestNetworksOfAgents(t *testing.T) {
	t.Parallel()
	agents := model.Discovery{Consul: "dc1", Agents: true}
	w := manned(t, agents, agents)
	if got := w.agents().Networks; got != nil {
		t.Errorf("without networks in the document: %v", got)
	}
	w.Consul.Consul.Agents.Networks = append(w.Consul.Consul.Agents.Networks, w.Network.Network.CIDR)
	want := []string{w.Network.Network.CIDR.String(), "10.0.0.11"}
	if got := w.agents().Networks; !slices.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// What a change of services does: the tokens get the rights, and the agents of the pool are told.
func TestServicesFollowTheDocument(t *testing.T) {
	t.Parallel()
	agents := model.Discovery{Consul: "dc1", Agents: true}
	web := []model.VMService{{Name: "web", Port: 80, Check: model.VMServiceCheck{TCP: true, Interval: 10e9}}}
	w := manned(t, agents, agents)
	w.Seen = map[string]Seen{"demo-master-1": {Ready: true}, "demo-worker-1": {Ready: true}}
	want(&w, func(c *model.Cluster) { c.Workers[0].Services, c.API.VIP = web, netip.MustParseAddr("10.90.0.5") })
	w.Installed.Cluster.API.VIP = netip.MustParseAddr("10.90.0.5")
	c, err := Apply(w, plan.Request{})
	if diff := cmp.Diff([]string{
		"release.push/k8s-1.37", "consul.agents/make", "consul_agents/demo", "cluster.ready/demo",
	}, ids(t, c, err)); diff != "" {
		t.Fatal(diff)
	}
	if play := string(stepOf(t, c, "consul_agents/demo").Params); !strings.Contains(play, "demo-worker-1") ||
		strings.Contains(play, "demo-master-1") {
		t.Errorf("it runs on %s", play)
	}
	f, err := step.DecodeFacts(c)
	if err != nil {
		t.Fatal(err)
	}
	got, nodes := map[string][]step.Service{}, f.Nodes
	for _, n := range nodes {
		got[n.Name] = f.Services(n)
	}
	if diff := cmp.Diff(map[string][]step.Service{
		"demo-master-1": {{
			ID: "kaas-api-demo-master-1", Name: "kaas-api-demo", Address: nodes[0].Address, Port: 6443,
			Tags:  []string{"master"},
			Check: step.ServiceCheck{Scheme: "https", Port: 6443, Path: "/readyz", Interval: 5},
		}, {
			ID: "kaas-api-vip-" + f.UID + "-demo-master-1", Name: "kaas-api-demo", Address: "10.90.0.5", Port: 6443,
			Tags: []string{"vip"}, Check: step.ServiceCheck{Scheme: "https", Port: 6443, Path: "/readyz", Interval: 5},
		}},
		"demo-worker-1": {{
			ID: "web-demo-worker-1", Name: "web", Address: nodes[1].Address, Port: 80, Tags: []string{},
			Check: step.ServiceCheck{Scheme: "tcp", Port: 80, Interval: 10},
		}},
	}, got); diff != "" {
		t.Error(diff)
	}
	w.Installed.Cluster.Workers = slices.Clone(w.Installed.Cluster.Workers)
	w.Installed.Cluster.Workers[0].Services = web
	c, err = Apply(w, plan.Request{})
	if got := ids(t, c, err); !slices.Equal(got, []string{"cluster.ready/demo"}) && len(got) > 0 {
		t.Errorf("services that are as they were bring %v", got)
	}
	want(&w, func(c *model.Cluster) { c.Workers[0].Services = nil })
	c, err = Apply(w, plan.Request{})
	if diff := cmp.Diff([]string{
		"release.push/k8s-1.37", "consul.agents/make", "consul_agents/demo", "cluster.ready/demo",
	}, ids(t, c, err)); diff != "" {
		t.Errorf("a service that goes\n%s", diff)
	}
}
