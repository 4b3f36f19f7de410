package discovery

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"github.com/hashicorp/consul/api"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
)

// mostGaps bounds how many gaps are told: where hundreds of clusters are apart on purpose, each pair is one.
const mostGaps = 500

// Gap says that nodes of a cluster have no route to a network on which services of a Consul are, or that hosts outside
// of clusters have none to a network with services of the cluster.
type Gap struct {
	Cluster  string
	From     string   // network of the hosts outside that Nodes are; empty for nodes of the cluster
	Nodes    []string // that have no route; sorted
	Network  string   // empty for one that no document describes
	CIDR     string   // of the network, or the address alone
	Services []string // names of the services there; sorted
	Problem  string
	Hint     string
}

// place is where services are: a network, or an address that is on none.
type place struct{ network, cidr string }

// reacher knows how nodes get to addresses.
type reacher struct {
	networks map[string]model.Network
	clusters map[string]*model.Cluster // by uid
}

// Gaps returns which nodes have no route to which networks with services of the Consul: those that clusters and the
// director have there, and those that clusters import. It also returns which hosts outside, members of the Consul and
// the director, have no route to networks with services of clusters. It goes by what documents say of networks; what
// routers outside of them do is not known. Nothing is changed.
func (s *Service) Gaps(ctx context.Context, name string) (gaps []Gap, more int, err error) {
	list, world, _, err := s.services(ctx, name)
	if err != nil {
		return nil, 0, err
	}
	r := reacher{networks: map[string]model.Network{}, clusters: map[string]*model.Cluster{}}
	networks, err := s.Store.Documents(ctx, model.KindNetwork)
	if err != nil {
		return nil, 0, err
	}
	for _, n := range networks {
		r.networks[n.Metadata.Name] = *n.Network
	}
	clusters, err := s.Store.Documents(ctx, model.KindCluster)
	if err != nil {
		return nil, 0, err
	}
	for _, c := range clusters {
		r.clusters[c.UID] = c.Cluster
	}
	imported, err := s.imported(ctx, name, r.clusters)
	if err != nil {
		return nil, 0, err
	}
	outside, err := s.outside(ctx, name)
	if err != nil {
		return nil, 0, err
	}
	gaps = append(r.gaps(world, name, list, imported), r.gapsInto(world, name, list, outside)...)
	if more = len(gaps) - mostGaps; more > 0 {
		return gaps[:mostGaps], more, nil
	}
	return gaps, 0, nil
}

// imported returns the addresses of the services that clusters import from the Consul, by name.
func (s *Service) imported(
	ctx context.Context, name string, clusters map[string]*model.Cluster,
) (map[string][]netip.Addr, error) {
	wanted := map[string]bool{}
	for _, c := range clusters {
		if c.Discovery.Consul == name {
			for _, i := range c.Discovery.Import {
				wanted[i.Service] = true
			}
		}
	}
	out := map[string][]netip.Addr{}
	if len(wanted) == 0 || s.Connect == nil {
		return out, nil
	}
	_, h, err := s.open(ctx, name)
	if err != nil {
		return nil, err
	}
	for service := range wanted {
		list, _, err := h.api.Health().Service(service, "", false, (&api.QueryOptions{}).WithContext(ctx))
		if err != nil {
			return nil, explain(h.name, err)
		}
		for _, i := range list {
			if a, err := netip.ParseAddr(cmp.Or(i.Service.Address, i.Node.Address)); err == nil {
				out[service] = append(out[service], a)
			}
		}
	}
	return out, nil
}

// gaps looks at each cluster that names the Consul.
func (r reacher) gaps(w World, consul string, list []Registered, imported map[string][]netip.Addr) []Gap {
	var out []Gap
	for _, c := range w.Clusters {
		doc := r.clusters[c.UID]
		if c.Consul != consul || doc == nil {
			continue
		}
		wanted := map[place]map[string]bool{}
		want := func(service string, a netip.Addr, owner []director.Machine) {
			p := r.place(a, owner)
			if wanted[p] == nil {
				wanted[p] = map[string]bool{}
			}
			wanted[p][service] = true
		}
		for _, e := range list {
			if a, err := netip.ParseAddr(e.Address); err == nil && e.Cluster != c.UID {
				want(e.Service, a, w.machines(e.Cluster))
			}
		}
		for _, i := range doc.Discovery.Import {
			for _, a := range imported[i.Service] {
				want(i.Service, a, nil)
			}
		}
		for p, services := range wanted {
			if g, lacking := r.gap(c, doc, p); lacking {
				for s := range services {
					g.Services = append(g.Services, s)
				}
				slices.Sort(g.Services)
				out = append(out, g)
			}
		}
	}
	slices.SortFunc(out, func(a, b Gap) int {
		return cmp.Or(cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.Network, b.Network), cmp.Compare(a.CIDR, b.CIDR))
	})
	return out
}

func (w World) machines(uid string) []director.Machine {
	for _, c := range w.Clusters {
		if c.UID == uid && uid != "" {
			return c.Machines
		}
	}
	return nil
}

// place returns the network of the address: of those that the owner's machines are on, or else of all. Networks of
// several providers may have the same addresses; then it is not known which it is, and the place is the address alone.
func (r reacher) place(a netip.Addr, owner []director.Machine) place {
	for _, m := range owner {
		for name, n := range r.networks {
			if m.On(name) != "" && n.CIDR.Contains(a) {
				return place{name, n.CIDR.String()}
			}
		}
	}
	var found []string
	for name, n := range r.networks {
		if n.CIDR.Contains(a) {
			found = append(found, name)
		}
	}
	if len(found) == 1 {
		return place{found[0], r.networks[found[0]].CIDR.String()}
	}
	return place{"", netip.PrefixFrom(a, a.BitLen()).String()}
}

func (r reacher) gap(c Cluster, doc *model.Cluster, p place) (Gap, bool) {
	to, err := netip.ParsePrefix(p.cidr)
	if err != nil {
		return Gap{}, false
	}
	g := Gap{Cluster: c.Name, Network: p.network, CIDR: p.cidr}
	by := map[string]bool{} // the networks that a route could be added to
	for _, m := range c.Machines {
		if !r.reaches(m, doc, p, to) {
			g.Nodes = append(g.Nodes, m.Name)
			by[m.Network] = true
		}
	}
	if len(g.Nodes) == 0 {
		return g, false
	}
	slices.Sort(g.Nodes)
	g.Problem = "no network of these nodes has a route to " + p.cidr
	var names []string
	for name := range by {
		names = append(names, "Network/"+name)
	}
	slices.Sort(names)
	g.Hint = fmt.Sprintf("add a route to %s to spec.routes of %s", p.cidr, strings.Join(names, ", "))
	switch target := r.networks[p.network]; target.Mode {
	case "nat", "isolated":
		g.Problem = fmt.Sprintf("Network/%s has the mode %s: nothing outside of it leads there", p.network, target.Mode)
		g.Hint = fmt.Sprintf("put the nodes on Network/%s, too, have the services on a network of another mode, "+
			"or add "+
			"a "+
			"route over a router that is on both", p.network)
	}
	return g, true
}

// reaches tells whether the machine has a route to the place. What a document says of a route is believed. A default
// route leads to what is routed, and to what no document knows; not behind the address of a host, and not into a
// network without a way in.
func (r reacher) reaches(m director.Machine, doc *model.Cluster, p place, to netip.Prefix) bool {
	if p.network != "" && m.On(p.network) != "" {
		return true
	}
	if r.routes(m.Network, to) || slices.ContainsFunc(m.NICs, func(n director.NIC) bool {
		return r.routes(n.Network, to)
	}) {
		return true
	}
	return !r.closed(p.network) && r.leadsOut(defaultNetwork(m, doc))
}

// routes tells whether the document of the network says how its hosts get to the addresses.
func (r reacher) routes(network string, to netip.Prefix) bool {
	return slices.ContainsFunc(r.networks[network].Routes, func(route model.Route) bool {
		return route.To.Bits() <= to.Bits() && route.To.Contains(to.Addr())
	})
}

// closed tells whether no way leads into the network from outside of it.
func (r reacher) closed(network string) bool {
	mode := r.networks[network].Mode
	return mode == "nat" || mode == "isolated"
}

// leadsOut tells whether the network has a default route to what is routed.
func (r reacher) leadsOut(network string) bool {
	n := r.networks[network]
	return n.Gateway.IsValid() && n.Mode != "isolated"
}

// defaultNetwork returns the network over which the machine's default route leads.
func defaultNetwork(m director.Machine, doc *model.Cluster) string {
	vm := &doc.Masters.VMModel
	if m.Role != director.RoleMaster {
		for i := range doc.Workers {
			if doc.Workers[i].Name == m.Pool {
				vm = &doc.Workers[i].VMModel
			}
		}
	}
	for _, i := range vm.Interfaces {
		if i.DefaultRoute && i.Network != "" && m.On(i.Network) != "" {
			return i.Network
		}
	}
	return m.Network
}
