package operations

import (
	"context"
	"maps"
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/ledger"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/store"
)

var _ api.Ledger = (*Operations)(nil)

// VMs lists the VMs of the named providers, or of all, as the ledger and the hypervisors have them. Strangers are in it
// only if asked for.
func (o *Operations) VMs(ctx context.Context, strangers bool, providers ...string) (api.VMsView, error) {
	names, err := o.providers(ctx, providers)
	if err != nil {
		return api.VMsView{}, err
	}
	var v api.VMsView
	seen := map[string][]hypervisor.VM{} // before the rows, as in an audit
	for _, name := range names {
		c := ledger.Compared{Name: name}
		if seen[name], c.Err = o.list(ctx, name, strangers); c.Err != nil && ctx.Err() != nil {
			return v, ctx.Err()
		}
		c.VMs = len(seen[name])
		v.Providers = append(v.Providers, c)
	}
	rows, err := o.Store.Machines(ctx, store.MachineFilter{})
	if err != nil {
		return v, err
	}
	lost, err := o.Store.LostMachines(ctx, "")
	if err != nil {
		return v, err
	}
	given := map[string]director.Machine{}
	for _, m := range lost {
		given[m.ID] = m
	}
	for _, c := range v.Providers {
		left := map[string]director.Machine{}
		for _, m := range rows {
			if m.Provider == c.Name {
				left[m.ID] = m
			}
		}
		known := maps.Clone(left)
		for _, vm := range seen[c.Name] {
			item := api.VMView{Provider: c.Name, VM: vm, Owner: api.OwnerStranger}
			if vm.Stamp.Director == o.Director.ID {
				item.Owner = api.OwnerOrphan
				if m, ok := given[vm.Stamp.Machine]; ok {
					item.Owner, item.Machine = api.OwnerFenced, m
				}
				if m, ok := known[vm.Stamp.Machine]; ok {
					item.Owner, item.Machine = api.OwnerLedger, m
					delete(left, m.ID)
				}
			}
			v.Items = append(v.Items, item)
		}
		for _, m := range left { // rows without a VM, or of a provider that did not answer
			v.Items = append(v.Items, api.VMView{
				Provider: c.Name, Owner: api.OwnerLedger, Machine: m, VM: hypervisor.VM{Name: m.Name, Host: m.Host},
			})
		}
	}
	slices.SortFunc(v.Items, func(a, b api.VMView) int {
		return strings.Compare(
			a.Provider+"/"+a.VM.Name+"/"+string(a.VM.ID), b.Provider+"/"+b.VM.Name+"/"+string(b.VM.ID),
		)
	})
	return v, nil
}

// providers returns the named providers, or all, by name; not_found for one that there is not.
func (o *Operations) providers(ctx context.Context, named []string) ([]string, error) {
	docs, err := o.Store.Documents(ctx, model.KindProvider)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, d := range docs {
		all = append(all, d.Metadata.Name)
	}
	for _, n := range named {
		if !slices.Contains(all, n) {
			return nil, noProvider(n, all)
		}
	}
	if len(named) > 0 {
		all = slices.Compact(slices.Sorted(slices.Values(named)))
	}
	return all, nil
}

func noProvider(name string, all []string) error {
	return director.Errorf(director.KindNotFound, "operations.provider", "there is no Provider/%s", name).
		WithHint("there are: %s", strings.Join(all, ", "))
}

func (o *Operations) list(ctx context.Context, provider string, strangers bool) ([]hypervisor.VM, error) {
	b, err := o.Env.Backends.Backend(ctx, provider)
	if err != nil {
		return nil, err
	}
	return b.List(ctx, hypervisor.Filter{Director: o.Director.ID, Strangers: strangers})
}

// Audit compares the ledger with what the named providers have, or all. It changes nothing, and is right also while
// plans run: the VMs are read before the rows, because a row is written before its VM is asked for, and what seems
// wrong is looked at a second time. A provider that does not answer is an error in the report alone.
func (o *Operations) Audit(ctx context.Context, providers ...string) (ledger.Report, error) {
	r := ledger.Report{At: o.Now().UTC()}
	names, err := o.providers(ctx, providers)
	if err != nil {
		return r, err
	}
	busy, err := o.Busy(ctx)
	if err != nil {
		return r, err
	}
	r.Providers = make([]ledger.Compared, len(names))
	all := map[int]bool{}
	for i, n := range names {
		r.Providers[i].Name = n
		all[i] = true
	}
	first, err := o.compare(ctx, r.Providers, all, busy)
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
		if second, err = o.compare(ctx, r.Providers, suspect, busy); err != nil {
			return r, err
		}
	}
	for i := range names {
		r.Findings = append(r.Findings, ledger.Both(first[i], second[i])...)
	}
	if err := o.auditDisks(ctx, &r, busy); err != nil {
		return r, err
	}
	r.Busy = slices.Sorted(maps.Keys(busy))
	return r, nil
}

// compare looks once at the providers with those numbers. busy gets the clusters that plans hold afterwards.
func (o *Operations) compare(
	ctx context.Context, p []ledger.Compared, which map[int]bool, busy map[string]bool,
) (map[int][]ledger.Finding, error) {
	vms := map[int][]hypervisor.VM{}
	for i := range p {
		if !which[i] {
			continue
		}
		list, err := o.list(ctx, p[i].Name, true)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if p[i].Err = err; err != nil {
			continue
		}
		p[i].VMs = 0
		for _, vm := range list {
			if vm.Stamp.Director == o.Director.ID {
				p[i].VMs++
			}
		}
		vms[i] = list
	}
	rows, err := o.Store.Machines(ctx, store.MachineFilter{})
	if err != nil {
		return nil, err
	}
	now, err := o.Busy(ctx)
	if err != nil {
		return nil, err
	}
	maps.Copy(busy, now)
	clusters, err := o.Store.Documents(ctx, model.KindCluster)
	if err != nil {
		return nil, err
	}
	out := map[int][]ledger.Finding{}
	for i, list := range vms {
		given, err := o.Store.LostMachines(ctx, p[i].Name)
		if err != nil {
			return nil, err
		}
		hosts, err := o.Store.LostHosts(ctx, p[i].Name)
		if err != nil {
			return nil, err
		}
		lost := map[string]bool{}
		for _, h := range hosts {
			lost[h.Host] = true
		}
		nodes := map[string]string{}
		for _, c := range clusters {
			if c.Cluster.Provider != p[i].Name {
				continue
			}
			for _, n := range planner.NodeNames(c.Metadata.Name, c.Cluster) {
				nodes[n] = c.Metadata.Name
			}
		}
		out[i] = ledger.Compare(ledger.Provider{
			Name: p[i].Name, Director: o.Director.ID, VMs: list, Rows: rows, Given: given, Lost: lost, Nodes: nodes,
			Busy: busy,
			Home: func(vm hypervisor.VM) string { return home(clusters, p[i].Name, vm).Metadata.Name },
		})
	}
	return out, nil
}

// home returns the cluster on the provider that the VM was made for, or none: its name only says where to look, and its
// stamp proves it.
func home(clusters []model.Stored, provider string, vm hypervisor.VM) model.Stored {
	for _, c := range clusters {
		if c.Cluster.Provider == provider && strings.HasPrefix(vm.Name, c.Metadata.Name+"-") &&
			planner.MadeFor(c.UID, vm.Name, vm.Stamp.Machine) {
			return c
		}
	}
	return model.Stored{}
}

// family is home also for a VM that somebody has renamed, with the node's name. It looks at every name of every
// cluster.
func family(clusters []model.Stored, provider string, vm hypervisor.VM) (model.Stored, string) {
	if c := home(clusters, provider, vm); c.UID != "" {
		return c, vm.Name
	}
	for _, c := range clusters {
		if c.Cluster.Provider != provider {
			continue
		}
		if name, ok := planner.NodeWithID(c.UID, planner.NodeNames(c.Metadata.Name, c.Cluster), vm.Stamp.Machine); ok {
			return c, name
		}
	}
	return model.Stored{}, vm.Name
}

// owned returns the VM if it carries our stamp, and it is the only one with it.
func (o *Operations) owned(ctx context.Context, op, provider, id string) (hypervisor.Backend, hypervisor.VM, error) {
	fail := func(err error) (hypervisor.Backend, hypervisor.VM, error) { return nil, hypervisor.VM{}, err }
	if _, err := o.providers(ctx, []string{provider}); err != nil {
		return fail(err)
	}
	b, err := o.Env.Backends.Backend(ctx, provider)
	if err != nil {
		return fail(err)
	}
	vm, err := b.Get(ctx, hypervisor.ID(id))
	if err != nil {
		return fail(err)
	}
	if vm.Stamp.Director != o.Director.ID || vm.Stamp.Machine == "" {
		whose := "carries no stamp of a director"
		if vm.Stamp.Director != "" {
			whose = "carries the stamp of director " + vm.Stamp.Director
		}
		return fail(director.Errorf(
			director.KindConflict, op, "VM %s (%s) on %s %s: it is not ours", vm.ID, vm.Name, provider, whose,
		).
			WithHint("it is left as it is; whoever it belongs to removes it by hand"))
	}
	same, err := b.List(ctx, hypervisor.Filter{Director: o.Director.ID, Machine: vm.Stamp.Machine})
	if err != nil {
		return fail(err)
	}
	if len(same) > 1 {
		return fail(director.Errorf(
			director.KindConflict, op, "%d VMs on %s carry the stamp of machine %s", len(same), provider,
			vm.Stamp.Machine,
		).
			WithHint("find out which of them is the node, and remove the others by hand"))
	}
	return b, vm, nil
}

// Reclaim deletes an orphan: a VM with our stamp that no row and no plan stands for. Its data disks stay unless told. A
// tombstone is committed before the hypervisor is asked, so that no plan can take up its identity meanwhile; a reclaim
// that was cut off is repeated.
func (o *Operations) Reclaim(ctx context.Context, actor, provider, id string, dataDisks bool) (hypervisor.VM, error) {
	const op = "operations.reclaim"
	b, vm, err := o.owned(ctx, op, provider, id)
	if err != nil {
		return vm, err
	}
	now := o.Now()
	m := director.Machine{
		ID: vm.Stamp.Machine, Name: vm.Name, Provider: provider, Host: vm.Host, VMID: string(vm.ID), CPUs: vm.CPUs,
		Memory: vm.Memory,
	}
	clusters, err := o.Store.Documents(ctx, model.KindCluster)
	if err != nil {
		return vm, err
	}
	// then the planner counts the tombstone, and gives the name another id
	if c, name := family(clusters, provider, vm); c.UID != "" {
		m.ClusterUID, m.Cluster, m.Name = c.UID, c.Metadata.Name, name
		if row, ok := planner.Member(c, name, m.ID, nil); ok {
			m.Role, m.Pool = row.Role, row.Pool
		}
	}
	err = o.Store.Update(ctx, func(tx *store.Tx) error {
		if row, there, err := tx.Machine(m.ID); err != nil {
			return err
		} else if there && row.Deleted.IsZero() {
			return director.Errorf(
				director.KindConflict, op, "VM %s is machine %s of cluster %s, and no orphan", vm.ID, row.Name,
				row.Cluster,
			).
				WithHint("have the node taken away by a plan: directorctl node delete %s %s", row.Cluster, row.Name)
		}
		if err := makes(tx, op, m.ID); err != nil {
			return err
		}
		if err := tx.DisownMachine(m, now); err != nil {
			return err
		}
		return tx.Audit(now, actor, "reclaim", "VM/"+string(vm.ID)+" ("+vm.Name+") on Provider/"+provider)
	})
	if err != nil {
		return vm, err
	}
	if err := b.Delete(ctx, vm.ID, hypervisor.DeleteOptions{Owner: vm.Stamp, DataDisks: dataDisks}); err != nil {
		return vm, err
	}
	// it may have been given up with its host
	return vm, o.Store.Update(ctx, func(tx *store.Tx) error { return tx.ForgetLost(m.ID) })
}

// makes is a conflict if a plan that is not over for good still means to make the machine.
func makes(tx *store.Tx, op, machine string) error {
	makings, err := tx.Makings(machine)
	if err != nil {
		return err
	}
	for _, m := range makings {
		p, s, err := tx.Plan(m.Plan)
		if err != nil {
			return err
		}
		i := slices.IndexFunc(p.Steps, func(step plan.Step) bool { return step.ID == m.Step })
		st := s.Step(m.Step)
		if i >= 0 && st != nil &&
			(st.Status == plan.Done || p.Steps[i].Back() && st.Status == plan.Pending && !s.Phase.Active()) {
			continue
		}
		return director.Errorf(
			director.KindConflict, op, "plan %s is %s and still means to make machine %s", m.Plan, s.Phase, machine,
		).
			WithHint("let it go on (directorctl retry %s), or give it up first: directorctl discard %s", m.Plan, m.Plan)
	}
	return nil
}
