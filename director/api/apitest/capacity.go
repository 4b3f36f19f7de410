package apitest

import (
	"context"
	"math"
	"slices"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/capacity"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planning"
	"github.com/director-kaas/kaas/director/providers"
)

// Capacity implements api.Capacity: every provider has one host.
type Capacity struct{ *Operations }

var _ api.Capacity = Capacity{}

// Check finds three problems of a cluster with a label "crowded", and none of another.
func (o *Operations) Check(ctx context.Context, cluster string, _ plan.Request) (planning.CheckView, error) {
	d, err := o.Document(ctx, model.Ref{Kind: model.KindCluster, Name: cluster})
	v := planning.CheckView{
		Cluster: cluster, Operation: plan.ClusterCreate, Summary: "Create cluster " + cluster + ".", Steps: 9,
	}
	if err == nil {
		v.Addresses = []planning.AddressCheck{
			{Network: d.Cluster.Network, Addresses: 2, Ways: []string{"ledger", "hypervisor", "ssh port"}},
		}
	}
	if d.Metadata.Labels["crowded"] != "" {
		v.Problems = []director.Field{
			{Path: "Image/node: spec.sha256", Msg: "the file has 1234", Hint: "copy it again"},
			{
				Path: "Provider/lab: host host1", Msg: "40960 MiB of memory are needed and 12288 MiB are free",
				Hint: "choose smaller nodes",
			},
			{Path: "spec.workers[0].count", Msg: "is too much"},
		}
		v.Warnings = []string{"spec.masters is below the recommended size"}
	}
	return v, err
}

// Capacity tells of one host.
func (c Capacity) Capacity(ctx context.Context, q providers.CapacityQuery) ([]providers.CapacityView, error) {
	names := q.Providers
	sizes, pools := []model.VMSize{q.Size}, []string{""}
	if q.Cluster != "" {
		d, err := c.Document(ctx, model.Ref{Kind: model.KindCluster, Name: q.Cluster})
		if err != nil {
			return nil, err
		}
		names, sizes, pools = []string{d.Cluster.Provider}, nil, nil
		for _, p := range d.Cluster.Workers {
			sizes, pools = append(sizes, p.VMSize), append(pools, p.Name)
		}
	}
	if len(names) == 0 {
		names = []string{"lab"}
	}
	var out []providers.CapacityView
	for _, n := range names {
		if _, err := c.Document(ctx, model.Ref{Kind: model.KindProvider, Name: n}); err != nil {
			return nil, err
		}
		v := providers.CapacityView{Provider: n, Quota: model.Quota{
			Machines: 10,
		}, Used: capacity.Use{Machines: 2, CPUs: 4, Memory: 8 << 30}, Hosts: []capacity.Host{{
			HostCapacity: hypervisor.HostCapacity{Host: "host1", CPUs: 16, Memory: 64 << 30, Disk: 1 << 40},
			CPUsPromised: 4, MemoryPromised: 8 << 30,
			CPUsLeft: math.MaxInt, MemoryLeft: 12 << 30, DiskLeft: 1 << 39,
		}}}
		for i, s := range sizes {
			f := providers.Fit{Pool: pools[i], Size: s}
			f.Count, f.By = capacity.Fit(v.Hosts, s)
			v.Fits = append(v.Fits, f)
		}
		out = append(out, v)
	}
	return out, nil
}

// Addresses tells of two nodes, a virtual address, the gateway and a range that the pool excludes.
func (c Capacity) Addresses(ctx context.Context, q providers.AddressQuery) (providers.AddressView, error) {
	d, err := c.Document(ctx, model.Ref{Kind: model.KindNetwork, Name: q.Network})
	if err != nil {
		return providers.AddressView{}, err
	}
	v := providers.AddressView{Pool: d.Network.Addresses(), Used: 2}
	for _, u := range []struct {
		at, use, cluster, machine string
		role                      director.Role
		state                     director.MachineState
	}{
		{"10.88.0.1", providers.UseGateway, "", "", "", ""},
		{"10.88.0.5", providers.UseVirtual, "demo", "", "", ""},
		{"10.88.0.10", providers.UseNode, "demo", "demo-master-1", director.RoleMaster, director.MachinePresent},
		{"10.88.0.11", providers.UseNode, "demo", "demo-worker-1", director.RoleWorker, director.MachineIntended},
		{"10.88.0.20-10.88.0.29", providers.UseExcluded, "", "", "", ""},
	} {
		item := providers.AddressUse{
			Use: u.use, Cluster: u.cluster, Machine: u.machine, Role: u.role, State: u.state,
			Pool: u.use == providers.UseNode,
		}
		if err := item.Range.UnmarshalText([]byte(u.at)); err != nil {
			return v, err
		}
		if len(q.Uses) == 0 || slices.Contains(q.Uses, u.use) {
			v.Items = append(v.Items, item)
		}
	}
	v.Total = len(v.Items)
	return v, nil
}
