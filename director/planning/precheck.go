package planning

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/capacity"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/snapshot"
	"github.com/director-kaas/kaas/director/step"
)

// opPrecheck is the operation of the error that holds every problem of a plan.
const opPrecheck = "planning.precheck"

// prechecks find all that a plan would be refused for.
type prechecks struct{ *Service }

func (s *Service) prechecks() prechecks { return prechecks{s} }

// precheck looks at everything that would stop the plan half way, and returns all problems, with those that were found
// before, in one invalid error, each with the field and what to do (requirement A7). Warnings do not stop it.
func (s prechecks) precheck(
	ctx context.Context, w *snapshot.Snapshot, c plan.Content, problems []director.Field,
) (warnings []string, looked []AddressCheck, err error) {
	warnings, err = model.Validate(&w.Cluster.Document)
	if err != nil {
		return nil, nil, err
	}
	warnings = append(warnings, s.overBudget(w.Provider.Metadata.Name, w.Provider.Provider, c)...)
	image, unqualified := s.checkImage(ctx, w.World)
	problems, warnings = append(problems, image...), append(warnings, unqualified...)
	facts, err := step.DecodeFacts(c)
	if err != nil {
		return nil, nil, err
	}
	switch d := w.Cluster.Director; {
	case c.Operation == plan.DirectorUpgrade: // its VM is told nothing again
	case d != nil && s.FirstBoots != nil:
		problems = append(problems, s.FirstBoots.Problems(ctx, c.Cluster, *d)...)
	case d == nil && w.NoBundle == nil:
		problems = append(problems, director.FieldsOf(s.Site.CheckInventory(facts))...)
	}
	problems = append(problems, s.checkQuota(w, c.Operation)...)
	problems = append(problems, s.checkIssuers(ctx, c)...)
	host, looked, err := s.checkProvider(ctx, w, c, facts)
	if err != nil {
		problems = append(problems, director.Field{
			Path: w.Provider.Ref().String(), Msg: director.MessageOf(err), Hint: director.HintOf(err),
		})
	}
	problems = append(problems, host...)
	return warnings, looked, director.Invalid(opPrecheck, unworkable(c), problems)
}

// checkIssuers says why outer authorities could not issue what the plan needs.
func (s prechecks) checkIssuers(ctx context.Context, c plan.Content) (out []director.Field) {
	if s.Outer == nil {
		return nil
	}
	for _, name := range step.Issuers(c) {
		err := s.Outer.Ready(ctx, name)
		if fields := director.FieldsOf(err); len(fields) > 0 {
			out = append(out, fields...)
		} else if err != nil {
			out = append(out, director.Field{
				Path: model.Ref{Kind: model.KindCertificateAuthority, Name: name}.String(),
				Msg:  director.MessageOf(err),
				Hint: director.HintOf(err),
			})
		}
	}
	return out
}

// checkQuota adds what the cluster needs to what the provider's other clusters have, and holds the cluster against its
// own quota.
func (s prechecks) checkQuota(w *snapshot.Snapshot, op plan.Operation) []director.Field {
	p := w.Provider.Provider
	if p.Quota == (model.Quota{}) && p.ClusterQuota == (model.Quota{}) {
		return nil
	}
	others := capacity.UseOf(
		slices.DeleteFunc(w.Neighbours(), func(m director.Machine) bool { return m.ClusterUID == w.Cluster.UID }),
	)
	c := w.Cluster.Cluster
	own := capacity.Use{}.Add(c.Masters.Count, c.Masters.CPUs, int64(c.Masters.Memory))
	for _, pool := range c.Workers {
		own = own.Add(pool.Count, pool.CPUs, int64(pool.Memory))
	}
	if op == plan.ClusterDrill {
		own = own.Add(1, c.Masters.CPUs, int64(c.Masters.Memory))
	}
	var out []director.Field
	over := func(field string, q model.Quota, u capacity.Use) {
		for _, e := range capacity.Over(q, u) {
			out = append(out, director.Field{
				Path: w.Provider.Ref().String() + ": spec." + field + "." + e.Name,
				Msg:  fmt.Sprintf("%v would be used and %v are allowed", e.Need, e.Most),
				Hint: "make the cluster smaller, or raise the quota",
			})
		}
	}
	over("quota", p.Quota, others.Plus(own))
	if !op.OnDirector() {
		over("clusterQuota", p.ClusterQuota, own)
	}
	return out
}

// checkProvider asks the hypervisor: reachable, room for what is new, and no stranger with one of our names.
func (s prechecks) checkProvider(
	ctx context.Context, w *snapshot.Snapshot, c plan.Content, facts step.Facts,
) ([]director.Field, []AddressCheck, error) {
	b, err := w.Backend(ctx)
	if err != nil {
		return nil, nil, err
	}
	vms, err := w.VMs(ctx)
	if err != nil {
		return nil, nil, err
	}
	existing, out := s.namesakes(w.World, c, facts, vms)
	addresses, looked, err := s.checkAddresses(ctx, w, b, claims(w.World, c, facts, existing))
	if err != nil {
		return out, nil, err
	}
	out = append(out, addresses...)
	teller, ok := hypervisor.Capability[hypervisor.Capacity](b)
	if !ok {
		return out, looked, nil
	}
	rows, err := teller.Capacity(ctx)
	if err != nil {
		return out, looked, err
	}
	return append(
		out, tooSmall(w.World, c, capacity.Hosts(rows, vms, w.Provider.Provider.Overcommit), existing)...,
	), looked, nil
}

// tooSmall compares what the new VMs need with what their hosts have left under the provider's policy. Disks are thin,
// so only a tenth of their size must be free.
func tooSmall(w planner.World, c plan.Content, hosts []capacity.Host, existing map[string]bool) []director.Field {
	needs := map[string]capacity.Need{}
	masters := w.Cluster.Cluster.Masters.VMSize
	sizes := map[string]model.VMSize{"master": masters, planner.DrillPool: masters, planner.DirectorPool: masters}
	for _, p := range w.Cluster.Cluster.Workers {
		sizes[p.Name] = p.VMSize
	}
	for _, m := range c.Machines {
		if !existing[m.Name] {
			needs[m.Host] = needs[m.Host].Add(capacity.NeedOf(sizes[m.Pool], 1))
		}
	}
	fits := fitting(w.Cluster.Cluster, hosts)
	// What has no host yet goes where the hypervisor likes: it must fit into all of them together.
	var left int64
	for _, h := range hosts {
		left += h.MemoryLeft
	}
	if need := needs[""].Memory; need > left {
		return []director.Field{{
			Path: w.Provider.Ref().String(),
			Msg: fmt.Sprintf(
				"%s of memory are needed and %s are free on all its hosts together", inMiB(need), inMiB(left),
			),
			Hint: "choose smaller nodes, fewer of them, or add hosts" + fits,
		}}
	}
	var out []director.Field
	for _, h := range hosts {
		need := needs[h.Host]
		at := w.Provider.Ref().String() + ": host " + h.Host
		if need.CPUs > h.CPUsLeft {
			out = append(out, director.Field{
				Path: at,
				Msg: fmt.Sprintf(
					"%d vCPUs are needed, and of its %d CPUs %d may be promised still", need.CPUs, h.CPUs, h.CPUsLeft,
				),
				Hint: "choose smaller nodes or fewer of them, or raise spec.overcommit.cpuPercent" + fits,
			})
		}
		if need.Memory > h.MemoryLeft {
			out = append(out, director.Field{
				Path: at,
				Msg:  fmt.Sprintf("%s of memory are needed and %s are free", inMiB(need.Memory), inMiB(h.MemoryLeft)),
				Hint: "choose smaller nodes, fewer of them, or a host with more memory" + fits,
			})
		}
		if need.Disk > h.DiskLeft {
			out = append(out, director.Field{
				Path: at,
				Msg: fmt.Sprintf(
					"at least %s of disk are needed and %s are free in its storage pool", inMiB(need.Disk),
					inMiB(h.DiskLeft),
				),
				Hint: "free space in the pool, or choose smaller disks" + fits,
			})
		}
	}
	return out
}

// fitting says for each pool of workers how many nodes of its size the hosts have room for.
func fitting(c *model.Cluster, hosts []capacity.Host) string {
	var parts []string
	for _, p := range c.Workers {
		n, by := capacity.Fit(hosts, p.VMSize)
		parts = append(parts, fmt.Sprintf("%d nodes of the size of %s fit, by %s", n, p.Name, by))
	}
	if parts == nil {
		return ""
	}
	return "; on all hosts " + strings.Join(parts, ", ")
}

func inMiB(n int64) string { return fmt.Sprintf("%d MiB", n>>20) }
