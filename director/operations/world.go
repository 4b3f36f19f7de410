package operations

import (
	"context"
	"net/netip"
	"slices"
	"sort"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/kube"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/store"
)

// seen is the world with a look at the cluster's own API, for requests that need one. A cluster that does not answer is
// not an error: the planner says what cannot be done blindly.
func (o *Operations) seen(ctx context.Context, cluster string, r plan.Request) (planner.World, error) {
	w, err := o.world(ctx, cluster)
	if err != nil || w.Installed == nil || r.Operation == plan.ClusterDelete {
		return w, err
	}
	if err := o.lookAtHosts(ctx, &w, r); err != nil {
		return w, err
	}
	nodes, err := o.lookAt(ctx, cluster)
	switch {
	case err != nil && ctx.Err() != nil:
		return w, ctx.Err()
	case err != nil:
		w.Blind = director.MessageOf(err)
		return w, o.signsOfLife(ctx, &w, r)
	case nodes == nil:
		return w, o.signsOfLife(ctx, &w, r)
	default:
		w.Seen = map[string]planner.Seen{}
		for _, n := range nodes {
			w.Seen[n.Name] = planner.Seen{Ready: n.Ready, Etcd: n.Etcd}
		}
		if err := o.signsOfLife(ctx, &w, r); err != nil {
			return w, err
		}
		if err := o.unseeDead(ctx, w); err != nil {
			return w, err
		}
	}
	return w, nil
}

// unseeDead takes the hypervisor's word that a VM does not run: the cluster believes in a node for a minute after its
// VM has gone, and a quorum that is counted meanwhile would be wrong. A hypervisor that does not answer has no say.
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

// onNetwork returns the addresses of the network that machines have, and which clusters but that with the uid have
// machines there.
func onNetwork(machines []director.Machine, network, uid string) (used map[netip.Addr]bool, sharers []string) {
	used = map[netip.Addr]bool{}
	for _, m := range machines {
		address := m.On(network)
		if address == "" {
			continue
		}
		if a, err := netip.ParseAddr(address); err == nil {
			used[a] = true
		}
		if m.ClusterUID != uid && !slices.Contains(sharers, m.Cluster) {
			sharers = append(sharers, m.Cluster)
		}
	}
	sort.Strings(sharers)
	return used, sharers
}

// underlays returns the networks beside the first: those of the document, and those that machines of the cluster are
// on. One of the latter may have no document any more; then nothing can be done about it, and nothing has to be.
func (o *Operations) underlays(
	ctx context.Context, w planner.World, neighbours []director.Machine,
) (map[string]planner.Underlay, error) {
	named := w.Cluster.Cluster.Networks()
	names := slices.Clone(named)
	for _, m := range w.Machines {
		for _, n := range m.NICs {
			if !slices.Contains(names, n.Network) {
				names = append(names, n.Network)
			}
		}
	}
	var out map[string]planner.Underlay
	for _, name := range names {
		if name == w.Cluster.Cluster.Network {
			continue
		}
		doc, err := o.Store.Document(ctx, model.Ref{Kind: model.KindNetwork, Name: name})
		if director.KindOf(err) == director.KindNotFound && !slices.Contains(named, name) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if out == nil {
			out = map[string]planner.Underlay{}
		}
		u := planner.Underlay{Stored: doc}
		u.Used, u.Sharers = onNetwork(neighbours, name, w.Cluster.UID)
		out[name] = u
	}
	return out, nil
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
		{Kind: model.KindProvider, Name: c.Provider}: &w.Provider,
		{Kind: model.KindNetwork, Name: c.Network}:   &w.Network,
		{Kind: model.KindImage, Name: c.Image}:       &w.Image, {Kind: model.KindRelease, Name: c.Release}: &w.Release,
	} {
		if *into, err = o.Store.Document(ctx, ref); err != nil {
			return w, err
		}
	}
	if w.Machines,
		err = o.Store.Machines(ctx, store.MachineFilter{ClusterUID: w.Cluster.UID, Tombstones: true}); err != nil {
		return w, err
	}
	neighbours, err := o.Store.Machines(ctx, store.MachineFilter{Provider: c.Provider})
	if err != nil {
		return w, err
	}
	for _, m := range neighbours {
		w.Host[m.Host]++
	}
	if w.Disks, err = o.Store.KeptDisks(ctx, store.DiskFilter{Provider: c.Provider}); err != nil {
		return w, err
	}
	if w.MACs, err = o.Store.MACs(ctx); err != nil {
		return w, err
	}
	w.Used, w.Sharers = onNetwork(neighbours, c.Network, w.Cluster.UID)
	if w.Underlays, err = o.underlays(ctx, w, neighbours); err != nil {
		return w, err
	}
	if err := o.hostsOf(ctx, &w); err != nil {
		return w, err
	}
	if inst, ok, err := o.Store.Installed(ctx, cluster); err != nil {
		return w, err
	} else if ok && inst.UID == w.Cluster.UID {
		w.Installed = &planner.Installed{Generation: inst.Generation, Cluster: *inst.Document.Cluster}
	}
	if w.Releases, w.Images, err = o.formers(ctx, w); err != nil {
		return w, err
	}
	w.Bundle, err = o.readBundle(*w.Release.Release)
	if err != nil && len(w.Machines) > 0 {
		w.NoBundle = err
		return w, nil
	}
	return w, err
}

// formers finds the documents of what members run beside the cluster's own release, and of what their VMs were made
// from. A bundle that cannot be read is left out: the planner says what cannot be done without it.
func (o *Operations) formers(
	ctx context.Context, w planner.World,
) (map[string]planner.Release, map[string]planner.NodeImage, error) {
	wanted, from := map[string]bool{}, map[string]bool{}
	for _, m := range w.Machines {
		if m.Deleted.IsZero() && m.Kubernetes != "" {
			wanted[m.Kubernetes] = m.Kubernetes != w.Release.Release.Kubernetes
			from[m.Image] = true
		}
	}
	if len(from) == 0 {
		return nil, nil, nil // there is nobody to put back
	}
	images := map[string]planner.NodeImage{}
	docs, err := o.Store.Documents(ctx, model.KindImage)
	if err != nil {
		return nil, nil, err
	}
	for _, d := range docs {
		// The first is how rows know an image from before its checksum was part of its name.
		for _, name := range []string{d.Metadata.Name, d.Image.NameOnProviders(d.Metadata.Name)} {
			if from[name] {
				images[name] = planner.NodeImage{Document: d.Metadata.Name, Image: *d.Image}
			}
		}
	}
	if docs, err = o.Store.Documents(ctx, model.KindRelease); err != nil {
		return nil, nil, err
	}
	first := ""
	if w.Installed != nil {
		first = w.Installed.Cluster.Release // of several of a version the one that was installed counts
	}
	releases := map[string]planner.Release{}
	for _, d := range docs {
		if !wanted[d.Release.Kubernetes] {
			continue
		}
		if _, have := releases[d.Release.Kubernetes]; have && d.Metadata.Name != first {
			continue
		}
		if b, err := o.readBundle(*d.Release); err == nil {
			releases[d.Release.Kubernetes] = planner.Release{Name: d.Metadata.Name, Release: *d.Release, Bundle: b}
		}
	}
	return releases, images, nil
}

// Facts returns what playbooks know of the cluster. Errors: not_found, and conflict for a cluster without machines.
func (o *Operations) Facts(ctx context.Context, cluster string) (step.Facts, error) {
	w, err := o.world(ctx, cluster)
	if err != nil {
		return step.Facts{}, err
	}
	if w.NoBundle != nil {
		return step.Facts{}, w.NoBundle
	}
	facts := planner.FactsOf(w)
	if len(facts.Nodes) == 0 {
		return step.Facts{}, director.Errorf(
			director.KindConflict, "operations.facts", "cluster %s has no machines yet", cluster,
		).
			WithHint("start a plan for it first")
	}
	return facts, nil
}
