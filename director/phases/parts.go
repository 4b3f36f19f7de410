package phases

import (
	"context"
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/store"
)

// parts finds the clusters that the request concerns now, and their nodes in the order in which they are worked
// on. A cluster that a plan holds and that has machines there is one of them whatever their state is, because the plan
// may change that.
func (s *Service) parts(ctx context.Context, r director.PhaseRequest) ([]director.PhasePart, error) {
	if !r.Phase.OnNodes() {
		if _, err := s.Store.Document(ctx, model.Ref{Kind: model.KindCluster, Name: r.Cluster}); err != nil {
			return nil, err
		}
		return []director.PhasePart{{Cluster: r.Cluster, State: director.PhaseWaiting}}, nil
	}
	machines, err := s.machinesAt(ctx, r)
	if err != nil {
		return nil, err
	}
	// Workers leave first and masters come back first: the control plane is whole for as long as it can be.
	slices.SortStableFunc(machines, func(a, b director.Machine) int {
		first := director.RoleWorker
		if r.Phase == director.PhasePostNodeUnlock {
			first = director.RoleMaster
		}
		if a.Role == b.Role {
			return strings.Compare(a.Name, b.Name)
		}
		if a.Role == first {
			return -1
		}
		return 1
	})
	clusters := map[string][]string{}
	for _, m := range machines {
		nodes := clusters[m.Cluster]
		if concerned(r.Phase, m) {
			nodes = append(nodes, m.Name)
		}
		clusters[m.Cluster] = nodes
	}
	if r.Phase == director.PhasePostNodeUnlock {
		if err := s.leaveSpare(ctx, clusters); err != nil {
			return nil, err
		}
	}
	var parts []director.PhasePart
	for cluster, nodes := range clusters {
		holder, err := s.Store.Holder(ctx, cluster)
		if err != nil {
			return nil, err
		}
		// machines of a creation that stopped half way have no cluster to come back to
		if r.Phase == director.PhasePostNodeUnlock && len(nodes) > 0 {
			if _, installed, err := s.Store.Installed(ctx, cluster); err != nil {
				return nil, err
			} else if !installed {
				nodes = nil
			}
		}
		if len(nodes) > 0 || holder != "" {
			parts = append(parts, director.PhasePart{Cluster: cluster, Nodes: nodes, State: director.PhaseWaiting})
		}
	}
	slices.SortFunc(parts, func(a, b director.PhasePart) int { return strings.Compare(a.Cluster, b.Cluster) })
	return parts, nil
}

// leaveSpare takes the nodes off the lists, by cluster, whose VMs are kept and that no document asks for: they do not
// come back.
func (s *Service) leaveSpare(ctx context.Context, clusters map[string][]string) error {
	for cluster, nodes := range clusters {
		if len(nodes) == 0 {
			continue
		}
		w, err := s.Worlds.World(ctx, cluster)
		if director.KindOf(err) == director.KindNotFound {
			continue
		}
		if err != nil {
			return err
		}
		spare := w.Spare()
		clusters[cluster] = slices.DeleteFunc(nodes, func(n string) bool { return spare[n] })
	}
	return nil
}

// concerned reports whether the phase has work on the machine.
func concerned(p director.PhaseName, m director.Machine) bool {
	if p == director.PhasePostNodeUnlock {
		return planner.Out(m)
	}
	return m.Kubernetes != ""
}

// machinesAt lists the machines on the host, or the one that is the node. A host that no provider knows is an error: to
// say that it is free of nodes would be a guess.
func (s *Service) machinesAt(ctx context.Context, r director.PhaseRequest) ([]director.Machine, error) {
	const op = "phases"
	docs, err := s.Store.Documents(ctx, model.KindProvider)
	if err != nil {
		return nil, err
	}
	all, err := s.Store.Machines(ctx, store.MachineFilter{Provider: r.Provider, Nodes: true})
	if err != nil {
		return nil, err
	}
	var here []director.Machine
	for _, m := range all {
		if m.Name == r.Node || (r.Host != "" && m.Host == r.Host) {
			here = append(here, m)
		}
	}
	if r.Node != "" {
		switch len(here) {
		case 0:
			return nil, director.Errorf(director.KindNotFound, op, "no cluster has a node %q", r.Node).
				WithHint("see: directorctl node list CLUSTER")
		case 1:
			return here, nil
		}
		return nil, director.Errorf(
			director.KindConflict, op, "clusters %s and %s both have a node %s", here[0].Cluster, here[1].Cluster,
			r.Node,
		).
			WithHint("name the provider, or the host")
	}
	var owners, hosts []string
	known := false
	for _, d := range docs {
		if r.Provider != "" && d.Metadata.Name != r.Provider {
			continue
		}
		known = true
		hosts = append(hosts, d.Provider.HostNames()...)
		if slices.Contains(d.Provider.HostNames(), r.Host) ||
			slices.ContainsFunc(here, func(m director.Machine) bool { return m.Provider == d.Metadata.Name }) {
			owners = append(owners, d.Metadata.Name)
		}
	}
	switch {
	case r.Provider != "" && !known:
		return nil, director.Errorf(director.KindNotFound, op, "there is no Provider/%s", r.Provider).
			WithHint("see: directorctl get providers")
	case len(owners) == 0:
		return nil, director.Errorf(director.KindNotFound, op, "no provider has a host %q", r.Host).
			WithHint("the hosts are %s", strings.Join(hosts, ", "))
	case len(owners) > 1:
		return nil, director.Invalid(op, "several providers have a host "+r.Host, []director.Field{
			{Path: "provider", Msg: "is needed here", Hint: "one of " + strings.Join(owners, ", ")},
		})
	}
	return here, nil
}
