package providers

import (
	"cmp"
	"context"
	"encoding/hex"
	"net/netip"
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/store"
)

// The uses of addresses.
const (
	UseNode     = "node"     // of a machine of the ledger
	UseVirtual  = "virtual"  // a cluster's API answers there
	UseStatic   = "static"   // a document gives it to a node that is not made yet
	UseGateway  = "gateway"  // of the nodes
	UseRouter   = "router"   // of a further route
	UseDNS      = "dns"      // a name server of the nodes
	UseExcluded = "excluded" // the pool leaves it, or a range of them, to others
)

// Uses returns every use of addresses.
func Uses() []string {
	return []string{UseNode, UseVirtual, UseStatic, UseGateway, UseRouter, UseDNS, UseExcluded}
}

// AddressUse is an address of a network, or a range of excluded ones, with what it is used for.
type AddressUse struct {
	Range   model.AddressRange
	Use     string
	Pool    bool                  // the pool would give it away if it were free
	Cluster string                // empty if it is of none
	Machine string                // name of the machine; empty if it is of none
	Role    director.Role         // of the machine
	State   director.MachineState // of the machine
}

// AddressQuery says which addresses of a network are wanted.
type AddressQuery struct {
	Network string
	Text    string   // in the address, the machine or the cluster, in any case; empty for all
	Uses    []string // empty for all
	director.Page
}

// AddressView is a part of the addresses of a network that are in use.
type AddressView struct {
	Items []AddressUse // by address
	Next  *director.Place
	Total int // that the query leaves
	Pool  int // addresses that the pool gives away
	Used  int // of these, that machines have
}

// Free is how many addresses are left for new nodes.
func (v AddressView) Free() int { return v.Pool - v.Used }

// Addresses tells which addresses of a network are used for what, as the ledger and the documents have it, and how many
// of the pool are free. No hypervisor is asked.
func (c *Capacity) Addresses(ctx context.Context, q AddressQuery) (AddressView, error) {
	doc, err := c.store.Document(ctx, model.Ref{Kind: model.KindNetwork, Name: q.Network})
	if err != nil {
		return AddressView{}, err
	}
	machines, err := c.store.Machines(ctx, store.MachineFilter{NetworkName: q.Network})
	if err != nil {
		return AddressView{}, err
	}
	clusters, err := c.store.Documents(ctx, model.KindCluster)
	if err != nil {
		return AddressView{}, err
	}
	v := AddressView{Pool: doc.Network.Addresses()}
	all := addressUses(doc, machines, clusters)
	given := map[netip.Addr]bool{}
	for _, u := range all {
		if u.Use == UseNode && u.Pool {
			given[u.Range.From] = true
		}
	}
	v.Used = len(given)
	for _, u := range all {
		if !q.matches(u) {
			continue
		}
		v.Total++
		after := q.After == nil || cmp.Or(
			strings.Compare(sortable(u), q.After.Value), strings.Compare(u.name(), q.After.Name),
		) > 0
		switch {
		case !after:
		case q.Limit == 0 || len(v.Items) < q.Limit:
			v.Items = append(v.Items, u)
		case v.Next == nil:
			last := v.Items[len(v.Items)-1]
			v.Next = &director.Place{Value: sortable(last), Name: last.name()}
		}
	}
	return v, nil
}

func (q AddressQuery) matches(u AddressUse) bool {
	if len(q.Uses) > 0 && !slices.Contains(q.Uses, u.Use) {
		return false
	}
	text := strings.ToLower(q.Text)
	return slices.ContainsFunc([]string{u.Range.String(), u.Machine, u.Cluster}, func(s string) bool {
		return strings.Contains(strings.ToLower(s), text)
	})
}

// name tells uses of one address apart.
func (u AddressUse) name() string {
	return u.Use + " " + u.Cluster + " " + u.Machine + " " + u.Range.String()
}

// sortable is a text that sorts as the address does.
func sortable(u AddressUse) string {
	b := u.Range.From.As16()
	return hex.EncodeToString(b[:])
}

// addressUses returns what the addresses of the network are used for, by address.
func addressUses(doc model.Stored, machines []director.Machine, clusters []model.Stored) []AddressUse {
	name, network := doc.Metadata.Name, doc.Network
	var out []AddressUse
	taken, gives := map[netip.Addr]bool{}, network.Giver()
	add := func(a netip.Addr, u AddressUse) {
		u.Range, u.Pool = model.AddressRange{From: a, To: a}, gives(a)
		out = append(out, u)
	}
	for _, m := range machines {
		if a, err := netip.ParseAddr(m.On(name)); err == nil {
			taken[a] = true
			add(a, AddressUse{Use: UseNode, Cluster: m.Cluster, Machine: m.Name, Role: m.Role, State: m.State})
		}
	}
	for _, c := range clusters {
		for _, f := range c.Cluster.Fixed(name) {
			switch {
			case f.At == model.FieldVIP:
				add(f.Address, AddressUse{Use: UseVirtual, Cluster: c.Metadata.Name})
			case !taken[f.Address]:
				add(f.Address, AddressUse{Use: UseStatic, Cluster: c.Metadata.Name})
			}
		}
	}
	if network.Gateway.IsValid() {
		add(network.Gateway, AddressUse{Use: UseGateway})
	}
	for _, r := range network.Routes {
		add(r.Via, AddressUse{Use: UseRouter})
	}
	for _, a := range network.DNS {
		if network.CIDR.Contains(a) {
			add(a, AddressUse{Use: UseDNS})
		}
	}
	for _, r := range network.Pool.Exclude {
		out = append(out, AddressUse{Range: r, Use: UseExcluded})
	}
	slices.SortFunc(out, func(a, b AddressUse) int {
		return cmp.Or(strings.Compare(sortable(a), sortable(b)), strings.Compare(a.name(), b.name()))
	})
	return slices.CompactFunc(out, func(a, b AddressUse) bool { return a == b })
}
