package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/discovery"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/wire"
)

// Consuls is what the API offers of Consuls besides their documents.
type Consuls interface {
	// List returns all Consuls with how their last comparisons went.
	List(ctx context.Context) ([]discovery.View, error)
	// Test looks at everything that the director needs of the Consul. Nothing is changed.
	Test(ctx context.Context, name string) ([]discovery.Finding, error)
	// Services asks the Consul for what is registered there, and compares it with what is wanted.
	Services(ctx context.Context, name string) ([]discovery.Registered, error)
	// Gaps returns which nodes have no route to services of the Consul, and how many more gaps there are.
	Gaps(ctx context.Context, name string) ([]discovery.Gap, int, error)
	// Sync compares the Consul at once, and repairs it; conflict for an id that is not that of what is held.
	Sync(ctx context.Context, name, confirm string) (director.ConsulState, error)
}

const kindConsul = string(model.KindConsul)

type consulRef struct {
	Name string `path:"name" maxLength:"64" doc:"Name of the Consul."`
}

func (s *clusterRoutes) consuls(api huma.API) {
	tags := []string{"Consul"}
	operation(s.server, api, huma.Operation{
		OperationID: "list-consuls", Method: http.MethodGet, Path: "/consuls", Tags: tags,
		Summary: "List Consuls with how their last comparisons went",
	}, director.ActRead, kindConsul, s.listConsuls)
	operation(s.server, api, huma.Operation{
		OperationID: "test-consul", Method: http.MethodPost, Path: "/consuls/{name}/test", Tags: tags,
		Summary: "Ask a Consul and say what is wrong",
		Description: "Each thing is looked at by itself: addresses, certificates, the datacenter, the leader, the " +
			"token, each right, the domain. Nothing is changed.",
		Errors: []int{http.StatusNotFound},
	}, director.ActPlan, kindConsul, s.testConsul)
	operation(s.server, api, huma.Operation{
		OperationID: "list-consul-services", Method: http.MethodGet, Path: "/consuls/{name}/services", Tags: tags,
		Summary: "List what is registered in a Consul, with how it differs from what is wanted",
		Description: "The Consul is asked. Entries of the director's nodes are listed, those of programs in clusters " +
			"too. Nothing is changed.",
		Errors: []int{http.StatusNotFound, http.StatusConflict, http.StatusServiceUnavailable},
	}, director.ActRead, kindConsul, s.listConsulServices)
	operation(s.server, api, huma.Operation{
		OperationID: "list-consul-gaps", Method: http.MethodGet, Path: "/consuls/{name}/gaps", Tags: tags,
		Summary: "List which nodes have no route to services of a Consul, and which hosts have none to clusters",
		Description: "The addresses of services, and those of members of the Consul outside of clusters, are " +
			"compared with what Network documents say of routes. What routers outside of them do is not known. " +
			"Nothing is changed.",
		Errors: []int{http.StatusNotFound, http.StatusConflict, http.StatusServiceUnavailable},
	}, director.ActRead, kindConsul, s.listConsulGaps)
	operation(s.server, api, huma.Operation{
		OperationID: "sync-consul", Method: http.MethodPost, Path: "/consuls/{name}/sync", Tags: tags,
		Summary: "Compare a Consul with what is wanted now, and repair it",
		Description: "The director does so by itself every 15 seconds. Removals that are held go if their id is " +
			"given.",
		Errors: []int{http.StatusNotFound, http.StatusConflict},
	}, director.ActPlan, kindConsul, s.syncConsul)
}

func (s *clusterRoutes) listConsuls(ctx context.Context, _ director.Actor, _ *empty) (*body[wire.Consuls], error) {
	list, err := s.Consuls.List(ctx)
	if err != nil {
		return nil, err
	}
	out := wire.Consuls{Items: make([]wire.Consul, len(list))}
	for i, c := range list {
		out.Items[i] = wire.Consul{
			Name: c.Name, Datacenter: c.Spec.Datacenter, Domain: c.Spec.Domain, Addresses: c.Spec.Addresses,
			State: consulStateOf(c.State),
		}
	}
	return &body[wire.Consuls]{out}, nil
}

func consulStateOf(c director.ConsulState) wire.ConsulState {
	out := wire.ConsulState{
		At: wire.Optional(c.At), SuccessAt: wire.Optional(c.Success), Problem: c.Problem, Hint: c.Hint,
		Wanted: c.Wanted, Written: c.Written, Removed: c.Removed, Failing: c.Failing,
	}
	if h := c.Held; h != nil {
		out.Held = &wire.ConsulRemovals{ID: h.ID, Count: h.Count, Total: h.Total, Sample: h.Sample}
	}
	return out
}

func (s *clusterRoutes) testConsul(
	ctx context.Context, _ director.Actor, in *consulRef,
) (*body[wire.ProviderTest], error) {
	findings, err := s.Consuls.Test(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	out := wire.ProviderTest{OK: true, Probes: make([]wire.Probe, len(findings))}
	for i, f := range findings {
		out.Probes[i] = wire.Probe{Host: f.Host, What: f.What, OK: f.Err == nil, Found: f.Found}
		if f.Err != nil {
			out.OK = false
			out.Probes[i].Problem, out.Probes[i].Hint = publicMessage(f.Err), director.HintOf(f.Err)
		}
	}
	return &body[wire.ProviderTest]{out}, nil
}

func (s *clusterRoutes) listConsulServices(
	ctx context.Context, _ director.Actor, in *consulRef,
) (*body[wire.ConsulServices], error) {
	list, err := s.Consuls.Services(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	out := wire.ConsulServices{Items: make([]wire.ConsulService, len(list))}
	for i, r := range list {
		e := wire.ConsulService{
			Cluster: r.ClusterName, Node: r.Node, ID: r.ID, Service: r.Service, Address: r.Address, Port: r.Port,
			Tags: append([]string{}, r.Tags...), Passing: r.Passing, Output: r.Output, Writer: "cluster",
			Drift: string(r.Drift),
		}
		switch {
		case r.Own:
			e.Writer = "director"
		case r.Agent:
			e.Writer = "agent"
		}
		out.Items[i] = e
	}
	return &body[wire.ConsulServices]{out}, nil
}

func (s *clusterRoutes) syncConsul(
	ctx context.Context, _ director.Actor, in *struct {
		Name string `path:"name" maxLength:"64" doc:"Name of the Consul."`
		Body wire.ConsulSync
	},
) (*body[wire.ConsulState], error) {
	state, err := s.Consuls.Sync(ctx, in.Name, in.Body.Confirm)
	if err != nil {
		return nil, err
	}
	return &body[wire.ConsulState]{consulStateOf(state)}, nil
}

func (s *clusterRoutes) listConsulGaps(
	ctx context.Context, _ director.Actor, in *consulRef,
) (*body[wire.ConsulGaps], error) {
	list, more, err := s.Consuls.Gaps(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	out := wire.ConsulGaps{Items: make([]wire.ConsulGap, len(list)), More: more}
	for i, g := range list {
		out.Items[i] = wire.ConsulGap{
			Cluster: g.Cluster, From: g.From, Nodes: g.Nodes, Network: g.Network, CIDR: g.CIDR, Services: g.Services,
			Problem: g.Problem, Hint: g.Hint,
		}
	}
	return &body[wire.ConsulGaps]{out}, nil
}
