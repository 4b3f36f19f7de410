package discovery

import (
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/hashicorp/consul/api"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/discovery/consultest"
	"github.com/director-kaas/kaas/director/model"
)

// port is a port of the loopback address that is open or closed.
type port struct {
	number int
	l      net.Listener
}

func (p *port) open(t *testing.T) {
	t.Helper()
	var err error
	if p.l, err = (&net.ListenConfig{}).Listen(t.Context(), "tcp", fmt.Sprintf("127.0.0.1:%d", p.number)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = p.l.Close() })
}

// The agent of a master registers its API server, and the director hands its own entry over: at no time is a server
// that is well without an entry that passes, and the director's is back when the agent is gone.
func testHandover(t *testing.T, server *consultest.Server) {
	f := setup(t, server, "director-hand")
	may, _ := server.Token(t, makerRules)
	f.account.token = director.Secret(may)
	f.cluster("h1", "hand", "dc1", 1)
	doc := f.world.docs[model.Ref{Kind: model.KindCluster, Name: "hand"}].Cluster
	doc.Discovery.Agents = true
	const master = "hand-master-1"
	agents := f.manned("h1")
	token := agents.Tokens[master]
	token.Services = []string{"kaas-api-hand", "web"}
	agents.Tokens[master] = token
	f.sealed.setAgents("h1", &agents)
	f.keep(t, "h1")
	f.well(t)
	own := []string{
		"director-hand/kaas-director=passing", "h1/kaas-api-hand-master-1=passing",
		"h1/kaas-api-vip=passing",
	}
	f.has(t, "before there is an agent", own...)

	p := &port{number: consultest.FreePorts(t, 1)[0]}
	check := []map[string]string{{"tcp": fmt.Sprintf("127.0.0.1:%d", p.number), "interval": "100ms"}}
	end := f.agent(t, "h1", master, token, map[string]any{
		"id": "kaas-api-" + master, "name": "kaas-api-hand", "address": "10.0.2.1", "port": 6443,
		"tags": []string{TagMaster}, "checks": check,
	}, map[string]any{
		"id": "web-" + master, "name": "web", "address": "10.0.2.1", "port": 80, "checks": check,
	}, map[string]any{"id": "db-" + master, "name": "db", "port": 5432})
	const theirs, web = master + "/kaas-api-" + master, master + "/web-" + master
	until(t, "the agent's entries", func() bool {
		got := f.entries(t, "director-hand")
		return slices.Contains(got, theirs+"=critical") && slices.Contains(got, web+"=critical")
	})
	f.well(t)
	f.has(t, "before the agent's check passes", append(own, theirs+"=critical", web+"=critical")...)
	p.open(t)
	until(t, "checks that pass", func() bool {
		got := f.entries(t, "director-hand")
		return slices.Contains(got, theirs+"=passing") && slices.Contains(got, web+"=passing")
	})
	if s := f.well(t); s.Removed != 1 || s.Held != nil {
		t.Errorf("the director's entry is handed over: %+v", s)
	}
	left := []string{own[0], own[2]}
	f.has(t, "after that", append(left, theirs+"=passing", web+"=passing")...)
	_ = p.l.Close()
	until(t, "checks that fail", func() bool {
		got := f.entries(t, "director-hand")
		return slices.Contains(got, theirs+"=critical") && slices.Contains(got, web+"=critical")
	})
	f.well(t)
	f.has(t, "while the server is down", append(left, theirs+"=critical", web+"=critical")...)
	f.shows(t, master)
	f.narrowed(t, agents, token)
	doc.Discovery.Agents = false
	if s := f.well(t); s.Written != 1 {
		t.Errorf("before a plan takes the agents away: %+v", s)
	}
	f.has(t, "then", append(own, theirs+"=critical", web+"=critical")...)
	doc.Discovery.Agents = true
	end(os.Kill)
	until(t, "the end of the agent", func() bool { return slices.Equal(f.absent(t), []string{master + " changed"}) })
	f.well(t)
	f.has(t, "without its agent", append(own, theirs+"=critical", web+"=critical")...)
}

// has compares the entries of the director with those that are wanted. It leaves out what agents say of themselves.
func (f *fixture) has(t *testing.T, when string, want ...string) {
	t.Helper()
	slices.Sort(want)
	if got := f.entries(t, f.Director); !slices.Equal(got, want) {
		t.Errorf("%s there are %q, want %q", when, got, want)
	}
}

// shows looks at what people are shown of an agent's entries.
func (f *fixture) shows(t *testing.T, node string) {
	t.Helper()
	list, err := f.Services(t.Context(), "dc1")
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, r := range list {
		if r.Agent {
			got = append(got, fmt.Sprint(r.ClusterName, " ", r.ID, " ", r.Passing, " ", r.Own, r.Drift))
		}
	}
	if want := []string{
		"hand kaas-api-" + node + " false false", "hand web-" + node + " false false",
	}; !slices.Equal(got, want) {
		t.Errorf("shown are %q", got)
	}
}

// narrowed takes a service from the token of a node: it may write the others alone.
func (f *fixture) narrowed(t *testing.T, agents director.ConsulAgents, token director.AgentToken) {
	t.Helper()
	c := f.consul.Client(t, token.Secret.Reveal())
	writes := func(name string) bool {
		_, err := c.Catalog().Register(&api.CatalogRegistration{
			Node: "kaas-h1", Address: NodeAddress, SkipNodeUpdate: true,
			Service: &api.AgentService{ID: "stray", Service: name},
		}, nil)
		if err == nil {
			_, err = f.consul.Client(t, f.consul.Management).Catalog().Deregister(
				&api.CatalogDeregistration{Node: "kaas-h1", ServiceID: "stray"}, nil,
			)
			return err == nil
		}
		return false
	}
	if !writes("web") || writes("db") || writes("web-sidecar-proxy") || writes("kaas-api-other") {
		t.Error("the token of a node writes other services than its own")
	}
	token.Services = []string{"kaas-api-hand"}
	agents.Tokens["hand-master-1"] = token
	f.sealed.setAgents("h1", &agents)
	f.keep(t, "h1")
	if writes("web") || !writes("kaas-api-hand") {
		t.Error("the token of a node still writes a service that is gone")
	}
	all, _, err := f.consul.Client(t, f.consul.Management).ACL().PolicyList(nil)
	if err != nil {
		t.Fatal(err)
	}
	var policies []string
	for _, p := range all {
		if strings.HasPrefix(p.Name, servicesPrefix+"h1-") {
			policies = append(policies, p.Name)
		}
	}
	if want := []string{servicesPolicy("h1", token.Services)}; !slices.Equal(policies, want) {
		t.Errorf("policies are %v, want %v", policies, want)
	}
}
