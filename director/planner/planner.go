// Package planner compares what should be with what is and writes plans. It is pure: the same World gives the same bytes.
package planner

import (
	"net/netip"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
)

// World is everything that a plan is made from.
type World struct {
	Director  Director
	Cluster   model.Stored
	Provider  model.Stored
	Network   model.Stored
	Image     model.Stored
	Release   model.Stored
	Bundle    Bundle             // what the release's bundle holds
	Machines  []director.Machine // of this cluster's uid, tombstones too
	Seen      map[string]Seen    // the nodes as the cluster's API shows them; nil if nobody has looked
	Blind     string             // why somebody who looked saw nothing
	Used      map[netip.Addr]bool
	Sharers   []string // other clusters with machines on the same network
	Installed *Installed
	Host      map[string]int           // VMs per hypervisor host of the provider, for placement
	Times     map[string]time.Duration // what steps have taken of late, by class
}

// Director is what nodes need to know of the director.
type Director struct {
	ID        string
	Address   string // as the nodes see it
	Registry  string // host:port of the embedded registry
	Playbooks string // hash of the tree of playbooks
}

// Bundle is what a plan needs to know of a release bundle.
type Bundle struct {
	Digest     string            // SHA-256 of release.yaml: the plan is for these bytes
	Components map[string]string // versions by name
	ImageTags  map[string]string // tag by image name
	Programs   map[string]string // SHA-256 of the programs that an upgrade puts on nodes, by name
}

// Installed is what the last finished plan brought about.
type Installed struct {
	Generation int64
	Cluster    model.Cluster
}

// Port is where the Kubernetes API answers.
const Port = 6443

func (w World) refs() []plan.ModelRef {
	var refs []plan.ModelRef
	for _, d := range []model.Stored{w.Provider, w.Image, w.Release, w.Network, w.Cluster} {
		refs = append(refs, plan.ModelRef{Kind: string(d.Kind), Name: d.Metadata.Name, Generation: d.Generation})
	}
	return refs
}
