package providers

import (
	"context"
	"maps"
	"net/netip"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/capacity"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/snapshot"
	"github.com/director-kaas/kaas/director/store"
)

// CapacityQuery says what is to fit where.
type CapacityQuery struct {
	Providers []string // all if empty
	Cluster   string   // its pools, on its provider; or
	Size      model.VMSize
}

// CapacityView is what a provider has left.
type CapacityView struct {
	Provider string
	Err      error // why its hosts were not seen
	Hosts    []capacity.Host
	Used     capacity.Use
	Quota    model.Quota
	Fits     []Fit
}

// Fit is how many VMs of a size still fit.
type Fit struct {
	Pool  string
	Size  model.VMSize
	Count int
	By    string // what ends it
}

// Capacity tells what the hosts of providers have left. It is safe for concurrent use.
type Capacity struct {
	store    *store.Store
	backends Backends
	director string // id, in the stamps of its VMs
	patience time.Duration
}

// NewCapacity returns the service. director is the id in the stamps of the director's VMs.
func NewCapacity(s *store.Store, b Backends, director string) *Capacity {
	return &Capacity{s, b, director, DiscoveryPatience}
}

// Capacity tells of the named providers, or of all, what their hosts have left and how many VMs of the sizes still fit:
// of the size that is asked for, or of the pools of the cluster on its provider, with its quota and its network's
// addresses. A provider that hangs holds up no other.
func (c *Capacity) Capacity(ctx context.Context, q CapacityQuery) ([]CapacityView, error) {
	var cluster *model.Stored
	if q.Cluster != "" {
		doc, err := c.store.Document(ctx, model.Ref{Kind: model.KindCluster, Name: q.Cluster})
		if err != nil {
			return nil, err
		}
		cluster, q.Providers = &doc, []string{doc.Cluster.Provider}
	}
	names, err := c.store.ProviderNames(ctx, q.Providers)
	if err != nil {
		return nil, err
	}
	out := make([]CapacityView, len(names))
	var asking errgroup.Group
	asking.SetLimit(providersAtOnce)
	for i, name := range names {
		asking.Go(func() (err error) {
			out[i], err = c.of(ctx, name, q.Size, cluster)
			return err
		})
	}
	return out, asking.Wait()
}

const providersAtOnce = 16

func (c *Capacity) of(
	ctx context.Context, name string, size model.VMSize, cluster *model.Stored,
) (CapacityView, error) {
	v := CapacityView{Provider: name}
	doc, err := c.store.Document(ctx, model.Ref{Kind: model.KindProvider, Name: name})
	if err != nil {
		return v, err
	}
	machines, err := c.store.Machines(ctx, store.MachineFilter{Provider: name})
	if err != nil {
		return v, err
	}
	v.Used, v.Quota = capacity.UseOf(machines), doc.Provider.Quota
	if v.Hosts, err = c.hosts(ctx, name, doc.Provider.Overcommit); err != nil {
		if ctx.Err() != nil {
			return v, ctx.Err()
		}
		v.Err = err
		return v, nil
	}
	document := "Provider/" + name
	fit := func(pool string, s model.VMSize, more ...capacity.Bound) {
		bounds := append(capacity.Bounds(v.Quota, v.Used, s, "spec.quota", document), more...)
		f := Fit{Pool: pool, Size: s}
		f.Count, f.By = capacity.Fit(v.Hosts, s, bounds...)
		v.Fits = append(v.Fits, f)
	}
	if cluster == nil {
		fit("", size)
		return v, nil
	}
	own := slices.DeleteFunc(slices.Clone(
		machines,
	), func(m director.Machine) bool { return m.ClusterUID != cluster.UID })
	left := map[string]capacity.Bound{}
	for _, name := range cluster.Cluster.Networks() {
		network, err := c.store.Document(ctx, model.Ref{Kind: model.KindNetwork, Name: name})
		if err != nil {
			return v, err
		}
		used, _ := snapshot.OnNetwork(machines, name, cluster.UID)
		maps.DeleteFunc(used, func(a netip.Addr, _ bool) bool { return !network.Network.Holds(a) })
		left[name] = capacity.Bound{
			Field: "spec.pool of Network/" + name, Left: network.Network.Addresses() - len(used),
		}
	}
	for _, p := range cluster.Cluster.Workers {
		bounds := append(
			capacity.Bounds(doc.Provider.ClusterQuota, capacity.UseOf(own), p.VMSize, "spec.clusterQuota", document),
			left[cluster.Cluster.Network],
		)
		for _, i := range p.Further() {
			bounds = append(bounds, left[i.Network])
		}
		fit(p.Name, p.VMSize, bounds...)
	}
	return v, nil
}

// hosts asks the provider what its hosts have, and applies the policy.
func (c *Capacity) hosts(ctx context.Context, provider string, policy model.Overcommit) ([]capacity.Host, error) {
	const op = "providers.capacity"
	b, err := c.backends.Backend(ctx, provider)
	if err != nil {
		return nil, err
	}
	teller, ok := hypervisor.Capability[hypervisor.Capacity](b)
	if !ok {
		return nil, director.Errorf(
			director.KindInvalid, op, "provider %s does not tell what its hosts have", provider,
		)
	}
	soon, cancel := context.WithTimeout(ctx, c.patience)
	defer cancel()
	vms, err := b.List(soon, hypervisor.Filter{Director: c.director, Strangers: true})
	if err != nil {
		return nil, hypervisor.Late(ctx, soon, op, provider, c.patience, err)
	}
	rows, err := teller.Capacity(soon)
	return capacity.Hosts(rows, vms, policy), hypervisor.Late(ctx, soon, op, provider, c.patience, err)
}
