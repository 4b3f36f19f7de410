package operations

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net/netip"
	"slices"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/capacity"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/snapshot"
	"github.com/director-kaas/kaas/director/store"
)

var _ api.Capacity = (*Operations)(nil)

// Check looks at everything that a plan for the request would be refused for, and returns all of it. Nothing is stored.
// What could not be looked at because of something else that is wrong is not in it: an invalid document has no plan
// whose room could be asked for.
func (o *Operations) Check(ctx context.Context, cluster string, r plan.Request) (api.CheckView, error) {
	v := api.CheckView{Cluster: cluster}
	add := func(err error, at string) {
		if err == nil {
			return
		}
		fields := slices.Clone(director.FieldsOf(err))
		for i := range fields {
			fields[i].Hint = cmp.Or(fields[i].Hint, director.HintOf(err))
		}
		if len(fields) > 0 {
			v.Problems = append(v.Problems, fields...)
			return
		}
		f := director.Field{Path: at, Msg: director.MessageOf(err), Hint: director.HintOf(err)}
		v.Problems = append(v.Problems, f)
	}
	doc, err := o.Store.Document(ctx, model.Ref{Kind: model.KindCluster, Name: cluster})
	if err != nil {
		return v, err
	}
	holder, err := o.Store.Holder(ctx, cluster)
	if err != nil {
		return v, err
	}
	if holder != "" {
		add(o.Store.HeldBy(ctx, "operations.check", holder, cluster), doc.Ref().String())
	}
	w, err := o.seen(ctx, cluster, r)
	if ctx.Err() != nil {
		return v, ctx.Err()
	}
	add(err, "Release/"+doc.Cluster.Release)
	prechecked := false
	if err == nil {
		content, err := o.draft(w.World, r)
		if err == nil {
			v.Addresses, err = o.check(ctx, w, &content)
		}
		v.Operation, v.Summary, v.Warnings, v.Steps = content.Operation, content.Summary, content.Warnings,
			len(content.Steps)
		add(err, doc.Ref().String())
		e, _ := errors.AsType[*director.Error](err)
		prechecked = err == nil || e != nil && e.Op == opPrecheck
	}
	if prechecked {
		return v, ctx.Err()
	}
	if w.Image.Image != nil { // what can be told without a plan
		v.Problems = append(v.Problems, o.checkImage(ctx, w.World)...)
	}
	if w.Provider.Provider != nil && w.Cluster.Cluster != nil {
		v.Problems = append(v.Problems, o.checkQuota(w)...)
		_, err := w.VMs(ctx)
		add(err, w.Provider.Ref().String())
	}
	return v, ctx.Err()
}

// Capacity tells of the named providers, or of all, what their hosts have left and how many VMs of the sizes still fit:
// of the size that is asked for, or of the pools of the cluster on its provider, with its quota and its network's
// addresses.
func (o *Operations) Capacity(ctx context.Context, q api.CapacityQuery) ([]api.CapacityView, error) {
	var cluster *model.Stored
	if q.Cluster != "" {
		doc, err := o.Store.Document(ctx, model.Ref{Kind: model.KindCluster, Name: q.Cluster})
		if err != nil {
			return nil, err
		}
		cluster, q.Providers = &doc, []string{doc.Cluster.Provider}
	}
	names, err := o.Store.ProviderNames(ctx, q.Providers)
	if err != nil {
		return nil, err
	}
	out := make([]api.CapacityView, len(names))
	for i, name := range names {
		if out[i], err = o.capacityOf(ctx, name, q.Size, cluster); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (o *Operations) capacityOf(
	ctx context.Context, name string, size model.VMSize, cluster *model.Stored,
) (api.CapacityView, error) {
	v := api.CapacityView{Provider: name}
	doc, err := o.Store.Document(ctx, model.Ref{Kind: model.KindProvider, Name: name})
	if err != nil {
		return v, err
	}
	machines, err := o.Store.Machines(ctx, store.MachineFilter{Provider: name})
	if err != nil {
		return v, err
	}
	v.Used, v.Quota = capacity.UseOf(machines), doc.Provider.Quota
	if v.Hosts, err = o.hosts(ctx, name, doc.Provider.Overcommit); err != nil {
		if ctx.Err() != nil {
			return v, ctx.Err()
		}
		v.Err = err
		return v, nil
	}
	of := "Provider/" + name
	fit := func(pool string, s model.VMSize, more ...capacity.Bound) {
		f := api.FitView{Pool: pool, Size: s}
		f.Count,
			f.By = capacity.Fit(v.Hosts, s, append(capacity.Bounds(v.Quota, v.Used, s, "spec.quota", of), more...)...)
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
		network, err := o.Store.Document(ctx, model.Ref{Kind: model.KindNetwork, Name: name})
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
			capacity.Bounds(doc.Provider.ClusterQuota, capacity.UseOf(own), p.VMSize, "spec.clusterQuota", of),
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
func (o *Operations) hosts(ctx context.Context, provider string, policy model.Overcommit) ([]capacity.Host, error) {
	b, err := o.Env.Backends.Backend(ctx, provider)
	if err != nil {
		return nil, err
	}
	teller, ok := hypervisor.Capability[hypervisor.Capacity](b)
	if !ok {
		return nil, director.Errorf(
			director.KindInvalid, "operations.capacity", "provider %s does not tell what its hosts have", provider,
		)
	}
	vms, err := b.List(ctx, hypervisor.Filter{Director: o.Director.ID, Strangers: true})
	if err != nil {
		return nil, err
	}
	rows, err := teller.Capacity(ctx)
	return capacity.Hosts(rows, vms, policy), err
}
