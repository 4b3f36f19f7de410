package discovery

import (
	"context"
	"errors"
	"maps"
	"net"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/hashicorp/consul/api"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/consulagent"
	"github.com/director-kaas/kaas/director/model"
)

// OwnAgent is the agent of Consul that runs on the machine of this director.
type OwnAgent struct {
	Dir      *consulagent.Dir // in which it finds what it is told; nil for a director without
	Instance string           // id of this director among those of its database
	Gossip   int              // port at which the agent takes gossip
	// Ready returns where this director says whether it is ready; an invalid one before it listens.
	Ready func() netip.AddrPort
	// Instances returns the ids of the directors of the database that are alive.
	Instances func(ctx context.Context) ([]string, error)
}

// fetchLimit bounds a fetch of the program.
const fetchLimit = 10 * time.Minute

// ownAgents keep what Consul knows of the agents next to directors.
type ownAgents struct{ *Service }

func (s *Service) own() ownAgents { return ownAgents{s} }

// ownAgentName is the machine's name of the director with that instance, as agents' nodes have one.
func ownAgentName(instance string) string { return "director-" + instance }

// directors returns the directors that have agents, as a cluster of their own, whose uid is the id that they share. It
// returns nil for none.
func (s ownAgents) directors(ctx context.Context) (*Cluster, error) {
	agents, known, err := s.Tokens.ConsulAgents(ctx, s.Director)
	if err != nil || !known {
		return nil, err
	}
	c := &Cluster{UID: s.Director, Consul: agents.Consul, Agents: &agents, WantsAgents: true, directors: true}
	for _, name := range slices.Sorted(maps.Keys(agents.Tokens)) {
		c.Machines = append(c.Machines, director.Machine{ID: agents.Tokens[name].Machine, Name: name})
	}
	return c, nil
}

// manned returns the clusters, and the directors as one more, for what concerns agents alone.
func (w World) manned() []Cluster {
	if w.Directors == nil {
		return w.Clusters
	}
	return append(slices.Clone(w.Clusters), *w.Directors)
}

// KeepOwnAgent tells the agent next to this director what a Consul says of it, or has it leave. Call it every few
// seconds, in each director. A Consul that is away delays nothing: the agent joins when it is back. What is wrong is
// returned once.
func (s *Service) KeepOwnAgent(ctx context.Context) error {
	if s.OwnAgent.Dir == nil || s.Connect == nil {
		return nil
	}
	err := s.own().keepOwnAgent(ctx)
	s.mu.Lock()
	defer s.mu.Unlock()
	again := err != nil && s.ownProblem != nil && director.MessageOf(err) == director.MessageOf(s.ownProblem)
	if s.ownProblem = err; again {
		return nil
	}
	return err
}

func (s ownAgents) keepOwnAgent(ctx context.Context) error {
	docs, err := s.Store.Documents(ctx, model.KindConsul)
	if err != nil {
		return err
	}
	have, known, err := s.Tokens.ConsulAgents(ctx, s.Director)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(docs, func(d model.Stored) bool { return d.Consul.Agents.Director })
	if i < 0 || known && have.Consul != docs[i].Metadata.Name {
		if err := s.OwnAgent.Dir.Quiet(); err != nil || !known {
			return err
		}
		// What is left in Consul goes with the next comparison.
		return s.Tokens.SetConsulAgents(ctx, s.Director, nil)
	}
	return s.tellOwnAgent(ctx, docs[i], have)
}

// tellOwnAgent has a token for the agent, and writes what it is told.
func (s ownAgents) tellOwnAgent(ctx context.Context, doc model.Stored, have director.ConsulAgents) error {
	ready := s.OwnAgent.Ready()
	if !ready.IsValid() {
		return nil
	}
	gossip, err := s.GossipKey(ctx, doc.Metadata.Name)
	if err != nil {
		return err
	}
	a := doc.Consul.Agents
	fetch, cancel := context.WithTimeout(ctx, fetchLimit)
	defer cancel()
	if err := s.OwnAgent.Dir.Fetch(fetch, consulagent.Source{
		URL: a.Program.URL, SHA256: a.Program.SHA256, CA: a.Program.CA, Networks: s.Networks,
	}); err != nil {
		return err
	}
	token, err := s.ownToken(ctx, doc, have)
	if err != nil {
		return err
	}
	self, ok := World{Director: s.Director, URL: s.URL}.self()
	if !ok {
		return director.Errorf(director.KindInvalid, "discovery.own_agent", "publicURL has no host")
	}
	name := ownAgentName(s.OwnAgent.Instance)
	meta := map[string]string{MetaOwner: s.Director, MetaNode: name}
	address, err := ownAddress(ctx, a.Servers())
	if err != nil {
		return err
	}
	return s.OwnAgent.Dir.Tell(consulagent.Told{
		Agent: consulagent.Agent{
			Name: Node(name), ID: uuid.NewSHA1(uuid.Nil, []byte(s.Director+"/"+name)).String(), Address: address,
			Datacenter: doc.Consul.Datacenter, Domain: doc.Consul.Domain, Join: a.Servers(),
			AutoEncrypt: a.AutoEncrypt, Gossip: s.OwnAgent.Gossip,
			Meta: map[string]string{MetaOwner: s.Director, MetaNode: name, MetaCluster: s.Director},
		},
		Token: token, Gossip: gossip, CA: doc.Consul.TLS.CA, SHA256: a.Program.SHA256,
		Services: []consulagent.Service{{
			ID: ServiceDirector, Name: ServiceDirector, Address: self.Address, Port: self.Port, Tags: self.Tags,
			Meta: meta,
			Check: consulagent.Check{
				Name: "ready, as the agent next to it sees it", Scheme: "https", Path: "/readyz", Interval: 5,
				Address: ready.Addr().String(), Port: int(ready.Port()),
			},
		}},
	})
}

// ownToken returns the token of the agent next to this director, which it makes if there is none; "" for a Consul
// without ACLs. It also forgets those of directors that are gone. Directors that do so at the same time may lose what
// another one has written: that one makes another token, and the lost one ends as any that no agent has.
func (s ownAgents) ownToken(
	ctx context.Context, doc model.Stored, have director.ConsulAgents,
) (director.Secret, error) {
	alive, err := s.OwnAgent.Instances(ctx)
	if err != nil {
		return "", err
	}
	own := ownAgentName(s.OwnAgent.Instance)
	want := director.ConsulAgents{Consul: doc.Metadata.Name, Tokens: map[string]director.AgentToken{}}
	for name, t := range have.Tokens {
		if name == own || slices.Contains(alive, t.Machine) || s.known(ctx, doc, name) {
			want.Tokens[name] = t
		}
	}
	t, there := want.Tokens[own]
	if !there {
		t = director.AgentToken{
			Machine: s.OwnAgent.Instance, Accessor: uuid.NewString(), Secret: director.Secret(uuid.NewString()),
			Services: []string{ServiceDirector},
		}
		want.Tokens[own] = t
	}
	if !there || len(want.Tokens) != len(have.Tokens) {
		if err := s.Tokens.SetConsulAgents(ctx, s.Director, &want); err != nil {
			return "", err
		}
	}
	if doc.Consul.Credentials == "" {
		return "", nil
	}
	return t.Secret, nil
}

// known tells whether the Consul has the node of a director that gives no signs of life; also if it cannot be asked.
func (s ownAgents) known(ctx context.Context, doc model.Stored, name string) bool {
	c, err := s.client(ctx, doc)
	if err != nil {
		return true
	}
	h, err := c.first(ctx)
	if err != nil {
		return true
	}
	n, _, err := h.api.Catalog().Node(Node(name), (&api.QueryOptions{}).WithContext(ctx))
	return err != nil || n != nil
}

// ownAddress returns the address from which this machine reaches the servers of a Consul. It sends nothing.
func ownAddress(ctx context.Context, servers []string) (string, error) {
	last := errors.New("spec.agents.join is empty")
	for _, at := range servers {
		c, err := (&net.Dialer{Timeout: dialLimit}).DialContext(ctx, "udp", at)
		if err != nil {
			last = err
			continue
		}
		host, _, _ := strings.Cut(c.LocalAddr().(*net.UDPAddr).AddrPort().Addr().Unmap().String(), "%")
		_ = c.Close()
		return host, nil
	}
	return "", director.Errorf(
		director.KindUnavailable, "discovery.own_agent", "this machine has no way to the servers of the Consul: %w",
		last,
	).WithHint("check spec.agents.join, and name servers and routes of this machine")
}

// watchSelf finds out whether an agent next to a director has the director's own entry. As with API servers, it has
// taken over when its entry passes, and keeps it while its agent is seen. A director without an agent writes the entry.
func (h host) watchSelf(ctx context.Context, s *Service, consul string, w *World, have Catalog) error {
	self, ok := w.self()
	if c := w.Directors; !ok || c == nil || !c.agentsIn(consul) {
		return nil
	}
	list, meta, err := h.api.Health().Service(ServiceDirector, "", false, options(ctx, s.Director))
	switch {
	case err != nil:
		return explain(h.name, err)
	case meta.ResultsFilteredByACLs:
		return errHidden()
	}
	there := slices.ContainsFunc(have.Entries, func(a Actual) bool {
		return a.Node == Node(s.Director) && a.ID == ServiceDirector
	})
	for _, e := range list {
		m, known := w.Directors.machine(e.Node.Meta[MetaNode])
		if !known || e.Node.Node != Node(m.Name) || e.Service.Address != self.Address || e.Service.Port != self.Port {
			continue
		}
		if e.Checks.AggregatedStatus() == api.HealthPassing ||
			!there && m.ID == s.OwnAgent.Instance && seen(e.Checks) {
			w.Watched = true
		}
	}
	return nil
}

// testOwnAgent looks for the agent next to this director, if the document asks for one.
func (s ownAgents) testOwnAgent(ctx context.Context, t *tester, h host) {
	if !t.doc.Consul.Agents.Director {
		return
	}
	const what, op = "agent next to the director", "discovery.own_agent"
	if s.OwnAgent.Dir == nil {
		t.add("", what, "", director.Errorf(
			director.KindNotFound, op, "the configuration of the director says nothing of it",
		).WithHint("set consulDir there; the appliance does so"))
		return
	}
	s.mu.Lock()
	problem := s.ownProblem
	s.mu.Unlock()
	name := Node(ownAgentName(s.OwnAgent.Instance))
	checks, _, err := h.api.Health().Node(name, (&api.QueryOptions{}).WithContext(ctx))
	switch {
	case problem != nil:
		err = problem
	case err != nil:
		err = explain(h.name, err)
	case !seen(checks):
		err = director.Errorf(
			director.KindUnavailable, op, "other members of the datacenter do not see %s", name,
		).WithHint("on the director's machine: journalctl -u director-consul; compare gossip key and port 8301")
	}
	t.add("", what, name+" is seen", err)
}
