package snapshot

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/kube"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/store"
)

// Observe looks at the cluster's own API and at the hypervisor, for requests that need that. A cluster that does not
// answer is not an error: the planner says what cannot be done blindly.
func (s *Snapshot) Observe(ctx context.Context, r plan.Request) error {
	if s.Installed == nil || r.Operation == plan.ClusterDelete || r.Operation.OnDirector() {
		return nil
	}
	if err := s.lookAtHosts(ctx, r); err != nil {
		return err
	}
	nodes, err := s.r.Nodes(ctx, *s.installed)
	switch {
	case err != nil && ctx.Err() != nil:
		return ctx.Err()
	case err != nil:
		s.Blind = director.MessageOf(err)
		return s.signsOfLife(ctx, r)
	case nodes == nil:
		return s.signsOfLife(ctx, r)
	}
	s.Seen = map[string]planner.Seen{}
	for _, n := range nodes {
		s.Seen[n.Name] = planner.Seen{Ready: n.Ready, Etcd: n.Etcd}
	}
	if err := s.signsOfLife(ctx, r); err != nil {
		return err
	}
	return s.unseeDead(ctx)
}

// unseeDead takes the hypervisor's word that a VM does not run: the cluster believes in a node for a minute after its
// VM has gone, and a quorum that is counted meanwhile would be wrong. A hypervisor that does not answer has no say.
func (s *Snapshot) unseeDead(ctx context.Context) error {
	vms, err := s.VMs(ctx)
	if err != nil {
		return ctx.Err()
	}
	on := map[string]bool{}
	for _, vm := range vms {
		if vm.Stamp.Director == s.Director.ID {
			on[vm.Stamp.Machine] = vm.Power == hypervisor.PowerOn
		}
	}
	for _, m := range s.Machines {
		if m.Deleted.IsZero() && m.Kubernetes != "" && !on[m.ID] {
			delete(s.Seen, m.Name)
		}
	}
	return nil
}

// Backend returns the provider's back end without the hosts that are taken for lost.
func (s *Snapshot) Backend(ctx context.Context) (hypervisor.Backend, error) {
	if s.backend != nil {
		return s.backend, nil
	}
	b, err := s.r.View(ctx, s.World)
	if err == nil {
		s.backend = b
	}
	return b, err
}

// VMs returns every VM that the hypervisor has, those of others too. It is asked once.
func (s *Snapshot) VMs(ctx context.Context) ([]hypervisor.VM, error) {
	if s.listed {
		return s.vms, s.vmsErr
	}
	b, err := s.Backend(ctx)
	if err != nil {
		return nil, err
	}
	s.vms, s.vmsErr = b.List(ctx, hypervisor.Filter{Director: s.Director.ID, Strangers: true})
	s.listed = true
	return s.vms, s.vmsErr
}

// View returns the back end of the world's provider without the hosts that the world takes for lost.
func (r *Reader) View(ctx context.Context, w planner.World) (hypervisor.Backend, error) {
	b, err := r.c.Backends.Backend(ctx, w.Provider.Metadata.Name)
	if err != nil || len(w.Lost) == 0 {
		return b, err
	}
	hosts, ok := hypervisor.Capability[hypervisor.Hosts](b)
	if !ok {
		return b, nil
	}
	return hosts.Without(slices.Sorted(maps.Keys(w.Lost))...), nil
}

// lookTime bounds a look at a cluster: the person who asks for a plan waits for it.
const lookTime = 20 * time.Second

// Nodes asks the installed cluster for its nodes; nil from one that only pretends.
func (r *Reader) Nodes(ctx context.Context, inst store.Installed) ([]kube.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	client, err := r.c.Clusters.Cluster(ctx, inst.UID, inst.Name, inst.Endpoint)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return client.Nodes(ctx)
}

// lookAtHosts asks which hosts of the provider answer, for a request that may move nodes. A request that declares a
// host lost counts as if that were written down.
func (s *Snapshot) lookAtHosts(ctx context.Context, r plan.Request) error {
	if r.Operation != plan.NodeReplace {
		return nil
	}
	b, err := s.r.c.Backends.Backend(ctx, s.Provider.Metadata.Name)
	if err != nil {
		return err
	}
	hosts, ok := hypervisor.Capability[hypervisor.Hosts](b)
	if !ok {
		return nil
	}
	states, err := hosts.HostStates(ctx)
	if err != nil {
		return err
	}
	s.Down = map[string]string{}
	for _, h := range states {
		s.All = append(s.All, h.Host)
		if h.Err != nil {
			s.Down[h.Host] = director.MessageOf(h.Err)
		}
	}
	for _, m := range s.Machines {
		if m.Deleted.IsZero() && m.Host != "" && !slices.Contains(s.All, m.Host) {
			s.Down[m.Host] = "Provider/" + s.Provider.Metadata.Name + " does not have it any more"
		}
	}
	if r.LostHost != "" && s.Down[r.LostHost] != "" {
		s.lose(r.LostHost)
	}
	return nil
}

// signsOfLife finds the nodes of the request that are said to be on a lost host and are alive all the same.
func (s *Snapshot) signsOfLife(ctx context.Context, r plan.Request) error {
	if r.Operation != plan.NodeReplace || !s.Lost[r.LostHost] {
		return nil
	}
	vms, err := s.VMs(ctx)
	if err != nil {
		return err
	}
	s.Alive = map[string]string{}
	for _, m := range s.Machines {
		if !m.Deleted.IsZero() || m.Host != r.LostHost || !slices.Contains(r.Nodes, m.Name) {
			continue
		}
		elsewhere := slices.DeleteFunc(slices.Clone(vms), func(vm hypervisor.VM) bool {
			return vm.Stamp != director.Stamp{Director: s.Director.ID, Machine: m.ID}
		})
		answers, err := s.r.c.Clusters.Answers(ctx, m)
		if err != nil {
			return err
		}
		switch {
		case len(elsewhere) > 0:
			s.Alive[m.Name] = fmt.Sprintf(
				"its VM is on host %s now; write that down with: directorctl vms adopt %s %s", elsewhere[0].Host,
				m.Provider, elsewhere[0].ID,
			)
		case answers:
			s.Alive[m.Name] = "it answers at " + m.Address
		case s.Seen[m.Name].Ready:
			s.Alive[m.Name] = "its node is ready in the cluster"
		}
	}
	return nil
}
