package vms

import (
	"context"
	"maps"
	"slices"

	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/ledger"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/store"
)

// Audit compares the ledger with what the named providers have, or all. It changes nothing, and is right also while
// plans run: the VMs are read before the rows, because a row is written before its VM is asked for, and what seems
// wrong is looked at a second time. A provider that does not answer is an error in the report alone.
func (s *Service) Audit(ctx context.Context, providers ...string) (ledger.Report, error) {
	r := ledger.Report{At: s.now().UTC()}
	names, err := s.store.ProviderNames(ctx, providers)
	if err != nil {
		return r, err
	}
	busy, err := s.busy(ctx)
	if err != nil {
		return r, err
	}
	r.Providers = make([]ledger.Compared, len(names))
	all := map[int]bool{}
	for i, n := range names {
		r.Providers[i].Name = n
		all[i] = true
	}
	first, err := s.compare(ctx, r.Providers, all, busy)
	if err != nil {
		return r, err
	}
	suspect := map[int]bool{}
	for i := range names {
		if len(first[i]) > 0 {
			suspect[i] = true
		}
	}
	second := map[int][]ledger.Finding{}
	if len(suspect) > 0 {
		if second, err = s.compare(ctx, r.Providers, suspect, busy); err != nil {
			return r, err
		}
	}
	for i := range names {
		r.Findings = append(r.Findings, ledger.Both(first[i], second[i])...)
	}
	if err := s.auditDisks(ctx, &r, busy); err != nil {
		return r, err
	}
	r.Busy = slices.Sorted(maps.Keys(busy))
	return r, nil
}

// compare looks once at the providers with those numbers. busy gets the clusters that plans hold afterwards.
func (s *Service) compare(
	ctx context.Context, p []ledger.Compared, which map[int]bool, busy map[string]bool,
) (map[int][]ledger.Finding, error) {
	vms := map[int][]hypervisor.VM{}
	for i := range p {
		if !which[i] {
			continue
		}
		list, err := s.list(ctx, p[i].Name, true)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if p[i].Err = err; err != nil {
			continue
		}
		p[i].VMs = 0
		for _, vm := range list {
			if vm.Stamp.Director == s.director {
				p[i].VMs++
			}
		}
		vms[i] = list
	}
	rows, err := s.store.Machines(ctx, store.MachineFilter{})
	if err != nil {
		return nil, err
	}
	now, err := s.busy(ctx)
	if err != nil {
		return nil, err
	}
	maps.Copy(busy, now)
	clusters, err := s.store.Documents(ctx, model.KindCluster)
	if err != nil {
		return nil, err
	}
	out := map[int][]ledger.Finding{}
	for i, list := range vms {
		q := ledger.Provider{Name: p[i].Name, Director: s.director, VMs: list, Rows: rows, Busy: busy}
		if err := s.expect(ctx, &q, clusters); err != nil {
			return nil, err
		}
		out[i] = ledger.Compare(q)
	}
	return out, nil
}

// expect adds what the ledger and the documents say of the provider: what was given up there, its lost hosts, and the
// names of nodes.
func (s *Service) expect(ctx context.Context, q *ledger.Provider, clusters []model.Stored) error {
	var err error
	if q.Given, err = s.store.LostMachines(ctx, q.Name); err != nil {
		return err
	}
	hosts, err := s.store.LostHosts(ctx, q.Name)
	if err != nil {
		return err
	}
	q.Lost = map[string]bool{}
	for _, h := range hosts {
		q.Lost[h.Host] = true
	}
	q.Nodes = map[string]string{}
	for _, c := range clusters {
		if c.Cluster.Provider != q.Name {
			continue
		}
		for _, n := range planner.NodeNames(c.Metadata.Name, c.Cluster) {
			q.Nodes[n] = c.Metadata.Name
		}
	}
	q.Home = func(vm hypervisor.VM) string { return home(clusters, q.Name, vm).Metadata.Name }
	return nil
}

// auditDisks adds the disks that outlived their VMs to the report, with what is wrong with them. A provider whose VMs
// were not seen is not asked for disks either.
func (s *Service) auditDisks(ctx context.Context, r *ledger.Report, busy map[string]bool) error {
	var names []string
	for _, p := range r.Providers {
		if p.Err == nil {
			names = append(names, p.Name)
		}
	}
	if len(names) == 0 {
		return nil
	}
	items, compared, err := s.disks.OnProviders(ctx, names)
	if err != nil {
		return err
	}
	for _, c := range compared {
		for i := range r.Providers {
			if r.Providers[i].Name == c.Name {
				r.Providers[i].Err = c.Err
			}
		}
	}
	r.Disks = items
	r.Findings = append(r.Findings, ledger.DiskFindings(items, busy)...)
	return nil
}

// busy lists the clusters that a plan holds, or that the newest plan has left half way.
func (s *Service) busy(ctx context.Context) (map[string]bool, error) {
	ids, err := s.store.Plans(ctx, store.PlanFilter{Statuses: []plan.Status{
		plan.StatusRunning, plan.StatusPaused, plan.StatusCancelling, plan.StatusParked, plan.StatusUndoing,
		plan.StatusFailed, plan.StatusCancelled,
	}})
	if err != nil {
		return nil, err
	}
	busy := make(map[string]bool, len(ids))
	for _, id := range ids {
		p, _, err := s.store.Plan(ctx, id)
		if err != nil {
			return nil, err
		}
		newest, err := s.store.Plans(ctx, store.PlanFilter{Cluster: p.Cluster, Limit: 1})
		if err != nil {
			return nil, err
		}
		if newest[0] == id {
			busy[p.Cluster] = true
		}
	}
	return busy, nil
}
