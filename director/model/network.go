package model

import "net/netip"

// Network is an underlay network with the addresses that nodes take from it.
type Network struct {
	Provider  string       `json:"provider" of:"Provider" doc:"Name of the Provider that it lies on." required:"true"`
	Mode      string       `json:"mode,omitempty" doc:"open: a new bridge, routed, no firewall rules. nat: a new bridge behind the host's address. isolated: a new bridge without a way out. bridge: an existing bridge. portgroup: an existing port group of vSphere, the only mode there." enum:"open,nat,isolated,bridge,portgroup" default:"nat"`
	Bridge    string       `json:"bridge,omitempty" doc:"The existing bridge; required for mode bridge."`
	PortGroup string       `json:"portGroup,omitempty" doc:"Name or inventory path of the existing port group, standard or distributed; required for mode portgroup."`
	CIDR      netip.Prefix `json:"cidr" doc:"Range of the network, such as 10.88.0.0/24." required:"true"`
	Gateway   netip.Addr   `json:"gateway,omitzero" doc:"Gateway of the nodes. For a new bridge the host takes this address. Default: the first address of the range."`
	DNS       []netip.Addr `json:"dns,omitempty" doc:"Name servers of the nodes."`
	NTP       []string     `json:"ntp,omitempty" doc:"Time servers of the nodes. Empty leaves the hypervisor's clock in charge."`
	Pool      AddressPool  `json:"pool" doc:"The addresses that the director gives to nodes." required:"true"`
	// What follows is younger than the rest, and last, so that networks without it look as they always did.
	VLAN   int     `json:"vlan,omitempty" doc:"VLAN that the nodes are in. Mode bridge: the host's bridge tags with it. Mode portgroup: the port group must have it." min:"1" max:"4094"`
	Switch string  `json:"switch,omitempty" doc:"What the existing bridge is, for mode bridge. Default: linux." enum:"linux,openvswitch"`
	Routes []Route `json:"routes,omitempty" doc:"Further routes of the nodes on this network, in addition to the default route."`
}

// Route leads to a range of addresses.
type Route struct {
	To  netip.Prefix `json:"to" doc:"Where it leads, such as 10.0.0.0/8." required:"true"`
	Via netip.Addr   `json:"via" doc:"The router, an address of the network." required:"true"`
}

// AddressPool is one or more ranges of addresses with holes.
type AddressPool struct {
	From    netip.Addr     `json:"from,omitzero" doc:"First address of the pool, if it is one range."`
	To      netip.Addr     `json:"to,omitzero" doc:"Last address of that range."`
	Exclude []AddressRange `json:"exclude,omitempty" doc:"Addresses inside the ranges that others use: 10.88.0.11, 10.88.0.20-10.88.0.29 or 10.88.0.32/28." maxItems:"1000"`
	Ranges  []AddressRange `json:"ranges,omitempty" doc:"The ranges of the pool, written 10.88.0.10-10.88.0.99 or 10.88.0.128/26; in addition to from and to, or instead of them." maxItems:"1000"`
}

// networkKind is what the model knows of the kind Network.
var networkKind = kind{
	name:    KindNetwork,
	meaning: "An underlay network with the addresses that nodes take from it.",
	spec:    func(d *Document) any { return ensure(&d.Network) },
	validate: func(v *validator, d *Document) {
		v.networks().network(d.Network)
	},
	references: func(d *Document) []Ref {
		return []Ref{{KindProvider, d.Network.Provider}}
	},
	against: func(v *validator, d *Document, all Set) {
		v.networks().networkAgainst(d, all)
	},
	columns: [][2]string{
		{"PROVIDER", "provider"}, {"MODE", "mode"}, {"CIDR", "cidr"}, {"FROM", "pool.from"}, {"TO", "pool.to"},
	},
	effects: merged(
		of(Refused, "the addresses of the machines are valid by it", "spec.provider", "spec.mode", "spec.bridge",
			"spec.portGroup",
			"spec.cidr", "spec.gateway", "spec.vlan", "spec.switch"),
		of(Refused, "addresses of machines stay in the pool, or out of it; the rest may change", "spec.pool.from",
			"spec.pool.to",
			"spec.pool.exclude", "spec.pool.ranges"),
		of(Later, whyNew, "spec.dns", "spec.ntp", "spec.routes"),
	),
}

func (v networkValidator) network(n *Network) {
	if n.Mode == "bridge" && n.Bridge == "" {
		v.fail("spec.bridge", "name the bridge of the host", "is needed for mode bridge")
	}
	if n.Mode == modePortGroup && n.PortGroup == "" {
		v.fail("spec.portGroup", "write its inventory path, such as /DC/network/nodes", "is needed for mode portgroup")
	}
	if n.Mode != modePortGroup && n.PortGroup != "" {
		v.fail("spec.portGroup", "leave it out, or set mode: portgroup", "has no meaning for mode %s", n.Mode)
	}
	if n.Mode != "bridge" && n.Bridge != "" {
		v.fail("spec.bridge", "leave it out, or set mode: bridge", "has no meaning for mode %s", n.Mode)
	}
	v.attachment(n)
	if !n.CIDR.IsValid() {
		return // the decoder has said so
	}
	if !n.CIDR.Addr().Is4() || n.CIDR.Bits() > 30 {
		v.fail(
			"spec.cidr", "an IPv4 range of at least four addresses, such as 10.88.0.0/24", "%s cannot hold nodes",
			n.CIDR,
		)
		return
	}
	if n.CIDR != n.CIDR.Masked() {
		v.fail("spec.cidr", "write "+n.CIDR.Masked().String(), "%s has bits set behind the prefix length", n.CIDR)
	}
	inside := func(path string, a netip.Addr) {
		if a.IsValid() && !n.CIDR.Contains(a) {
			v.fail(path, "", "%s is not inside %s", a, n.CIDR)
		}
	}
	inside("spec.gateway", n.Gateway)
	if v.pool(n) {
		v.poolInside(n, inside)
	}
	v.routes(n)
}

func (v networkValidator) networkAgainst(d *Document, all Set) {
	v.modeOf(d.Network, all[Ref{KindProvider, d.Network.Provider}].Provider)
	for ref, other := range all {
		if ref.Kind == KindNetwork && ref != d.Ref() && other.Network.Provider == d.Network.Provider &&
			other.Network.CIDR.Overlaps(d.Network.CIDR) {
			v.fail(
				"spec.cidr", "choose another range", "%s overlaps %s, %s, on the same provider", d.Network.CIDR, ref,
				other.Network.CIDR,
			)
		}
	}
}

// networkValidator validates networks.
type networkValidator struct{ *validator }

func (v *validator) networks() networkValidator { return networkValidator{v} }
