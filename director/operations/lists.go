package operations

import (
	"context"
	"slices"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
)

// ListPlans lists plans without their steps.
func (o *Operations) ListPlans(ctx context.Context, q api.PlanQuery) ([]plan.Item, *director.Place, error) {
	list := o.Store.PlanPage
	if q.Archived {
		list = o.Store.PlanArchives
	}
	items, next, err := list(ctx, store.PlanQuery{
		Cluster: q.Cluster, IDPrefix: q.IDPrefix, Phases: q.Phases, Operations: q.Operations,
	}, q.Page)
	out := make([]plan.Item, len(items))
	for i, item := range items {
		out[i] = plan.Item{
			View: plan.View{Plan: item.Plan, State: item.State}, Done: item.Done, Total: item.Total,
		}
	}
	return out, next, err
}

// SearchEvents returns the events of a plan that fit.
func (o *Operations) SearchEvents(ctx context.Context, id string, q api.EventQuery) ([]plan.Event, int64, error) {
	return o.Store.EventPage(ctx, id, store.EventQuery(q))
}

// ListClusters lists clusters by name with what is known of each.
func (o *Operations) ListClusters(ctx context.Context, q api.ClusterQuery) ([]api.ClusterView, *director.Place, error) {
	var out []api.ClusterView
	read := func(p director.Page) ([]store.ClusterItem, *director.Place, error) {
		return o.Store.ClusterPage(ctx, q.NamePrefix, p)
	}
	next, err := director.Scan(q.Page, read, store.ClusterItem.Place, func(items []store.ClusterItem) ([]bool, error) {
		views, err := o.clusterViews(ctx, items, !q.NoMachines)
		keep := make([]bool, len(views))
		for i, v := range views {
			keep[i] = q.Labels.Match(items[i].Labels) &&
				(len(q.Statuses) == 0 || slices.Contains(q.Statuses, v.Status)) &&
				(len(q.Phases) == 0 || slices.Contains(q.Phases, v.PlanPhase))
			if keep[i] {
				out = append(out, v)
			}
		}
		return keep, err
	})
	return out[:min(len(out), q.Limit)], next, err
}

// ClusterView returns what is known of the cluster without asking it.
func (o *Operations) ClusterView(ctx context.Context, name string) (api.ClusterView, error) {
	item, err := o.Store.Cluster(ctx, name)
	if err != nil {
		return api.ClusterView{}, err
	}
	views, err := o.clusterViews(ctx, []store.ClusterItem{item}, true)
	if err != nil {
		return api.ClusterView{}, err
	}
	return views[0], nil
}

// clusterViews says what is known of the clusters, with or without their machines.
func (o *Operations) clusterViews(
	ctx context.Context, items []store.ClusterItem, withMachines bool,
) ([]api.ClusterView, error) {
	var machines map[string][]director.Machine
	if withMachines {
		uids := make([]string, len(items))
		for i, c := range items {
			uids[i] = c.UID
		}
		var err error
		if machines, err = o.Store.MachinesOf(ctx, uids); err != nil {
			return nil, err
		}
	}
	views := make([]api.ClusterView, len(items))
	for i, c := range items {
		v := &views[i]
		*v = api.ClusterView{
			Name: c.Name, Generation: c.Generation, Status: "absent", Release: c.Release, Endpoint: c.Endpoint,
			Nodes: c.Nodes,
		}
		for _, m := range machines[c.UID] {
			v.Machines = append(v.Machines, machineView(m))
		}
		switch {
		case c.Installed:
			v.Status = "ready"
		case c.Nodes > 0:
			v.Status = "unfinished"
		}
		addPlan(v, c)
	}
	return views, nil
}

func machineView(m director.Machine) api.MachineView {
	return api.MachineView{
		Name: m.Name, Role: string(m.Role), Pool: m.Pool, Address: m.Address, Host: m.Host, VMID: m.VMID,
		State: string(m.State),
		CPUs:  m.CPUs, Memory: model.Size(m.Memory), NICs: m.NICs,
	}
}

// addPlan says what the newest plan of the cluster does to it, or where it stopped.
func addPlan(v *api.ClusterView, c store.ClusterItem) {
	if v.Status == "absent" && !c.Phase.Active() {
		return // an older cluster of the name
	}
	lost := c.Phase == plan.PhaseFailed || c.Phase == plan.PhaseCancelled
	if !lost && !c.Phase.Active() {
		return
	}
	v.Plan, v.PlanPhase = c.Plan, c.Phase
	switch {
	case c.Operation == plan.ClusterDelete && !lost:
		v.Status = "deleting"
	case c.Operation == plan.ClusterCreate && !lost:
		v.Status = "creating"
	case c.Operation == plan.ClusterDelete, !c.Installed:
		v.Status = "failed"
	case !lost: // a cluster serves on when work on one of its nodes has failed
		v.Status = "changing"
	}
}
