package discovery

import (
	"cmp"
	"context"
	"slices"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
)

// Drift says how an entry differs from what is wanted.
type Drift string

// The drifts.
const (
	DriftNone    Drift = ""        // as wanted, or written by a program in the cluster
	DriftMissing Drift = "missing" // wanted, and not there
	DriftChanged Drift = "changed" // there, but otherwise
	DriftSurplus Drift = "surplus" // there, and not wanted
)

// Registered is an entry on one of the director's nodes, or one that is wanted there.
type Registered struct {
	Entry
	ClusterName string
	Own         bool // the director writes it
	Agent       bool // the agent of a node does; otherwise a program in the cluster
	Drift       Drift
}

// View is a Consul with how its last comparison went.
type View struct {
	Name  string
	Spec  model.Consul
	State director.ConsulState
}

// List returns all Consuls by name.
func (s *Service) List(ctx context.Context) ([]View, error) {
	docs, err := s.Store.Documents(ctx, model.KindConsul)
	if err != nil {
		return nil, err
	}
	states, err := s.Store.ConsulStates(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]View, len(docs))
	for i, d := range docs {
		out[i] = View{Name: d.Metadata.Name, Spec: *d.Consul, State: states[d.Metadata.Name]}
	}
	slices.SortFunc(out, func(a, b View) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// Services asks the Consul, and returns what is on the director's nodes and what is missing there, by cluster and id,
// and the nodes whose agents are not seen. A director that simulates asks nothing: all is missing but agents.
// Nothing is changed.
func (s *Service) Services(ctx context.Context, name string) ([]Registered, error) {
	list, world, nodes, err := s.services(ctx, name)
	if err != nil || s.Connect == nil {
		return list, err
	}
	return append(list, absent(world, name, nodes)...), nil
}

// services is Services without agents, with what these are found by.
func (s *Service) services(
	ctx context.Context, name string,
) (list []Registered, world World, nodes []CatalogNode, err error) {
	if world, err = s.world(ctx); err != nil {
		return nil, world, nil, err
	}
	if s.Connect == nil {
		if _, err := s.consul(ctx, name); err != nil {
			return nil, world, nil, err
		}
		wanted, keep := Wanted(world, name)
		return registered(world, wanted, Catalog{}, Compare(s.Director, wanted, keep, Catalog{})), world, nil, nil
	}
	_, h, err := s.open(ctx, name)
	if err != nil {
		return nil, world, nil, err
	}
	have, err := h.read(ctx, s.Director)
	if err != nil {
		return nil, world, nil, err
	}
	if err := s.watch(ctx, h, name, &world, have); err != nil {
		return nil, world, nil, err
	}
	wanted, keep := Wanted(world, name)
	passing := make(map[[2]string]bool, len(have.Entries))
	for _, a := range have.Entries {
		passing[[2]string{a.Node, a.ID}] = a.Passing
	}
	for i, e := range wanted { // how servers are is the catalog's to say here
		if p, there := passing[[2]string{e.Node, e.ID}]; there {
			wanted[i].Passing = p
		}
	}
	list = registered(world, wanted, have, Compare(s.Director, wanted, keep, have))
	more, err := h.byAgents(ctx, world, have.Agents)
	list = append(list, more...)
	order(list)
	return list, world, have.Agents, err
}

func registered(world World, wanted []Entry, have Catalog, c Changes) []Registered {
	names := map[string]string{}
	for _, cluster := range world.Clusters {
		names[cluster.UID] = cluster.Name
	}
	cluster := map[string]string{}
	leaving := map[string]bool{}
	for _, n := range have.Nodes {
		cluster[n.Name] = n.Meta[MetaCluster]
	}
	for _, n := range c.Nodes {
		leaving[n.Name] = true
	}
	drift := map[[2]string]Drift{}
	for _, a := range c.Remove {
		drift[[2]string{a.Node, a.ID}] = DriftSurplus
	}
	for _, e := range c.Put {
		drift[[2]string{e.Node, e.ID}] = DriftMissing
	}
	var out []Registered
	for _, a := range have.Entries {
		key := [2]string{a.Node, a.ID}
		r := Registered{Entry: a.Entry, Own: a.Meta[MetaWriter] == writer, Drift: drift[key]}
		r.Cluster = cluster[a.Node]
		r.ClusterName = cmp.Or(names[r.Cluster], a.Meta[MetaName])
		switch {
		case leaving[a.Node]:
			r.Drift = DriftSurplus
		case r.Drift == DriftMissing:
			r.Drift = DriftChanged
		}
		delete(drift, key)
		out = append(out, r)
	}
	for _, e := range wanted {
		if drift[[2]string{e.Node, e.ID}] == DriftMissing {
			out = append(out, Registered{Entry: e, ClusterName: e.name, Own: true, Drift: DriftMissing})
		}
	}
	order(out)
	return out
}

func order(list []Registered) {
	slices.SortFunc(list, func(a, b Registered) int {
		return cmp.Or(cmp.Compare(a.ClusterName, b.ClusterName), cmp.Compare(a.Node, b.Node), cmp.Compare(a.ID, b.ID))
	})
}
