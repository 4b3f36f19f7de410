package api

import (
	"context"
	"math"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/providers"
	"github.com/director-kaas/kaas/director/wire"
)

// Capacity is what the API offers of looking ahead. All methods return *director.Error and are safe for concurrent use.
type Capacity interface {
	// Capacity tells what hosts have left, and how many VMs of a size, or of the pools of a cluster, still fit.
	Capacity(ctx context.Context, q providers.CapacityQuery) ([]providers.CapacityView, error)
	// Addresses tells which addresses of a network are used for what, and how many of its pool are free.
	Addresses(ctx context.Context, q providers.AddressQuery) (providers.AddressView, error)
}

type checkInput struct {
	Name string `path:"name" maxLength:"64" doc:"Name of the cluster."`
	Body *wire.PlanRequest
}

type capacityInput struct {
	Provider []string `query:"provider" maxItems:"100" doc:"Only these providers, separated by commas."`
	Cluster  string   `query:"cluster" maxLength:"64" doc:"The sizes of this cluster's pools, on its provider, with its quota and its network's addresses."`
	CPUs     int      `query:"cpus" minimum:"1" maximum:"64" default:"2" doc:"vCPUs of a VM."`
	Memory   string   `query:"memory" maxLength:"20" default:"4GiB" doc:"Memory of a VM."`
	Disk     string   `query:"disk" maxLength:"20" default:"30GiB" doc:"Disk of a VM."`
}

func (s *providerRoutes) capacity(api huma.API) {
	operation(s.server, api, huma.Operation{
		OperationID: "check-cluster", Method: http.MethodPost, Path: "/clusters/{name}/check",
		Tags:    []string{"Clusters"},
		Summary: "Say everything that a plan would be refused for",
		Description: "Image and release, names, addresses, quotas, capacity and the provider itself are looked at. " +
			"Nothing is stored, and nothing happens.",
		Errors: []int{http.StatusNotFound},
	}, director.ActPlan, kindCluster,
		func(ctx context.Context, _ director.Actor, in *checkInput) (*body[wire.Checked], error) {
			v, err := s.Planning.Check(ctx, in.Name, orZero(in.Body).Request())
			if err != nil {
				return nil, err
			}
			out := wire.Checked{
				Cluster: v.Cluster, OK: len(v.Problems) == 0, Operation: string(v.Operation), Summary: v.Summary,
				Steps: v.Steps, Warnings: v.Warnings,
				Problems: make([]wire.ProblemField, len(v.Problems)),
			}
			for i, f := range v.Problems {
				out.Problems[i] = wire.ProblemFieldOf(f)
			}
			for _, a := range v.Addresses {
				out.Addresses = append(out.Addresses, wire.AddressCheck(a))
			}
			return &body[wire.Checked]{out}, nil
		})
	operation(s.server, api, huma.Operation{
		OperationID: "get-capacity", Method: http.MethodGet, Path: "/capacity", Tags: []string{
			"Providers",
		}, Summary: "Tell what hosts have left, and what still fits",
		Description: "Under each provider's policy of overcommitment and its quotas. The hypervisors are asked.",
		Errors:      []int{http.StatusNotFound},
	}, director.ActRead, kindProvider,
		func(ctx context.Context, _ director.Actor, in *capacityInput) (*body[wire.Capacities], error) {
			q := providers.CapacityQuery{Providers: in.Provider, Cluster: in.Cluster, Size: model.VMSize{CPUs: in.CPUs}}
			var fields []director.Field
			for _, f := range []struct {
				name, text string
				into       *model.Size
			}{{"memory", in.Memory, &q.Size.Memory}, {"disk", in.Disk, &q.Size.Disk}} {
				var err error
				if *f.into, err = model.ParseSize(f.text); err != nil {
					fields = append(fields, director.Field{Path: "query." + f.name, Msg: err.Error()})
				}
			}
			if err := director.Invalid("api.capacity", "the size cannot be read", fields); err != nil {
				return nil, err
			}
			views, err := s.Capacity.Capacity(ctx, q)
			if err != nil {
				return nil, err
			}
			out := wire.Capacities{Items: make([]wire.Capacity, len(views))}
			for i, v := range views {
				out.Items[i] = capacityOf(v)
			}
			return &body[wire.Capacities]{out}, nil
		})
}

func capacityOf(v providers.CapacityView) wire.Capacity {
	out := wire.Capacity{
		Provider: v.Provider, Hosts: make([]wire.HostCapacity, len(v.Hosts)), Fits: make([]wire.Fit, len(v.Fits)),
		Used:  wire.Amounts{Machines: v.Used.Machines, CPUs: v.Used.CPUs, MemoryBytes: v.Used.Memory},
		Quota: wire.Amounts{Machines: v.Quota.Machines, CPUs: v.Quota.CPUs, MemoryBytes: int64(v.Quota.Memory)},
	}
	if v.Err != nil {
		out.Unseen, out.Hint = publicMessage(v.Err), director.HintOf(v.Err)
	}
	for i, h := range v.Hosts {
		row := wire.HostCapacity{
			Host: h.Host, CPUs: h.CPUs, CPUsPromised: h.CPUsPromised, MemoryBytes: h.Memory,
			MemoryPromisedBytes: h.MemoryPromised, MemoryLeftBytes: h.MemoryLeft,
			DiskBytes: h.Disk, DiskLeftBytes: h.DiskLeft,
		}
		if h.CPUsLeft != math.MaxInt {
			left := h.CPUsLeft
			row.CPUsLeft = &left
		}
		out.Hosts[i] = row
	}
	for i, f := range v.Fits {
		out.Fits[i] = wire.Fit{
			Pool: f.Pool, CPUs: f.Size.CPUs, MemoryBytes: int64(f.Size.Memory),
			DiskBytes: int64(f.Size.Disk + f.Size.DataDisk), Count: f.Count, By: f.By,
		}
	}
	return out
}
