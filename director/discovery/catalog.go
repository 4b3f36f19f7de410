package discovery

import (
	"context"
	"errors"
	"slices"
	"sync"

	"github.com/hashicorp/consul/api"

	"github.com/director-kaas/kaas/director"
)

const readers = 16 // nodes that are read at the same time

// read returns what the catalog has on the nodes of the director, by all writers. It is complete, or an error: a
// token that may not see everything would make what is there look as if it were missing.
func (h host) read(ctx context.Context, id string) (Catalog, error) {
	var out Catalog
	nodes, meta, err := h.api.Catalog().Nodes(options(ctx, id))
	if err != nil {
		return out, explain(h.name, err)
	}
	checks, seen, err := h.api.Health().State(api.HealthAny, options(ctx, id))
	if err != nil {
		return out, explain(h.name, err)
	}
	if meta.ResultsFilteredByACLs || seen.ResultsFilteredByACLs {
		return out, errHidden()
	}
	state := make(map[[3]string]*api.HealthCheck, len(checks))
	for _, c := range checks {
		state[[3]string{c.Node, c.ServiceID, c.CheckID}] = c
	}
	nodes = slices.DeleteFunc(nodes, func(n *api.Node) bool {
		if n.Meta[MetaNode] == "" {
			return false
		}
		serf := state[[3]string{n.Node, "", serfHealth}]
		out.Agents = append(out.Agents, CatalogNode{
			Name: n.Node, Address: n.Address, Meta: n.Meta, Index: n.ModifyIndex,
			Alive: serf != nil && serf.Status == api.HealthPassing,
		})
		return true
	})
	var mu sync.Mutex
	err = each(readers, nodes, func(n *api.Node) error {
		list, meta, err := h.api.Catalog().NodeServiceList(n.Node, (&api.QueryOptions{}).WithContext(ctx))
		switch {
		case err != nil:
			return explain(h.name, err)
		case meta.ResultsFilteredByACLs:
			return errHidden()
		case list == nil || list.Node == nil:
			return nil // it has gone meanwhile
		}
		mu.Lock()
		defer mu.Unlock()
		out.Nodes = append(out.Nodes, CatalogNode{
			Name: n.Node, Address: list.Node.Address, Meta: list.Node.Meta, Index: list.Node.ModifyIndex,
		})
		for _, s := range list.Services {
			out.Entries = append(out.Entries, actual(n.Node, s, state[[3]string{n.Node, s.ID, checkID(s.ID)}]))
		}
		return nil
	})
	return out, err
}

// serfHealth is the check of a node that tells whether other members see its agent.
const serfHealth = "serfHealth"

func errHidden() error {
	return director.Errorf(
		director.KindForbidden, "discovery.read", "the token may not read all that is on the director's nodes",
	).WithHint(`give it service_prefix "" { policy = "read" } and node_prefix "kaas-" { policy = "write" }`)
}

func actual(node string, s *api.AgentService, check *api.HealthCheck) Actual {
	a := Actual{
		Entry: Entry{
			Node: node, ID: s.ID, Service: s.Service, Address: s.Address, Port: s.Port, Tags: s.Tags, Meta: s.Meta,
		},
		Index: s.ModifyIndex,
	}
	if check != nil {
		a.Checked, a.Passing, a.Output = true, check.Status == api.HealthPassing, check.Output
	}
	return a
}

func options(ctx context.Context, id string) *api.QueryOptions {
	return (&api.QueryOptions{NodeMeta: map[string]string{MetaOwner: id}}).WithContext(ctx)
}

// checkID is that of the entry's check.
func checkID(entry string) string { return entry + "-ready" }

// put writes the entry, its node and its check. It is idempotent.
func (h host) put(ctx context.Context, id string, e Entry) error {
	status := api.HealthCritical
	if e.Passing {
		status = api.HealthPassing
	}
	_, err := h.api.Catalog().Register(&api.CatalogRegistration{
		Node: e.Node, Address: NodeAddress, NodeMeta: nodeMeta(id, e.Cluster),
		Service: &api.AgentService{
			ID: e.ID, Service: e.Service, Address: e.Address, Port: e.Port, Tags: e.Tags, Meta: e.Meta,
		},
		Check: &api.AgentCheck{
			Node: e.Node, CheckID: checkID(e.ID), Name: "ready, as the director sees it", Status: status,
			Output: e.Output, ServiceID: e.ID, ServiceName: e.Service,
		},
	}, (&api.WriteOptions{}).WithContext(ctx))
	if err != nil {
		return explain(h.name, err)
	}
	return nil
}

// remove takes the entry out, unless it is another one by now. A transaction asks for the right to write the service.
// The director has it for its own; what a sync has written goes by the right to write the node.
func (h host) remove(ctx context.Context, a Actual) error {
	if a.Meta[MetaWriter] != writer {
		_, err := h.api.Catalog().Deregister(&api.CatalogDeregistration{
			Node: a.Node, ServiceID: a.ID,
		}, (&api.WriteOptions{}).WithContext(ctx))
		if err != nil {
			return explain(h.name, err)
		}
		return nil
	}
	return h.commit(ctx, &api.TxnOp{Service: &api.ServiceTxnOp{
		Verb: api.ServiceDeleteCAS, Node: a.Node, Service: api.AgentService{
			ID: a.ID, Service: a.Service, ModifyIndex: a.Index,
		},
	}})
}

// removeNode takes the node out with all that is on it, unless it is another one by now.
func (h host) removeNode(ctx context.Context, n CatalogNode) error {
	return h.commit(ctx, &api.TxnOp{Node: &api.NodeTxnOp{
		Verb: api.NodeDeleteCAS, Node: api.Node{Node: n.Name, ModifyIndex: n.Index},
	}})
}

func (h host) commit(ctx context.Context, op *api.TxnOp) error {
	ok, answer, _, err := h.api.Txn().Txn(api.TxnOps{op}, (&api.QueryOptions{}).WithContext(ctx))
	switch {
	case err != nil:
		return explain(h.name, err)
	case ok:
		return nil
	}
	what := "it was changed meanwhile"
	if len(answer.Errors) > 0 {
		what = clean(answer.Errors[0].What)
	}
	return explain(h.name, api.StatusError{Code: 409, Body: what})
}

// each calls do for all items, several at once, and returns the first errors of each kind.
func each[T any](atOnce int, items []T, do func(T) error) error {
	slots := make(chan struct{}, atOnce)
	errs := make([]error, len(items))
	var all sync.WaitGroup
	for i, item := range items {
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			errs[i] = do(item)
		})
	}
	all.Wait()
	errs = slices.DeleteFunc(errs, func(err error) bool { return err == nil })
	if len(errs) == 0 {
		return nil
	}
	if e, ok := errors.AsType[*director.Error](errs[0]); ok && len(errs) > 1 {
		more := *e
		more.Err = errors.Join(errs[:min(len(errs), sampleSize)]...)
		return &more
	}
	return errs[0]
}
