package hypervisor

import (
	"cmp"
	"context"
	"slices"
	"strings"
)

// DiscoveredKind is a kind of what a provider has.
type DiscoveredKind string

// The kinds. Hosts are of every provider, the next three of libvirt, and the others of vSphere.
const (
	FoundHost         DiscoveredKind = "host"
	FoundStoragePool  DiscoveredKind = "storage_pool"
	FoundNetwork      DiscoveredKind = "network" // of libvirt, also those that the director did not make
	FoundBridge       DiscoveredKind = "bridge"
	FoundDatacenter   DiscoveredKind = "datacenter"
	FoundCluster      DiscoveredKind = "cluster" // of hosts
	FoundResourcePool DiscoveredKind = "resource_pool"
	FoundDatastore    DiscoveredKind = "datastore"
	FoundPortGroup    DiscoveredKind = "port_group" // standard or distributed
	FoundFolder       DiscoveredKind = "folder"     // of VMs
	FoundTemplate     DiscoveredKind = "template"
)

// DiscoveredKinds are all kinds, in the order of Discovery.Items.
func DiscoveredKinds() []DiscoveredKind {
	return []DiscoveredKind{
		FoundHost, FoundStoragePool, FoundNetwork, FoundBridge, FoundDatacenter, FoundCluster, FoundResourcePool,
		FoundDatastore, FoundPortGroup, FoundFolder, FoundTemplate,
	}
}

// Discovered is one thing that a provider has.
type Discovered struct {
	Kind DiscoveredKind
	In   string // host, cluster or datacenter that has it; empty for what is in none
	Name string // as documents name it: a name or an inventory path
	// About is what helps to choose, in a few words: dir, at /var/lib/libvirt/images; nat, 10.0.0.0/24.
	About string
	// Problem is why it cannot be used now, such as a pool that is stopped; empty if it can.
	Problem string

	Size, Free int64 // of storage, in bytes

	// Of hosts. Memory is in bytes, and VMs counts all of them, also strangers.
	CPUs               int
	Memory, MemoryFree int64
	VMs                int
}

// Discovery is what a provider has, as far as the account may see it.
type Discovery struct {
	Version string // of what answered; empty if nothing did
	Items   []Discovered
	Left    map[DiscoveredKind]int // how many more there are of a kind than are told
	Unseen  []HostState            // hosts that did not answer, of which nothing is told
}

// MostDiscovered is how many items of one kind are told at most.
const MostDiscovered = 500

// Bound orders the items by kind, place and name, and cuts each kind at MostDiscovered.
func (d *Discovery) Bound() {
	kinds := DiscoveredKinds()
	slices.SortFunc(d.Items, func(x, y Discovered) int {
		return cmp.Or(
			cmp.Compare(slices.Index(kinds, x.Kind), slices.Index(kinds, y.Kind)), strings.Compare(x.In, y.In),
			strings.Compare(x.Name, y.Name),
		)
	})
	count := map[DiscoveredKind]int{}
	d.Items = slices.DeleteFunc(d.Items, func(i Discovered) bool {
		count[i.Kind]++
		return count[i.Kind] > MostDiscovered
	})
	for kind, n := range count {
		if n > MostDiscovered {
			if d.Left == nil {
				d.Left = map[DiscoveredKind]int{}
			}
			d.Left[kind] = n - MostDiscovered
		}
	}
}

// Discoverer is implemented by back ends that can tell what they have, for those who write documents.
type Discoverer interface {
	// Discover returns what the provider has, bounded as Discovery.Bound says. It changes nothing, and needs an address
	// and an account alone: the rest of the provider's document may be wrong or missing. A host that does not answer is
	// told in Unseen and hides none of the others. Errors: unavailable if nothing answers before ctx ends.
	Discover(ctx context.Context) (Discovery, error)
}
