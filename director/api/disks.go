package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/disks"
	"github.com/director-kaas/kaas/director/ledger"
	"github.com/director-kaas/kaas/director/wire"
)

// Disks is what the API offers of disks that outlived their VMs. All methods return *director.Error and are safe for
// concurrent use.
type Disks interface {
	// List returns the disks that f selects.
	List(ctx context.Context, f disks.Filter) (disks.View, error)
	// Delete destroys a disk that no machine has; conflict says who has it.
	Delete(ctx context.Context, actor, provider, id string) (ledger.Disk, error)
}

type disksInput struct {
	Provider []string `query:"provider" maxItems:"100" doc:"Only these providers, separated by commas."`
	Cluster  string   `query:"cluster" maxLength:"64" doc:"Only disks of nodes of this cluster."`
	Plan     string   `query:"plan" maxLength:"64" doc:"Only disks that this plan kept, as the ledger has them; no hypervisor is asked."`
}

type diskInput struct {
	Name string `path:"name" maxLength:"64" doc:"Name of the provider."`
	Disk string `path:"disk" maxLength:"128" doc:"Id of the disk."`
}

func (s *providerRoutes) disks(api huma.API) {
	tags := []string{"Kept disks"}
	operation(s.server, api, huma.Operation{
		OperationID: "list-disks", Method: http.MethodGet, Path: "/disks", Tags: tags,
		Summary: "List the disks that outlived their VMs",
		Description: "Data disks stay when their VMs go, and so do disks that others had attached. The hypervisors " +
			"are asked; a provider that does not answer is " +
			"named, and its disks are shown as the ledger has them.",
		Errors: []int{http.StatusNotFound},
	}, director.ActRead, kindProvider,
		func(ctx context.Context, _ director.Actor, in *disksInput) (*body[wire.Disks], error) {
			v, err := s.Disks.List(ctx, disks.Filter{Providers: in.Provider, Cluster: in.Cluster, Plan: in.Plan})
			if err != nil {
				return nil, err
			}
			return &body[wire.Disks]{wire.Disks{Items: disksOf(v.Items), Providers: comparedOf(v.Providers)}}, nil
		})
	operation(s.server, api, huma.Operation{
		OperationID: "delete-disk", Method: http.MethodDelete, Path: "/providers/{name}/disks/{disk}", Tags: tags,
		Summary: "Destroy a kept disk",
		Description: "The disk and everything on it is lost. Only a disk that no machine and no VM has. One that " +
			"others had attached is taken off the list, and not " +
			"destroyed. It can be repeated until the disk is gone.",
		Errors: []int{http.StatusNotFound, http.StatusConflict},
	}, director.ActLedger, kindProvider,
		func(ctx context.Context, a director.Actor, in *diskInput) (*body[wire.Disk], error) {
			d, err := s.Disks.Delete(ctx, a.User, in.Name, in.Disk)
			if err != nil {
				return nil, err
			}
			return &body[wire.Disk]{disksOf([]ledger.Disk{d})[0]}, nil
		})
}

func disksOf(list []ledger.Disk) []wire.Disk {
	out := make([]wire.Disk, len(list))
	for i, d := range list {
		out[i] = wire.Disk{
			ID: d.ID, Provider: d.Provider, Host: d.Host, Name: d.Name, State: string(d.State), Cluster: d.Cluster,
			Pool: d.Pool, Node: d.Node,
			SizeBytes: d.Size, Plan: d.Plan, CopyOf: d.CopyOf, VM: d.VM,
		}
		if d.State == ledger.DiskTaken {
			out[i].Holder = d.Holder
		}
		if !d.Kept.IsZero() {
			at := d.Kept.UTC()
			out[i].KeptAt = &at
		}
	}
	return out
}
