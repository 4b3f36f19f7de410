package vms

import (
	"context"
	"slices"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/store"
)

// owned returns the VM if it carries our stamp, and it is the only one with it.
func (s *Service) owned(ctx context.Context, op, provider, id string) (hypervisor.Backend, hypervisor.VM, error) {
	fail := func(err error) (hypervisor.Backend, hypervisor.VM, error) { return nil, hypervisor.VM{}, err }
	if _, err := s.store.ProviderNames(ctx, []string{provider}); err != nil {
		return fail(err)
	}
	b, err := s.backends.Backend(ctx, provider)
	if err != nil {
		return fail(err)
	}
	vm, err := b.Get(ctx, hypervisor.ID(id))
	if err != nil {
		return fail(err)
	}
	if vm.Stamp.Director != s.director || vm.Stamp.Machine == "" {
		whose := "carries no stamp of a director"
		if vm.Stamp.Director != "" {
			whose = "carries the stamp of director " + vm.Stamp.Director
		}
		return fail(director.Errorf(
			director.KindConflict, op, "VM %s (%s) on %s %s: it is not ours", vm.ID, vm.Name, provider, whose,
		).
			WithHint("it is left as it is; its owner removes it by hand"))
	}
	same, err := b.List(ctx, hypervisor.Filter{Director: s.director, Machine: vm.Stamp.Machine})
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

// Reclaim deletes an orphan: a VM with our stamp that no row and no plan knows. Its data disks stay unless told. A
// tombstone is committed before the hypervisor is asked, so that no plan can take up its identity meanwhile; a reclaim
// that was cut off is repeated.
func (s *Service) Reclaim(ctx context.Context, actor, provider, id string, dataDisks bool) (hypervisor.VM, error) {
	const op = "vms.reclaim"
	b, vm, err := s.owned(ctx, op, provider, id)
	if err != nil {
		return vm, err
	}
	now := s.now()
	m := director.Machine{
		ID: vm.Stamp.Machine, Name: vm.Name, Provider: provider, Host: vm.Host, VMID: string(vm.ID), CPUs: vm.CPUs,
		Memory: vm.Memory,
	}
	clusters, err := s.store.Documents(ctx, model.KindCluster)
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
	err = s.store.Update(ctx, func(tx *store.Tx) error {
		if row, there, err := tx.Machine(m.ID); err != nil {
			return err
		} else if there && row.Deleted.IsZero() {
			return director.Errorf(
				director.KindConflict, op, "VM %s is machine %s of cluster %s, and no orphan", vm.ID, row.Name,
				row.Cluster,
			).
				WithHint("delete the node with a plan: directorctl node delete %s %s", row.Cluster, row.Name)
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
	return vm, s.store.Update(ctx, func(tx *store.Tx) error { return tx.ForgetLost(m.ID) })
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
			(st.Status == plan.Done || p.Steps[i].Back() && st.Status == plan.Pending && !s.Status.Active()) {
			continue
		}
		return director.Errorf(
			director.KindConflict, op, "plan %s is %s and still means to make machine %s", m.Plan, s.Status, machine,
		).
			WithHint(
				"let it continue (directorctl retry %s), or give it up first: directorctl discard %s", m.Plan,
				m.Plan,
			)
	}
	return nil
}
