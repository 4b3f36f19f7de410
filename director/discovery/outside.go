package discovery

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"slices"

	"github.com/hashicorp/consul/api"
)

// outside returns the hosts that may want to reach clusters, by name: the members of the Consul that are no nodes of
// clusters of this director, as far as the token may read them, and the director itself.
func (s *Service) outside(ctx context.Context, consul string) (map[string]netip.Addr, error) {
	hosts := map[string]netip.Addr{}
	if u, err := url.Parse(s.URL); err == nil {
		if a, err := netip.ParseAddr(u.Hostname()); err == nil {
			hosts["the director"] = a
		}
	}
	if s.Connect == nil {
		return hosts, nil
	}
	_, h, err := s.open(ctx, consul)
	if err != nil {
		return nil, err
	}
	nodes, _, err := h.api.Catalog().Nodes((&api.QueryOptions{}).WithContext(ctx))
	if err != nil {
		return nil, explain(h.name, err)
	}
	for _, n := range nodes { // no host is behind a node with NodeAddress
		a, err := netip.ParseAddr(n.Address)
		if err == nil && !a.IsLoopback() && n.Meta[MetaOwner] != s.Director {
			hosts[clean(n.Node)] = a
		}
	}
	return hosts, nil
}

// gapsInto looks from each network with hosts outside at the services of each cluster that names the Consul. Hosts at
// addresses that no document describes may have any route: nothing is said of them.
func (r reacher) gapsInto(w World, consul string, list []Registered, hosts map[string]netip.Addr) []Gap {
	from := map[string][]string{} // hosts by network
	for _, name := range slices.Sorted(maps.Keys(hosts)) {
		if p := r.place(hosts[name], nil); p.network != "" {
			from[p.network] = append(from[p.network], name)
		}
	}
	var out []Gap
	for _, c := range w.Clusters {
		if c.Consul != consul {
			continue
		}
		for p, services := range r.offers(c, list) {
			for network, names := range from {
				if g, lacking := r.gapInto(network, p); lacking {
					g.Cluster, g.Nodes, g.Services = c.Name, names, services
					out = append(out, g)
				}
			}
		}
	}
	slices.SortFunc(out, func(a, b Gap) int {
		return cmp.Or(
			cmp.Compare(a.Cluster, b.Cluster), cmp.Compare(a.From, b.From), cmp.Compare(a.Network, b.Network),
			cmp.Compare(a.CIDR, b.CIDR),
		)
	})
	return out
}

// offers returns where the services of the cluster are, each place with their names, sorted.
func (r reacher) offers(c Cluster, list []Registered) map[place][]string {
	out := map[place][]string{}
	for _, e := range list {
		a, err := netip.ParseAddr(e.Address)
		if err != nil || e.Cluster != c.UID {
			continue
		}
		p := r.place(a, c.Machines)
		if !slices.Contains(out[p], e.Service) {
			out[p] = append(out[p], e.Service)
			slices.Sort(out[p])
		}
	}
	return out
}

// gapInto says why hosts of the network do not get to the place; false if they do.
func (r reacher) gapInto(network string, p place) (Gap, bool) {
	to, err := netip.ParsePrefix(p.cidr)
	if err != nil || network == p.network || r.routes(network, to) {
		return Gap{}, false
	}
	g := Gap{
		From: network, Network: p.network, CIDR: p.cidr,
		Problem: fmt.Sprintf("Network/%s has no route to %s", network, p.cidr),
		Hint: fmt.Sprintf(
			"give these hosts a route to %s, and add it to spec.routes of Network/%s", p.cidr, network,
		),
	}
	if r.closed(p.network) {
		g.Problem = fmt.Sprintf(
			"Network/%s has the mode %s: nothing outside of it leads there", p.network, r.networks[p.network].Mode,
		)
		g.Hint = fmt.Sprintf("have the cluster on a network of another mode, or a router that is on both, and add its "+
			"route to spec.routes of Network/%s", network)
		return g, true
	}
	return g, !r.leadsOut(network)
}
