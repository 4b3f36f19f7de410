package operations

import (
	"context"
	"net/netip"
	"slices"
	"sort"
	"time"

	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/kube"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/store"
)

// seen is the world with a look at the cluster's own API, for requests that need one. A cluster that does not answer is not an error: the planner says what
// cannot be done blindly.
func (o *Operations) seen(ctx context.Context, cluster string, r plan.Request) (planner.World, error) {
	w, err := o.world(ctx, cluster)
	if err != nil || w.Installed == nil || r.Operation == plan.ClusterDelete {
		return w, err
	}
	nodes, err := o.lookAt(ctx, cluster)
	switch {
	case err != nil && ctx.Err() != nil:
		return w, ctx.Err()
	case err != nil:
		w.Blind = message(err)
	case nodes != nil:
		w.Seen = map[string]planner.Seen{}
		for _, n := range nodes {
			w.Seen[n.Name] = planner.Seen{Ready: n.Ready, Etcd: n.Etcd}
		}
		if err := o.unseeDead(ctx, w); err != nil {
			return w, err
		}
	}
	return w, nil
}

// unseeDead takes the hypervisor's word that a VM does not run: the cluster believes in a node for a minute after its VM has gone, and a quorum that is
// counted meanwhile would be wrong. A hypervisor that does not answer has no say.
func (o *Operations) unseeDead(ctx context.Context, w planner.World) error {
	power, err := o.power(ctx, w)
	if err != nil {
		return ctx.Err()
	}
	for _, m := range w.Machines {
		if m.Deleted.IsZero() && m.Kubernetes != "" && power[m.ID] != string(hypervisor.PowerOn) {
			delete(w.Seen, m.Name)
		}
	}
	return nil
}

// lookTime bounds a look at a cluster: whoever asks for a plan waits for it.
const lookTime = 20 * time.Second

// look asks the installed cluster for its nodes; nil from one that only pretends.
func (o *Operations) look(ctx context.Context, inst store.Installed) ([]kube.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	client, err := o.Env.Cluster(ctx, inst.UID, inst.Name, inst.Endpoint)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return client.Nodes(ctx)
}

// world gathers everything that a plan of the cluster is made from.
func (o *Operations) world(ctx context.Context, cluster string) (planner.World, error) {
	w := planner.World{Director: o.Director, Used: map[netip.Addr]bool{}, Host: map[string]int{}}
	var err error
	if w.Times, err = o.Store.StepTimes(ctx); err != nil {
		return w, err
	}
	if w.Cluster, err = o.Store.Document(ctx, model.Ref{Kind: model.KindCluster, Name: cluster}); err != nil {
		return w, err
	}
	c := w.Cluster.Cluster
	for ref, into := range map[model.Ref]*model.Stored{
		{Kind: model.KindProvider, Name: c.Provider}: &w.Provider, {Kind: model.KindNetwork, Name: c.Network}: &w.Network,
		{Kind: model.KindImage, Name: c.Image}: &w.Image, {Kind: model.KindRelease, Name: c.Release}: &w.Release,
	} {
		if *into, err = o.Store.Document(ctx, ref); err != nil {
			return w, err
		}
	}
	if w.Machines, err = o.Store.Machines(ctx, store.MachineFilter{ClusterUID: w.Cluster.UID, Tombstones: true}); err != nil {
		return w, err
	}
	neighbours, err := o.Store.Machines(ctx, store.MachineFilter{Provider: c.Provider})
	if err != nil {
		return w, err
	}
	for _, m := range neighbours {
		w.Host[m.Host]++
		if m.Network != c.Network {
			continue
		}
		if a, err := netip.ParseAddr(m.Address); err == nil {
			w.Used[a] = true
		}
		if m.ClusterUID != w.Cluster.UID && !slices.Contains(w.Sharers, m.Cluster) {
			w.Sharers = append(w.Sharers, m.Cluster)
		}
	}
	sort.Strings(w.Sharers)
	if inst, ok, err := o.Store.Installed(ctx, cluster); err != nil {
		return w, err
	} else if ok && inst.UID == w.Cluster.UID {
		w.Installed = &planner.Installed{Generation: inst.Generation, Cluster: *inst.Document.Cluster}
	}
	w.Bundle, err = readBundle(*w.Release.Release)
	if err != nil && len(w.Machines) > 0 {
		return w, nil // a cluster can be deleted without its bundle
	}
	return w, err
}
