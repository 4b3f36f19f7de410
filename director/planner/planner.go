// Package planner compares what should be with what is and writes plans. It is pure: the same World gives the same
// bytes.
package planner

import (
	"maps"
	"net/netip"
	"slices"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
)

// World is everything that a plan is made from.
type World struct {
	Director Director
	Cluster  model.Stored // of the VM of a director what OfDirector makes of its document
	Provider model.Stored
	Network  model.Stored
	Image    model.Stored
	Release  model.Stored
	Bundle   Bundle // what the release's bundle holds
	NoBundle error  // why Bundle is empty: a cluster can be deleted without it
	// Releases are those that members run, other than the document's, by version, and Images what VMs were made from,
	// by the name on the provider: as far as there are documents of them. A worker is rolled back to these.
	Releases map[string]Release
	Images   map[string]NodeImage
	Machines []director.Machine // of this cluster's uid, tombstones too
	// Disks are the disks on the provider that outlived their VMs, and Take are the ids of those that new nodes take
	// over, by node.
	Disks     []director.KeptDisk
	Take      map[string]string
	Seen      map[string]Seen // the nodes as the cluster's API shows them; nil if it was not asked
	Blind     string          // why it could not be asked
	Used      map[netip.Addr]bool
	MACs      map[string]bool     // of every adapter that the ledger has, of any cluster
	Sharers   []string            // other clusters with machines on the same network
	Underlays map[string]Underlay // of the further adapters, by the name of the network
	Installed *Installed
	// CertificateEnds is when the first certificate in the files of each node ends, by node, as far as it is known.
	CertificateEnds map[string]time.Time
	// Restore is the backup that the request restores the cluster from; nil for any other request.
	Restore *Restore
	// Drills are the machines of the cluster's restore drills, tombstones too. They are known for a drill.
	Drills []director.Machine
	// Encryption is known for the rotation of the keys that encrypt Secrets.
	Encryption KeyNames
	// Signing are the names of the keys that sign service account tokens, for a plan that changes them.
	Signing KeyNames
	// Authorities are the names of the certificate authorities by purpose (cluster, etcd, front-proxy), for a plan that
	// changes one, or that must not meet such a change half done.
	Authorities map[string]KeyNames
	// EndedAuthorities are the purposes of which an authority that is trusted has ended, for a cold renewal.
	EndedAuthorities map[string]bool
	// SSHAuthorities are the names of the cluster's SSH authorities, for a plan that changes them.
	SSHAuthorities KeyNames
	// DirectorBackups are known for a plan that changes keys.
	DirectorBackups DirectorBackups
	// Hooks are those for the cluster, by name.
	Hooks []model.Stored
	// Consul is the one that the cluster's document names; the zero one if it names none.
	Consul model.Stored
	// Registries are the outer ones that the cluster's document names, in its order.
	Registries []Registry
	// Gone is the id of the plan that began this upgrade of a director before, and did not bring it to its end.
	Gone string
	HostsSeen
	Host  map[string]int           // VMs per hypervisor host of the provider, for placement
	Peers map[string]int           // VMs of directors among them: a group of directors must survive the loss of a host
	Times map[string]time.Duration // what steps have taken recently, by class

	realNetwork model.Network        // of a drill, whose VM does not know all of it
	macHash     func(string) [3]byte // of the tests; nil for the usual one
}

// Underlay is a network of a further adapter of nodes.
type Underlay struct {
	model.Stored
	Used    map[netip.Addr]bool
	Sharers []string // other clusters with machines on it
}

// Director is what nodes need to know of the director.
type Director struct {
	ID        string
	Address   string // as the nodes see it
	Registry  string // host:port of the embedded registry
	Playbooks string // hash of the tree of playbooks
	Version   string // its release
}

// Bundle is what a plan needs to know of a release bundle.
type Bundle struct {
	Digest     string            // SHA-256 of release.yaml: the plan is for these bytes
	Components map[string]string // versions by name
	ImageTags  map[string]string // tag by image name
	Programs   map[string]string // SHA-256 of the programs that an upgrade puts on nodes, by name
	Unsigned   string            // why it is used although it has no signature
}

// Installed is what the last finished plan brought about.
type Installed struct {
	Generation int64
	Cluster    model.Cluster
	Labels     map[string]string
	Endpoint   string // host:port of the Kubernetes API
	Registries string // digest of the outer registries that nodes were told of
	// Director is the document by which the VM of another director was made; nil for a cluster.
	Director *model.Director
}

func (w World) refs() []plan.ModelRef {
	var refs []plan.ModelRef
	docs := []model.Stored{w.Provider, w.Image, w.Release, w.Network, w.Cluster}
	if w.ofDirector() { // its document has the image
		docs = []model.Stored{w.Provider, w.Network, w.Cluster}
	}
	for _, name := range slices.Sorted(maps.Keys(w.Underlays)) {
		docs = append(docs, w.Underlays[name].Stored)
	}
	if w.Consul.Consul != nil {
		docs = append(docs, w.Consul)
	}
	for _, r := range w.Registries {
		docs = append(docs, r.Stored)
	}
	for _, d := range docs {
		refs = append(refs, plan.ModelRef{Kind: string(d.Kind), Name: d.Metadata.Name, Generation: d.Generation})
	}
	return refs
}
