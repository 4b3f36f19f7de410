package model

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
)

// VMModel is what the VMs of a role have in addition to their size. It concerns VMs that are made from then on.
type VMModel struct {
	Interfaces   []Interface  `json:"interfaces,omitempty" doc:"Network adapters, one for each role. Without an entry for it, each node has the internal one, on spec.network."`
	SSHKeys      []string     `json:"sshKeys,omitempty" doc:"Public keys of administrators of these nodes, in addition to those of the cluster." maxLength:"8192"`
	HostAliases  []HostAlias  `json:"hostAliases,omitempty" doc:"Lines for /etc/hosts of these nodes, in addition to those of the cluster."`
	NTP          []string     `json:"ntp,omitempty" doc:"Time servers of these nodes, instead of those of spec.network."`
	Repositories []Repository `json:"repositories,omitempty" doc:"Package repositories, in addition to those of the image."`
	Packages     []string     `json:"packages,omitempty" doc:"Packages that are installed at the first boot. It takes minutes, and needs a repository that the node reaches: put them into the image where that is possible."`
	Scripts      []Script     `json:"scripts,omitempty" doc:"Scripts that are run once as root at the first boot, in order and after all else. One that fails does not stop the next; it stops the plan, with its name, its exit code and what it said last."`
	Shares       []Share      `json:"shares,omitempty" doc:"Directories that live on an NFS server."`
	Health       *Health      `json:"health,omitempty" doc:"Check that a node has to pass after its boot, before it is used."`
	Services     []VMService  `json:"services,omitempty" doc:"Services that each of these nodes offers itself. The node's agent of Consul registers them, with a check. A plan follows a change." maxItems:"20"`
	Reserved     Reserved     `json:"reserved,omitzero" doc:"What each of these nodes keeps from its pods, at most half of it. It takes effect when a node is made, rejoins or is upgraded."`
}

// The roles of network adapters.
const (
	NICInternal = "internal" // the cluster's own: SSH, the API, the kubelet's address
	NICServices = "services"
	NICStorage  = "storage"
)

// Interface is a network adapter of the nodes of a role.
type Interface struct {
	Role         string       `json:"role" doc:"What it is for. internal is spec.network, and the node's own address." enum:"internal,services,storage" required:"true"`
	Network      string       `json:"network,omitempty" of:"Network" doc:"Name of the Network; required unless role is internal."`
	Addresses    []netip.Addr `json:"addresses,omitempty" doc:"Addresses of the nodes with the numbers 1, 2, 3 and so on, outside of the network's pool. Nodes with higher numbers get theirs from the pool." maxItems:"1000"`
	DefaultRoute bool         `json:"defaultRoute,omitempty" doc:"Whether the nodes' default route leads over this network; at most one. Default: over the internal one."`
}

// Interface returns the adapter of that role, or nil.
func (m *VMModel) Interface(role string) *Interface {
	for i := range m.Interfaces {
		if m.Interfaces[i].Role == role {
			return &m.Interfaces[i]
		}
	}
	return nil
}

// Further returns the adapters after the internal one, in the order in which nodes have them.
func (m *VMModel) Further() []Interface {
	further := slices.DeleteFunc(slices.Clone(m.Interfaces), func(i Interface) bool { return i.Role == NICInternal })
	slices.SortFunc(further, func(a, b Interface) int { return cmp.Compare(a.Role, b.Role) })
	return further
}

// Static returns the address that the document gives to the node of that number; the zero Addr if it comes from the
// pool.
func (i *Interface) Static(number int) netip.Addr {
	if i == nil || number < 1 || number > len(i.Addresses) {
		return netip.Addr{}
	}
	return i.Addresses[number-1]
}

// group is the VMs of a role or pool, with the place where the document speaks of them.
type group struct {
	at    string
	count int
	vm    *VMModel
	// persist are the directories on the data disk.
	persist []string
}

func (c *Cluster) groups() []group {
	out := []group{{"spec.masters", c.Masters.Count, &c.Masters.VMModel, c.Masters.Persist}}
	for i := range c.Workers {
		out = append(out, group{
			fmt.Sprintf("spec.workers[%d]", i), c.Workers[i].Count, &c.Workers[i].VMModel, c.Workers[i].Persist,
		})
	}
	return out
}

// placed is a network that VMs are on, with the field that names it.
type placed struct {
	at      string
	network string
}

// networks returns every mention of a network other than spec.network.
func (c *Cluster) networks() []placed {
	var out []placed
	for _, g := range c.groups() {
		for i, n := range g.vm.Interfaces {
			if n.Role != NICInternal {
				out = append(out, placed{fmt.Sprintf("%s.interfaces[%d].network", g.at, i), n.Network})
			}
		}
	}
	return out
}

// Networks returns the names of the networks that nodes are on, spec.network first and each once.
func (c *Cluster) Networks() []string {
	names := []string{c.Network}
	for _, p := range c.networks() {
		if !slices.Contains(names, p.network) {
			names = append(names, p.network)
		}
	}
	return names
}

// Fixed is an address that the document itself gives away, with its field.
type Fixed struct {
	At      string
	Address netip.Addr
}

// FieldVIP is the field of the virtual address.
const FieldVIP = "spec.api.vip"

// Fixed returns the addresses that the document gives away on the network.
func (c *Cluster) Fixed(network string) []Fixed {
	var out []Fixed
	if c.API.VIP.IsValid() && network == c.Network {
		out = append(out, Fixed{FieldVIP, c.API.VIP})
	}
	for _, g := range c.groups() {
		for i, n := range g.vm.Interfaces {
			if name := cmp.Or(n.Network, c.Network); name != network {
				continue
			}
			for j, a := range n.Addresses {
				out = append(out, Fixed{fmt.Sprintf("%s.interfaces[%d].addresses[%d]", g.at, i, j), a})
			}
		}
	}
	return out
}

// drawn returns how many nodes take an address of the network's pool, and the last field that says so.
func (c *Cluster) drawn(network string) (count int, at string) {
	at = "spec.network"
	for _, g := range c.groups() {
		internal := g.vm.Interface(NICInternal)
		if network == c.Network {
			static := 0
			if internal != nil {
				static = len(internal.Addresses)
			}
			count += max(0, g.count-static)
		}
		for i, n := range g.vm.Interfaces {
			if n.Role != NICInternal && n.Network == network {
				count += max(0, g.count-len(n.Addresses))
				at = fmt.Sprintf("%s.interfaces[%d].network", g.at, i)
			}
		}
	}
	return count, at
}

// interfaces checks the adapters of one role by themselves.
func (v *vmValidator) interfaces(c *Cluster, at string, m *VMModel) {
	roles, networks, routes := map[string]int{}, map[string]int{c.Network: -1}, 0
	for i, n := range m.Interfaces {
		here := fmt.Sprintf("%s.interfaces[%d]", at, i)
		if first, twice := roles[n.Role]; twice {
			v.fail(here+".role", "keep one", "is the role of interfaces[%d] too", first)
		}
		roles[n.Role] = i
		switch first, twice := networks[n.Network]; {
		case n.Role == NICInternal:
			if n.Network != "" && n.Network != c.Network {
				v.fail(
					here+".network", "leave it out, or write "+c.Network,
					"the internal network is spec.network, %s, and not %s", c.Network, n.Network,
				)
			}
		case n.Network == "":
			v.fail(here+".network", "name a Network of the cluster's provider", "is missing")
		case twice && first < 0:
			v.fail(here+".network", "name another Network: each adapter is on its own", "is spec.network too")
		case twice:
			v.fail(
				here+".network", "name another Network: each adapter is on its own",
				"is the network of interfaces[%d] too", first,
			)
		default:
			networks[n.Network] = i
		}
		if n.DefaultRoute {
			if routes++; routes > 1 {
				v.fail(here+".defaultRoute", "leave one", "another adapter has the default route already")
			}
		}
	}
}

// addresses checks that the document gives no address away twice.
func (v *vmValidator) addresses(c *Cluster) {
	for _, network := range c.Networks() {
		seen := map[netip.Addr]string{}
		for _, f := range c.Fixed(network) {
			if first, twice := seen[f.Address]; twice {
				v.fail(f.At, "give each its own", "%s is given away by %s too", f.Address, first)
			}
			seen[f.Address] = f.At
		}
	}
}

// addressesAgainst holds the addresses of the cluster on one network against the network, and against other clusters.
func (v *vmValidator) addressesAgainst(c *Cluster, name string, n *Network, all Set) {
	taken := map[netip.Addr]Ref{}
	for ref, other := range all {
		if ref.Kind != KindCluster || ref == v.ref {
			continue
		}
		for _, f := range other.Cluster.Fixed(name) {
			taken[f.Address] = ref
		}
	}
	for _, f := range c.Fixed(name) {
		owner, used := taken[f.Address]
		switch {
		case !n.CIDR.Contains(f.Address):
			v.fail(f.At, "", "%s is not inside the network's range, %s", f.Address, n.CIDR)
		case n.Holds(f.Address):
			v.fail(f.At, "exclude it from the pool, or choose another", "%s lies in the network's pool", f.Address)
		case f.At != FieldVIP && f.Address == n.Gateway:
			v.fail(f.At, "choose another", "%s is the gateway of Network/%s", f.Address, name)
		case used:
			v.fail(f.At, "choose another", "%s belongs to %s", f.Address, owner)
		}
	}
	if need, at := c.drawn(name); need > n.Addresses() {
		v.fail(
			at, "a wider pool", "the pool of Network/%s has %d addresses, and the cluster needs %d", name,
			n.Addresses(), need,
		)
	}
}

// routesAgainst checks that the default route has a gateway.
func (v *vmValidator) routesAgainst(c *Cluster, all Set) {
	for _, g := range c.groups() {
		for i, n := range g.vm.Interfaces {
			if network := all[Ref{
				KindNetwork, cmp.Or(n.Network, c.Network),
			}].Network; n.DefaultRoute && !network.Gateway.IsValid() {
				v.fail(fmt.Sprintf(
					"%s.interfaces[%d].defaultRoute", g.at, i,
				), "give the Network its gateway, or let the default route lead over another adapter",
					"Network/%s has no gateway", cmp.Or(n.Network, c.Network))
			}
		}
	}
}
