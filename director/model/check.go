package model

import (
	"fmt"
	"net/netip"
)

// Set is the documents that exist, by name.
type Set map[Ref]*Document

// SetOf returns the documents as a set; a later one of a name replaces an earlier one.
func SetOf(docs []Document) Set {
	s := make(Set, len(docs))
	for i := range docs {
		s[docs[i].Ref()] = &docs[i]
	}
	return s
}

// References lists what the document names.
func (d *Document) References() []Ref {
	switch {
	case d.Network != nil:
		return []Ref{{KindProvider, d.Network.Provider}}
	case d.Cluster != nil:
		c := d.Cluster
		return []Ref{{KindRelease, c.Release}, {KindProvider, c.Provider}, {KindImage, c.Image}, {KindNetwork, c.Network}}
	}
	return nil
}

// Check returns every problem of the document with those that it names, as one invalid error, or nil. The document has passed Validate.
func Check(d *Document, all Set) error {
	v := validator{ref: d.Ref()}
	missing := false
	for _, r := range d.References() {
		if all[r] == nil {
			missing = true
			v.fail("spec."+field(r.Kind), "apply it first, or with this document", "there is no %s named %q", r.Kind, r.Name)
		}
	}
	if !missing {
		switch {
		case d.Network != nil:
			v.networkAgainst(d, all)
		case d.Cluster != nil:
			v.clusterAgainst(d.Cluster, all)
		}
	}
	return invalid(v)
}

func field(k Kind) string {
	return map[Kind]string{KindRelease: "release", KindProvider: "provider", KindImage: "image", KindNetwork: "network"}[k]
}

func (v *validator) networkAgainst(d *Document, all Set) {
	v.modeOf(d.Network, all[Ref{KindProvider, d.Network.Provider}].Provider)
	for ref, other := range all {
		if ref.Kind == KindNetwork && ref != d.Ref() && other.Network.Provider == d.Network.Provider && other.Network.CIDR.Overlaps(d.Network.CIDR) {
			v.fail("spec.cidr", "choose another range", "%s overlaps %s, %s, on the same provider", d.Network.CIDR, ref, other.Network.CIDR)
		}
	}
}

func (v *validator) clusterAgainst(c *Cluster, all Set) {
	network := all[Ref{KindNetwork, c.Network}].Network
	image, release := all[Ref{KindImage, c.Image}].Image, all[Ref{KindRelease, c.Release}].Release
	if network.Provider != c.Provider {
		v.fail("spec.network", "a Network of provider "+c.Provider, "Network/%s lies on provider %s", c.Network, network.Provider)
	}
	if image.Kubernetes != release.Kubernetes {
		v.fail("spec.image", "an Image that carries "+release.Kubernetes, "Image/%s carries Kubernetes %s, and Release/%s is %s", c.Image, image.Kubernetes, c.Release, release.Kubernetes)
	}
	for _, r := range []struct {
		path string
		cidr netip.Prefix
	}{{"spec.pods.cidr", c.Pods.CIDR}, {"spec.services.cidr", c.Services.CIDR}} {
		if r.cidr.Overlaps(network.CIDR) {
			v.fail(r.path, "choose ranges that do not touch", "%s overlaps the nodes' range, %s", r.cidr, network.CIDR)
		}
	}
	if c.API.VIP.IsValid() {
		if !network.CIDR.Contains(c.API.VIP) {
			v.fail("spec.api.vip", "", "%s is not inside the network's range, %s", c.API.VIP, network.CIDR)
		} else if inPool(network, c.API.VIP) {
			v.fail("spec.api.vip", "exclude it from the pool, or choose another", "%s lies in the network's pool", c.API.VIP)
		}
	}
	if nodes, free := c.Masters.Count+c.WorkerCount(), network.Addresses(); nodes > free {
		v.fail("spec.network", "a wider pool", "the pool of Network/%s has %d addresses, and the cluster needs %d", c.Network, free, nodes)
	}
}

// Addresses returns how many addresses the pool holds.
func (n *Network) Addresses() int {
	count := 0
	for a := n.Pool.From; a.IsValid() && !n.Pool.To.Less(a); a = a.Next() {
		if inPool(n, a) {
			count++
		}
	}
	return count
}

// Free returns the first count addresses of the pool that used does not hold, or an error that says how many are left.
func (n *Network) Free(count int, used map[netip.Addr]bool) ([]netip.Addr, error) {
	var free []netip.Addr
	for a := n.Pool.From; a.IsValid() && !n.Pool.To.Less(a) && len(free) < count; a = a.Next() {
		if inPool(n, a) && !used[a] {
			free = append(free, a)
		}
	}
	if len(free) < count {
		return nil, fmt.Errorf("%d addresses are needed and %d are free in %s-%s", count, len(free), n.Pool.From, n.Pool.To)
	}
	return free, nil
}
