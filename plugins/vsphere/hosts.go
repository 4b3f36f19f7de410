package vsphere

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// esx is a host of the cluster.
type esx struct {
	ref   types.ManagedObjectReference
	name  string
	state string // why no VM can go there now; empty if one can
	// maintained is whether it is connected, and in maintenance.
	maintained bool
	cpus       int
	memory     int64
	free       int64
	networks   map[types.ManagedObjectReference]bool
	stores     map[types.ManagedObjectReference]bool
}

// hosts returns the provider's hosts, ordered by name. Errors: not_found if one that the configuration names is not in
// the cluster.
func (b *center) hosts(ctx context.Context, op string, p *place) ([]*esx, error) {
	found, err := retrieve(ctx, p.vim, types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{Obj: p.cluster.Reference(), Skip: types.NewBool(
			true,
		), SelectSet: []types.BaseSelectionSpec{&types.TraversalSpec{
			Type: "ComputeResource", Path: "host",
		}}}},
		PropSet: []types.PropertySpec{{Type: "HostSystem", PathSet: []string{
			"name", "runtime.connectionState", "runtime.inMaintenanceMode", "summary.hardware", "summary.quickStats",
			"network", "datastore",
		}}},
	})
	if err != nil {
		return nil, b.translate(ctx, op, "the hosts of cluster "+b.cfg.Cluster, b.forget(err))
	}
	var all []*esx
	for _, o := range found {
		var h mo.HostSystem
		if err := mo.LoadObjectContent([]types.ObjectContent{o}, &h); err != nil {
			return nil, b.translate(ctx, op, "a host of cluster "+b.cfg.Cluster, err)
		}
		if len(b.cfg.Hosts) > 0 && !slices.Contains(b.cfg.Hosts, h.Name) {
			continue
		}
		e := &esx{ref: o.Obj, name: h.Name, networks: refs(h.Network), stores: refs(h.Datastore)}
		if hw := h.Summary.Hardware; hw != nil {
			e.cpus, e.memory = int(hw.NumCpuThreads), hw.MemorySize
			e.free = max(0, hw.MemorySize-int64(h.Summary.QuickStats.OverallMemoryUsage)<<20)
		}
		switch {
		case h.Runtime.ConnectionState != types.HostSystemConnectionStateConnected:
			e.state = "is " + string(h.Runtime.ConnectionState)
		case h.Runtime.InMaintenanceMode:
			e.state, e.maintained = "is in maintenance", true
		}
		all = append(all, e)
	}
	slices.SortFunc(all, func(x, y *esx) int { return strings.Compare(x.name, y.name) })
	var missing []director.Field
	for i, name := range b.cfg.Hosts {
		if !slices.ContainsFunc(all, func(e *esx) bool { return e.name == name }) {
			missing = append(missing, director.Field{
				Path: fmt.Sprintf("hosts[%d]", i), Msg: "the cluster " + b.cfg.Cluster + " has no host " + name,
			})
		}
	}
	return all, missingObjects(op, missing)
}

func refs(list []types.ManagedObjectReference) map[types.ManagedObjectReference]bool {
	set := map[types.ManagedObjectReference]bool{}
	for _, r := range list {
		set[r] = true
	}
	return set
}

// choose returns the host for a new VM, or nil if DRS is to choose. Errors: not_found if the host or a port group is
// not there, unavailable if the host is in maintenance or cannot be reached, exhausted if no host has the memory.
func (b *center) choose(
	ctx context.Context, op string, p *place, s hypervisor.Spec, needs map[types.ManagedObjectReference]string,
) (*esx, error) {
	all, err := b.hosts(ctx, op, p)
	if err != nil {
		return nil, err
	}
	if slices.Contains(b.lost, s.Host) {
		return nil, director.Errorf(director.KindConflict, op, "host %s was declared lost", s.Host).
			WithHint("place the VM on another host")
	}
	all = slices.DeleteFunc(all, func(e *esx) bool { return slices.Contains(b.lost, e.name) })
	if s.Host != "" {
		i := slices.IndexFunc(all, func(e *esx) bool { return e.name == s.Host })
		if i < 0 {
			return nil, director.Errorf(director.KindNotFound, op, "the provider has no host %q", s.Host).
				WithHint("name hosts as vCenter does, and only those of cluster %s", b.cfg.Cluster)
		}
		return all[i], all[i].fits(op, s, needs)
	}
	var fit []*esx
	var first error
	for _, e := range all {
		if err := e.fits(op, s, needs); err == nil {
			fit = append(fit, e)
		} else if first == nil || rank(err) < rank(first) {
			first = err
		}
	}
	if len(fit) == 0 {
		if first == nil {
			first = director.Errorf(director.KindUnavailable, op, "the cluster %s has no hosts", b.cfg.Cluster).
				WithHint("add hosts to it in vCenter")
		}
		return nil, first
	}
	drs, err := b.drs(ctx, p)
	if err != nil {
		return nil, b.translate(ctx, op, "cluster "+b.cfg.Cluster, err)
	}
	if drs && len(b.cfg.Hosts) == 0 {
		return nil, nil
	}
	taken := map[types.ManagedObjectReference]int{}
	if s.Apart {
		members, err := b.apart(ctx, p, s.Group)
		if err != nil {
			return nil, b.translate(ctx, op, "the VMs of "+s.Group, err)
		}
		for _, m := range members {
			taken[m.host]++
		}
	}
	return slices.MinFunc(fit, func(x, y *esx) int {
		return cmp.Or(cmp.Compare(taken[x.ref], taken[y.ref]), cmp.Compare(y.free, x.free), cmp.Compare(x.name, y.name))
	}), nil
}

// rank orders the reasons why hosts do not fit: what a person must mend comes before what passes.
func rank(err error) int {
	return slices.Index(
		[]director.Kind{director.KindNotFound, director.KindExhausted, director.KindUnavailable}, director.KindOf(err),
	)
}

// fits tells why a VM cannot go to the host. needs are networks and datastores with their names.
func (e *esx) fits(op string, s hypervisor.Spec, needs map[types.ManagedObjectReference]string) error {
	if e.state != "" {
		return director.Errorf(director.KindUnavailable, op, "host %s %s", e.name, e.state).
			WithHint("bring it back in vCenter, or place the VM on another host")
	}
	if s.Memory > e.memory {
		return director.Errorf(
			director.KindExhausted, op, "%s wants %d MiB of memory, and host %s has %d MiB", s.Name, s.Memory>>20,
			e.name, e.memory>>20,
		).
			WithHint("choose a smaller VM or another host")
	}
	for ref, name := range needs {
		if !e.networks[ref] && !e.stores[ref] {
			kind := "port group"
			if ref.Type == "Datastore" {
				kind = "datastore"
			}
			return director.Errorf(director.KindNotFound, op, "host %s has no %s %s", e.name, kind, name).
				WithHint("add it to the host, or name the hosts that have it in spec.vsphere.hosts")
		}
	}
	return nil
}

// nameOf returns the name of a host or another object.
func (b *center) nameOf(ctx context.Context, p *place, ref types.ManagedObjectReference) (string, error) {
	if ref.Value == "" {
		return "", nil
	}
	p.mu.Lock()
	name := p.names[ref]
	p.mu.Unlock()
	if name != "" {
		return name, nil
	}
	found, err := retrieve(ctx, p.vim, types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{Obj: ref}},
		PropSet:   []types.PropertySpec{{Type: ref.Type, PathSet: []string{"name"}}},
	})
	if err != nil {
		return "", err
	}
	for _, o := range found {
		for _, v := range o.PropSet {
			name, _ = v.Val.(string)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.names[ref] = name
	return name, nil
}

// clusterConfig is the cluster's DRS settings with its rules.
func (b *center) clusterConfig(ctx context.Context, p *place) (*types.ClusterConfigInfoEx, error) {
	found, err := retrieve(ctx, p.vim, types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{Obj: p.cluster.Reference()}},
		PropSet:   []types.PropertySpec{{Type: "ClusterComputeResource", PathSet: []string{"configurationEx"}}},
	})
	if err != nil {
		return nil, err
	}
	for _, o := range found {
		for _, v := range o.PropSet {
			if c, ok := v.Val.(types.ClusterConfigInfoEx); ok {
				return &c, nil
			}
		}
	}
	return &types.ClusterConfigInfoEx{}, nil
}

// drs tells whether vCenter places VMs by itself.
func (b *center) drs(ctx context.Context, p *place) (bool, error) {
	c, err := b.clusterConfig(ctx, p)
	if err != nil {
		return false, err
	}
	return c.DrsConfig.Enabled != nil && *c.DrsConfig.Enabled, nil
}
