// Package vms looks after the ledger of VMs: it lists VMs as the ledger and the hypervisors have them, audits the one
// against the other, and adopts or reclaims what a person names. The comparison itself is director/ledger's.
package vms

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/kube"
	"github.com/director-kaas/kaas/director/ledger"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
)

// Backends gives the back end of a provider.
type Backends interface {
	Backend(ctx context.Context, provider string) (hypervisor.Backend, error)
}

// Clusters connects to the APIs of clusters. steps.Clusters implements it.
type Clusters interface {
	Cluster(ctx context.Context, uid, name, endpoint string) (steps.API, error)
}

// HostKeys keeps the SSH host keys of machines. steps.Keys implements it.
type HostKeys interface {
	// LearnHostKey takes the host key of the machine that its cluster has with the director's signature; conflict if it
	// has none.
	LearnHostKey(ctx context.Context, uid string, m director.Machine, node kube.Node) error
}

// Disks lists the disks that outlived their VMs.
type Disks interface {
	// OnProviders returns the disks on the named providers, and how each provider answered.
	OnProviders(ctx context.Context, providers []string) ([]ledger.Disk, []ledger.Compared, error)
}

// Config is what New needs.
type Config struct {
	Store    *store.Store
	Backends Backends
	Clusters Clusters
	HostKeys HostKeys
	Disks    Disks
	Director string // the id in our stamps
	Now      func() time.Time
}

// Service looks after the ledger of VMs. It is safe for concurrent use.
type Service struct {
	store    *store.Store
	backends Backends
	clusters Clusters
	hostKeys HostKeys
	disks    Disks
	director string
	now      func() time.Time

	dropped sync.Map // ids of plans that have left no snapshot any more
}

// New returns the service.
func New(c Config) *Service {
	return &Service{
		store: c.Store, backends: c.Backends, clusters: c.Clusters, hostKeys: c.HostKeys, disks: c.Disks,
		director: c.Director, now: c.Now,
	}
}

// The owners of VMs.
const (
	OwnerLedger   = "ledger"   // it has a row
	OwnerFenced   = "fenced"   // it was given up when its host was lost
	OwnerOrphan   = "orphan"   // it carries our stamp, and has none
	OwnerStranger = "stranger" // it is not ours
)

// Item is a VM as the hypervisor has it, with its row.
type Item struct {
	Provider string
	Owner    string
	VM       hypervisor.VM    // without an ID for a row whose VM was not seen
	Machine  director.Machine // zero without a row
}

// View is a list of VMs, with the providers that were asked.
type View struct {
	Items     []Item
	Providers []ledger.Compared
}

// List returns the VMs of the named providers, or of all, as the ledger and the hypervisors have them. Strangers are in
// it only if asked for.
func (s *Service) List(ctx context.Context, strangers bool, providers ...string) (View, error) {
	names, err := s.store.ProviderNames(ctx, providers)
	if err != nil {
		return View{}, err
	}
	var v View
	seen := map[string][]hypervisor.VM{} // before the rows, as in an audit
	for _, name := range names {
		c := ledger.Compared{Name: name}
		if seen[name], c.Err = s.list(ctx, name, strangers); c.Err != nil && ctx.Err() != nil {
			return v, ctx.Err()
		}
		c.VMs = len(seen[name])
		v.Providers = append(v.Providers, c)
	}
	rows, err := s.store.Machines(ctx, store.MachineFilter{})
	if err != nil {
		return v, err
	}
	lost, err := s.store.LostMachines(ctx, "")
	if err != nil {
		return v, err
	}
	for _, c := range v.Providers {
		v.Items = append(v.Items, s.owners(c.Name, seen[c.Name], rows, lost)...)
	}
	slices.SortFunc(v.Items, func(a, b Item) int {
		return strings.Compare(
			a.Provider+"/"+a.VM.Name+"/"+string(a.VM.ID), b.Provider+"/"+b.VM.Name+"/"+string(b.VM.ID),
		)
	})
	return v, nil
}

// owners returns the VMs of the provider with their rows, and the rows whose VMs were not seen.
func (s *Service) owners(provider string, seen []hypervisor.VM, rows, lost []director.Machine) []Item {
	given := map[string]director.Machine{}
	for _, m := range lost {
		given[m.ID] = m
	}
	left := map[string]director.Machine{}
	for _, m := range rows {
		if m.Provider == provider {
			left[m.ID] = m
		}
	}
	known := maps.Clone(left)
	var items []Item
	for _, vm := range seen {
		item := Item{Provider: provider, VM: vm, Owner: OwnerStranger}
		if vm.Stamp.Director == s.director {
			item.Owner = OwnerOrphan
			if m, ok := given[vm.Stamp.Machine]; ok {
				item.Owner, item.Machine = OwnerFenced, m
			}
			if m, ok := known[vm.Stamp.Machine]; ok {
				item.Owner, item.Machine = OwnerLedger, m
				delete(left, m.ID)
			}
		}
		items = append(items, item)
	}
	for _, m := range left { // rows without a VM, or of a provider that did not answer
		items = append(items, Item{
			Provider: provider, Owner: OwnerLedger, Machine: m, VM: hypervisor.VM{Name: m.Name, Host: m.Host},
		})
	}
	return items
}

// patience is how long a provider may take to list its VMs.
const patience = time.Minute

func (s *Service) list(ctx context.Context, provider string, strangers bool) ([]hypervisor.VM, error) {
	b, err := s.backends.Backend(ctx, provider)
	if err != nil {
		return nil, err
	}
	soon, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	list, err := b.List(soon, hypervisor.Filter{Director: s.director, Strangers: strangers})
	return list, hypervisor.Late(ctx, soon, "vms.list", provider, patience, err)
}

// home returns the cluster on the provider that the VM was made for, or none: its name only says where to look, and its
// stamp proves it.
func home(clusters []model.Stored, provider string, vm hypervisor.VM) model.Stored {
	for _, c := range clusters {
		if c.Cluster.Provider == provider && strings.HasPrefix(vm.Name, c.Metadata.Name+"-") &&
			planner.MadeFor(c.UID, vm.Name, vm.Stamp.Machine) {
			return c
		}
	}
	return model.Stored{}
}

// family is home also for a VM that was renamed, with the node's name. It looks at every name of every cluster.
func family(clusters []model.Stored, provider string, vm hypervisor.VM) (model.Stored, string) {
	if c := home(clusters, provider, vm); c.UID != "" {
		return c, vm.Name
	}
	for _, c := range clusters {
		if c.Cluster.Provider != provider {
			continue
		}
		if name, ok := planner.NodeWithID(c.UID, planner.NodeNames(c.Metadata.Name, c.Cluster), vm.Stamp.Machine); ok {
			return c, name
		}
	}
	return model.Stored{}, vm.Name
}
