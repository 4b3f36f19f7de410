package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/ledger"
	"github.com/director-kaas/kaas/director/vms"
	"github.com/director-kaas/kaas/director/wire"
)

// Ledger is what the API offers of the ledger of VMs. All methods return *director.Error and are safe for concurrent
// use.
type Ledger interface {
	// List lists the VMs of the named providers, or of all, with strangers or without.
	List(ctx context.Context, strangers bool, providers ...string) (vms.View, error)
	// Audit compares the ledger with what the named providers have, or all. It changes nothing.
	Audit(ctx context.Context, providers ...string) (ledger.Report, error)
	// Adopt writes an orphan into the ledger again; conflict says why it cannot be. said are addresses that may not be
	// remembered, and may be empty.
	Adopt(ctx context.Context, actor, provider, id string, said vms.Addresses) (director.Machine, error)
	// Reclaim deletes an orphan; conflict says why it is none. Its data disks stay unless told.
	Reclaim(ctx context.Context, actor, provider, id string, dataDisks bool) (hypervisor.VM, error)
}

type vmsInput struct {
	Provider  []string `query:"provider" maxItems:"100" doc:"Only these providers, separated by commas."`
	Strangers bool     `query:"strangers" doc:"Also VMs that are not the director's."`
}

type auditInput struct {
	Provider []string `query:"provider" maxItems:"100" doc:"Only these providers, separated by commas."`
}

type adoptInput struct {
	Name string `path:"name" maxLength:"64" doc:"Name of the provider."`
	VM   string `path:"vm" maxLength:"128" doc:"The hypervisor's id of the VM."`
	Body *wire.VMAdopt
}

type reclaimInput struct {
	Name string `path:"name" maxLength:"64" doc:"Name of the provider."`
	VM   string `path:"vm" maxLength:"128" doc:"The hypervisor's id of the VM."`
	Body *wire.VMReclaim
}

const kindProvider = "Provider"

func (s *providerRoutes) ledger(api huma.API) {
	tags := []string{"Ledger of VMs"}
	operation(s.server, api, huma.Operation{
		OperationID: "list-vms", Method: http.MethodGet, Path: "/vms", Tags: tags,
		Summary: "List VMs as the ledger and the hypervisors have them",
		Description: "The hypervisors are asked; a provider that does not answer is named, and its VMs are shown as " +
			"the ledger has them.",
		Errors: []int{http.StatusNotFound},
	}, director.ActRead, kindProvider, s.listVms)
	operation(s.server, api, huma.Operation{
		OperationID: "audit-vms", Method: http.MethodGet, Path: "/vms/audit", Tags: tags,
		Summary: "Compare the ledger of VMs with what the hypervisors have",
		Description: "Orphans have our stamp and no row, ghosts a row and no VM, strangers the name of one of our " +
			"nodes, twins the stamp of another VM; drift is a VM " +
			"that is not as its row says. Orphan disks have our stamp and no row in the ledger, ghost disks are " +
			"kept there and are not to be found or not free. Clusters that a plan works on, or has left half way, " +
			"are left out where they may differ. Nothing is changed.",
		Errors: []int{http.StatusNotFound},
	}, director.ActRead, kindProvider, s.auditVms)
	operation(s.server, api, huma.Operation{
		OperationID: "adopt-vm", Method: http.MethodPost, Path: "/providers/{name}/vms/{vm}/adopt", Tags: tags,
		Summary: "Write an orphan into the ledger again",
		Description: "For a VM with our stamp whose cluster still exists; the next plan of the cluster sees it. A " +
			"VM that is in the ledger is written down where it is " +
			"now. Nothing happens to the VM itself.",
		Errors: []int{http.StatusNotFound, http.StatusConflict},
	}, director.ActLedger, kindProvider, s.adoptVm)
	operation(s.server, api, huma.Operation{
		OperationID: "reclaim-vm", Method: http.MethodPost, Path: "/providers/{name}/vms/{vm}/reclaim", Tags: tags,
		Summary: "Delete an orphan",
		Description: "Only a VM with our stamp that no row and no plan knows. Its data disks stay unless " +
			"data_disks is set. It can be repeated until the VM is gone.",
		Errors: []int{http.StatusNotFound, http.StatusConflict},
	}, director.ActLedger, kindProvider, s.reclaimVm)
}

func (s *providerRoutes) listVms(ctx context.Context, _ director.Actor, in *vmsInput) (*body[wire.VMs], error) {
	v, err := s.Ledger.List(ctx, in.Strangers, in.Provider...)
	if err != nil {
		return nil, err
	}
	out := wire.VMs{Items: make([]wire.VM, len(v.Items)), Providers: comparedOf(v.Providers)}
	for i, item := range v.Items {
		out.Items[i] = vmOf(item)
	}
	return &body[wire.VMs]{out}, nil
}

func (s *providerRoutes) auditVms(ctx context.Context, _ director.Actor, in *auditInput) (*body[wire.Audit], error) {
	r, err := s.Ledger.Audit(ctx, in.Provider...)
	if err != nil {
		return nil, err
	}
	out := wire.Audit{
		At: r.At.UTC(), Findings: make([]wire.Finding, len(r.Findings)), Providers: comparedOf(r.Providers),
		Busy: r.Busy,
	}
	if len(r.Disks) > 0 {
		out.Disks = disksOf(r.Disks)
	}
	for i, f := range r.Findings {
		out.Findings[i] = wire.Finding{
			Kind: string(f.Kind), Provider: f.Provider, Host: f.Host, VM: string(f.VM), Name: f.Name,
			Machine: f.Machine, Cluster: f.Cluster,
			Problem: f.Problem, Next: f.Next,
		}
	}
	return &body[wire.Audit]{out}, nil
}

func (s *providerRoutes) adoptVm(ctx context.Context, a director.Actor, in *adoptInput) (*body[wire.VM], error) {
	said := orZero(in.Body)
	m, err := s.Ledger.Adopt(ctx, a.User, in.Name, in.VM, vms.Addresses{First: said.Address, Further: said.Addresses})
	if err != nil {
		return nil, err
	}
	vm := hypervisor.VM{
		ID: hypervisor.ID(m.VMID), Name: m.Name, Host: m.Host, CPUs: m.CPUs, Memory: m.Memory,
		Stamp: director.Stamp{Machine: m.ID},
	}
	return &body[wire.VM]{vmOf(vms.Item{Provider: in.Name, Owner: vms.OwnerLedger, VM: vm, Machine: m})}, nil
}

func (s *providerRoutes) reclaimVm(ctx context.Context, a director.Actor, in *reclaimInput) (*body[wire.VM], error) {
	vm, err := s.Ledger.Reclaim(ctx, a.User, in.Name, in.VM, orZero(in.Body).DataDisks)
	if err != nil {
		return nil, err
	}
	return &body[wire.VM]{vmOf(vms.Item{Provider: in.Name, Owner: vms.OwnerOrphan, VM: vm})}, nil
}

func comparedOf(list []ledger.Compared) []wire.Compared {
	out := make([]wire.Compared, len(list))
	for i, c := range list {
		out[i] = wire.Compared{Name: c.Name, VMs: c.VMs}
		if c.Err != nil {
			out[i].Unseen, out[i].Hint = publicMessage(c.Err), director.HintOf(c.Err)
		}
	}
	return out
}

func vmOf(v vms.Item) wire.VM {
	out := wire.VM{
		Provider: v.Provider, Host: v.VM.Host, ID: string(v.VM.ID), Name: v.VM.Name, Power: string(v.VM.Power),
		Owner: v.Owner, Machine: v.VM.Stamp.Machine,
		Director: v.VM.Stamp.Director, CPUs: v.VM.CPUs, MemoryBytes: v.VM.Memory,
	}
	if m := v.Machine; m.ID != "" {
		out.Machine, out.Cluster, out.Address, out.State = m.ID, m.Cluster, m.Address, string(m.State)
	}
	return out
}

// publicMessage is what people are shown of an error.
func publicMessage(err error) string {
	return problemOf(context.Background(), err).Detail
}
