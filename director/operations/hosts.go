package operations

import (
	"context"
	"fmt"
	"net/netip"
	"slices"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/store"
)

// hostsOf reads which hosts of the provider were declared lost, and keeps what VMs that were given up may still have
// from everybody else.
func (o *Operations) hostsOf(ctx context.Context, w *planner.World) error {
	provider := w.Cluster.Cluster.Provider
	lost, err := o.Store.LostHosts(ctx, provider)
	if err != nil {
		return err
	}
	for _, h := range lost {
		lose(w, h.Host)
	}
	given, err := o.Store.LostMachines(ctx, provider)
	if err != nil {
		return err
	}
	for _, m := range given {
		for _, n := range append([]director.NIC{{Network: m.Network, Address: m.Address, MAC: m.MAC}}, m.NICs...) {
			w.MACs[n.MAC] = true
			used := w.Used
			if u, ok := w.Underlays[n.Network]; ok {
				used = u.Used
			} else if n.Network != w.Cluster.Cluster.Network {
				continue
			}
			if a, err := netip.ParseAddr(n.Address); err == nil {
				used[a] = true
			}
		}
	}
	return nil
}

// lookAtHosts asks which hosts of the provider answer, for a request that may move nodes. A request that declares a
// host lost counts as if that were written down.
func (o *Operations) lookAtHosts(ctx context.Context, w *planner.World, r plan.Request) error {
	if r.Operation != plan.NodeReplace {
		return nil
	}
	b, err := o.Env.Backends.Backend(ctx, w.Provider.Metadata.Name)
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
	w.Down = map[string]string{}
	for _, s := range states {
		w.All = append(w.All, s.Host)
		if s.Err != nil {
			w.Down[s.Host] = director.MessageOf(s.Err)
		}
	}
	for _, m := range w.Machines {
		if m.Deleted.IsZero() && m.Host != "" && !slices.Contains(w.All, m.Host) {
			w.Down[m.Host] = "Provider/" + w.Provider.Metadata.Name + " does not have it any more"
		}
	}
	if r.LostHost != "" && w.Down[r.LostHost] != "" {
		lose(w, r.LostHost)
	}
	return nil
}

// signsOfLife finds the nodes of the request that are said to be on a lost host and are alive all the same.
func (o *Operations) signsOfLife(ctx context.Context, w *planner.World, r plan.Request) error {
	if r.Operation != plan.NodeReplace || !w.Lost[r.LostHost] {
		return nil
	}
	b, err := o.view(ctx, *w)
	if err != nil {
		return err
	}
	w.Alive = map[string]string{}
	for _, m := range w.Machines {
		if !m.Deleted.IsZero() || m.Host != r.LostHost || !slices.Contains(r.Nodes, m.Name) {
			continue
		}
		elsewhere, err := b.List(ctx, hypervisor.Filter{Director: o.Director.ID, Machine: m.ID})
		if err != nil {
			return err
		}
		answers, err := o.Env.Answers(ctx, m)
		if err != nil {
			return err
		}
		switch {
		case len(elsewhere) > 0:
			w.Alive[m.Name] = fmt.Sprintf(
				"its VM is on host %s now; write that down with: directorctl vms adopt %s %s", elsewhere[0].Host,
				m.Provider, elsewhere[0].ID,
			)
		case answers:
			w.Alive[m.Name] = "it answers at " + m.Address
		case w.Seen[m.Name].Ready:
			w.Alive[m.Name] = "its node is ready in the cluster"
		}
	}
	return nil
}

// view returns the provider's back end without the hosts that w takes for lost.
func (o *Operations) view(ctx context.Context, w planner.World) (hypervisor.Backend, error) {
	b, err := o.Env.Backends.Backend(ctx, w.Provider.Metadata.Name)
	if err != nil || len(w.Lost) == 0 {
		return b, err
	}
	hosts, ok := hypervisor.Capability[hypervisor.Hosts](b)
	if !ok {
		return b, nil
	}
	return hosts.Without(keys(w.Lost)...), nil
}

// declareLost writes down what the plan was started with: from then on the host is asked nothing. It belongs to the
// transaction of the start.
func (o *Operations) declareLost(tx *store.Tx, p *plan.Plan, actor string) error {
	if p.Request.LostHost == "" {
		return nil
	}
	facts, err := step.DecodeFacts(p.Content)
	if err != nil {
		return err
	}
	h := director.LostHost{
		Provider: facts.Document.Provider, Host: p.Request.LostHost, By: actor, Plan: p.ID, At: o.Now(),
	}
	if err := tx.LoseHost(h); err != nil {
		return err
	}
	return tx.Audit(h.At, actor, "declare lost", "host "+h.Host+" of Provider/"+h.Provider)
}

func lose(w *planner.World, host string) {
	if w.Lost == nil {
		w.Lost = map[string]bool{}
	}
	w.Lost[host] = true
}

func keys(set map[string]bool) []string {
	var out []string
	for k := range set {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
