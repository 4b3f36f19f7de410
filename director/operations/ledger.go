package operations

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/ledger"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/wire"
)

var _ api.Ledger = (*Operations)(nil)

// VMs lists the VMs of the named providers, or of all, as the ledger and the hypervisors have them. Strangers are in it only if asked for.
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
				if m, ok := known[vm.Stamp.Machine]; ok {
					item.Owner, item.Machine = api.OwnerLedger, m
					delete(left, m.ID)
				}
			}
			v.Items = append(v.Items, item)
		}
		for _, m := range left { // rows without a VM, or of a provider that did not answer
			v.Items = append(v.Items, api.VMView{Provider: c.Name, Owner: api.OwnerLedger, Machine: m, VM: hypervisor.VM{Name: m.Name, Host: m.Host}})
		}
	}
	slices.SortFunc(v.Items, func(a, b api.VMView) int {
		return strings.Compare(a.Provider+"/"+a.VM.Name+"/"+string(a.VM.ID), b.Provider+"/"+b.VM.Name+"/"+string(b.VM.ID))
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
	return director.Errorf(director.KindNotFound, "operations.provider", "there is no Provider/%s", name).WithHint("there are: %s", strings.Join(all, ", "))
}

func (o *Operations) list(ctx context.Context, provider string, strangers bool) ([]hypervisor.VM, error) {
	b, err := o.Env.Backends.Backend(ctx, provider)
	if err != nil {
		return nil, err
	}
	return b.List(ctx, hypervisor.Filter{Director: o.Director.ID, Strangers: strangers})
}

// Audit compares the ledger with what the named providers have, or all. It changes nothing, and is right also while plans run: the VMs are read before
// the rows, because a row is written before its VM is asked for, and what seems wrong is looked at a second time. A provider that does not answer is
// an error in the report alone.
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
func (o *Operations) compare(ctx context.Context, p []ledger.Compared, which map[int]bool, busy map[string]bool) (map[int][]ledger.Finding, error) {
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
			Name: p[i].Name, Director: o.Director.ID, VMs: list, Rows: rows, Nodes: nodes, Busy: busy,
			Home: func(vm hypervisor.VM) string { return home(clusters, p[i].Name, vm).Metadata.Name },
		})
	}
	return out, nil
}

// home returns the cluster on the provider that the VM was made for, or none: its name only says where to look, and its stamp proves it.
func home(clusters []model.Stored, provider string, vm hypervisor.VM) model.Stored {
	for _, c := range clusters {
		if c.Cluster.Provider == provider && strings.HasPrefix(vm.Name, c.Metadata.Name+"-") && planner.MadeFor(c.UID, vm.Name, vm.Stamp.Machine) {
			return c
		}
	}
	return model.Stored{}
}

// family is home also for a VM that somebody has renamed, with the node's name. It looks at every name of every cluster.
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
		return fail(director.Errorf(director.KindConflict, op, "VM %s (%s) on %s %s: it is not ours", vm.ID, vm.Name, provider, whose).
			WithHint("it is left as it is; whoever it belongs to removes it by hand"))
	}
	same, err := b.List(ctx, hypervisor.Filter{Director: o.Director.ID, Machine: vm.Stamp.Machine})
	if err != nil {
		return fail(err)
	}
	if len(same) > 1 {
		return fail(director.Errorf(director.KindConflict, op, "%d VMs on %s carry the stamp of machine %s", len(same), provider, vm.Stamp.Machine).
			WithHint("find out which of them is the node, and remove the others by hand"))
	}
	return b, vm, nil
}

// Reclaim deletes an orphan: a VM with our stamp that no row and no plan stands for. Its data disks stay unless told. A tombstone is committed before the
// hypervisor is asked, so that no plan can take up its identity meanwhile; a reclaim that was cut off is repeated.
func (o *Operations) Reclaim(ctx context.Context, actor, provider, id string, dataDisks bool) (hypervisor.VM, error) {
	const op = "operations.reclaim"
	b, vm, err := o.owned(ctx, op, provider, id)
	if err != nil {
		return vm, err
	}
	now := o.Now()
	m := director.Machine{
		ID: vm.Stamp.Machine, Name: vm.Name, Provider: provider, Host: vm.Host, VMID: string(vm.ID), CPUs: vm.CPUs, Memory: vm.Memory,
	}
	clusters, err := o.Store.Documents(ctx, model.KindCluster)
	if err != nil {
		return vm, err
	}
	if c, name := family(clusters, provider, vm); c.UID != "" { // then the planner counts the tombstone, and gives the name another id
		m.ClusterUID, m.Cluster, m.Name = c.UID, c.Metadata.Name, name
		if row, ok := planner.Member(c, name, m.ID); ok {
			m.Role, m.Pool = row.Role, row.Pool
		}
	}
	err = o.Store.Update(ctx, func(tx *store.Tx) error {
		if row, there, err := tx.Machine(m.ID); err != nil {
			return err
		} else if there && row.Deleted.IsZero() {
			return director.Errorf(director.KindConflict, op, "VM %s is machine %s of cluster %s, and no orphan", vm.ID, row.Name, row.Cluster).
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
	return vm, b.Delete(ctx, vm.ID, hypervisor.DeleteOptions{Owner: vm.Stamp, DataDisks: dataDisks})
}

// makes is a conflict if a plan that is not over for good still means to make the machine.
func makes(tx *store.Tx, op, machine string) error {
	ids, err := tx.PlansNaming(machine)
	if err != nil {
		return err
	}
	for _, id := range ids {
		p, s, err := tx.Plan(id)
		if err != nil {
			return err
		}
		for _, step := range p.Steps {
			if step.Kind != planner.StepVMEnsure || !strings.Contains(string(step.Params), `"`+machine+`"`) {
				continue
			}
			if st := s.Step(step.ID); st != nil && (st.Status == plan.Done || step.Back() && st.Status == plan.Pending && !s.Phase.Active()) {
				continue
			}
			return director.Errorf(director.KindConflict, op, "plan %s is %s and still means to make machine %s", id, s.Phase, machine).
				WithHint("let it go on (directorctl retry %s), or give it up first: directorctl discard %s", id, id)
		}
	}
	return nil
}

// Adopt writes an orphan into the ledger again, if the cluster that it was made for exists: then the next plan of the cluster sees it. A VM that is in the
// ledger already is written down where it is now. said are the addresses of an orphan that nobody remembers; others than those that somebody does are refused.
//
// The row is the one that the VM had, as the tombstone or the newest plan that names it tells. Without either, the stamp itself proves the cluster and
// the node's name; then only the addresses are missing. Nothing is taken from the VM's name alone.
func (o *Operations) Adopt(ctx context.Context, actor, provider, id string, said wire.VMAdopt) (director.Machine, error) {
	const op = "operations.adopt"
	_, vm, err := o.owned(ctx, op, provider, id)
	if err != nil {
		return director.Machine{}, err
	}
	row, there, err := o.Store.Machine(ctx, vm.Stamp.Machine)
	if err != nil {
		return row, err
	}
	if there && row.Deleted.IsZero() {
		return o.relocate(ctx, actor, row, vm)
	}
	m, err := o.remembered(ctx, op, provider, vm, row, there, said)
	if err != nil {
		return m, err
	}
	if err := o.checkAdopted(ctx, op, m, vm); err != nil {
		return m, err
	}
	m.Host, m.VMID, m.State, m.Deleted = vm.Host, string(vm.ID), director.MachinePresent, time.Time{}
	if m.Kubernetes, err = o.memberVersion(ctx, m); err != nil {
		return m, err
	}
	err = o.Store.Update(ctx, func(tx *store.Tx) error {
		if err := tx.AdoptMachine(m, o.Now()); err != nil {
			return err
		}
		return tx.Audit(o.Now(), actor, "adopt", "VM/"+id+" ("+vm.Name+") on Provider/"+provider+" into Cluster/"+m.Cluster)
	})
	return m, err
}

// relocate writes down where the VM of a living row is now.
func (o *Operations) relocate(ctx context.Context, actor string, row director.Machine, vm hypervisor.VM) (director.Machine, error) {
	if row.Host == vm.Host && row.VMID == string(vm.ID) {
		return row, nil
	}
	if holder, err := o.Store.Holder(ctx, row.Cluster); err != nil {
		return row, err
	} else if holder != "" {
		return row, o.heldBy(ctx, "operations.adopt", holder, row.Cluster)
	}
	if err := o.Store.SetMachine(ctx, row.ID, row.State, vm.Host, string(vm.ID)); err != nil {
		return row, err
	}
	row.Host, row.VMID = vm.Host, string(vm.ID)
	return row, o.Store.Update(ctx, func(tx *store.Tx) error {
		return tx.Audit(o.Now(), actor, "adopt", "VM/"+string(vm.ID)+" ("+vm.Name+") on host "+vm.Host)
	})
}

// remembered returns the row that the VM had, or has to have.
func (o *Operations) remembered(
	ctx context.Context, op, provider string, vm hypervisor.VM, tombstone director.Machine, buried bool, said wire.VMAdopt,
) (director.Machine, error) {
	if buried && tombstone.Address != "" {
		return tombstone, known(op, tombstone, said)
	}
	id, err := o.Store.PlanWithMachine(ctx, vm.Stamp.Machine)
	if err != nil {
		return director.Machine{}, err
	}
	if id != "" {
		p, _, err := o.Store.Plan(ctx, id)
		if err != nil {
			return director.Machine{}, err
		}
		if facts, err := planner.DecodeFacts(p.Content); err == nil { // a plan without facts does not tell
			for _, m := range facts.Nodes {
				if m.ID == vm.Stamp.Machine {
					return m, known(op, m, said)
				}
			}
		}
	}
	clusters, err := o.Store.Documents(ctx, model.KindCluster)
	if err != nil {
		return director.Machine{}, err
	}
	reclaim := fmt.Sprintf("delete it: directorctl vms reclaim %s %s", provider, vm.ID)
	c := home(clusters, provider, vm)
	if c.UID == "" {
		return director.Machine{}, director.Errorf(director.KindConflict, op, "no cluster of today is the one that VM %s (%s) was made for", vm.ID, vm.Name).WithHint("%s", reclaim)
	}
	m, ok := planner.Member(c, vm.Name, vm.Stamp.Machine)
	if !ok {
		return m, director.Errorf(director.KindConflict, op, "cluster %s has no pool for VM %s", c.Metadata.Name, vm.Name).
			WithHint("give the pool back to the document, or %s", reclaim)
	}
	if vm.CPUs != 0 && vm.Memory != 0 {
		m.CPUs, m.Memory = vm.CPUs, vm.Memory
	}
	// The document may have got adapters since, which the VM does not have.
	m.NICs = slices.DeleteFunc(m.NICs, func(n director.NIC) bool {
		return !slices.ContainsFunc(vm.Adapters, func(a hypervisor.Adapter) bool { return strings.EqualFold(a.MAC, n.MAC) })
	})
	var missing, want []string
	if m.Address = said.Address; m.Address == "" {
		missing, want = []string{m.Network}, []string{"--address ADDRESS"}
	}
	for i := range m.NICs {
		n := &m.NICs[i]
		if n.Address = said.Addresses[n.Network]; n.Address == "" {
			missing, want = append(missing, n.Network), append(want, "--address "+n.Network+"=ADDRESS")
		}
	}
	if len(missing) > 0 {
		return m, director.Errorf(director.KindInvalid, op, "nobody remembers the address of VM %s (%s) on network %s", vm.ID, vm.Name, strings.Join(missing, ", ")).
			WithHint("look it up in the guest and name it: directorctl vms adopt %s %s %s", provider, vm.ID, strings.Join(want, " "))
	}
	return m, known(op, m, said)
}

// known refuses other addresses than those that the machine has.
func known(op string, m director.Machine, said wire.VMAdopt) error {
	if said.Address != "" && said.Address != m.Address {
		return director.Errorf(director.KindConflict, op, "machine %s has the address %s, and not %s", m.Name, m.Address, said.Address).WithHint("leave --address out")
	}
	for _, network := range slices.Sorted(maps.Keys(said.Addresses)) {
		i := slices.IndexFunc(m.NICs, func(n director.NIC) bool { return n.Network == network })
		if i < 0 {
			return director.Errorf(director.KindConflict, op, "machine %s has no further adapter on network %s", m.Name, network).WithHint("leave --address %s=... out", network)
		}
		if n := m.NICs[i]; n.Address != said.Addresses[network] {
			return director.Errorf(director.KindConflict, op, "machine %s has the address %s on network %s, and not %s", m.Name, n.Address, network, said.Addresses[network]).
				WithHint("leave --address %s=... out", network)
		}
	}
	return nil
}

// checkAdopted tells what keeps the row from coming into the ledger: everything of it must still hold.
func (o *Operations) checkAdopted(ctx context.Context, op string, m director.Machine, vm hypervisor.VM) error {
	reclaim := fmt.Sprintf("delete it: directorctl vms reclaim %s %s", m.Provider, vm.ID)
	doc, err := o.Store.Document(ctx, model.Ref{Kind: model.KindCluster, Name: m.Cluster})
	if err != nil && director.KindOf(err) != director.KindNotFound {
		return err
	}
	if err != nil || doc.UID != m.ClusterUID || doc.Cluster.Provider != m.Provider || doc.Cluster.Network != m.Network {
		return director.Errorf(director.KindConflict, op, "the cluster %s that VM %s (%s) was made for is gone", m.Cluster, vm.ID, vm.Name).WithHint("%s", reclaim)
	}
	if holder, err := o.Store.Holder(ctx, m.Cluster); err != nil {
		return err
	} else if holder != "" {
		return o.heldBy(ctx, op, holder, m.Cluster)
	}
	for _, n := range append([]director.NIC{{Network: m.Network, Address: m.Address}}, m.NICs...) {
		network, err := o.Store.Document(ctx, model.Ref{Kind: model.KindNetwork, Name: n.Network})
		if err != nil {
			return err
		}
		addr, err := netip.ParseAddr(n.Address)
		if err != nil || !network.Network.CIDR.Contains(addr) {
			return director.Errorf(director.KindInvalid, op, "%q is not an address of Network/%s, %s", n.Address, n.Network, network.Network.CIDR)
		}
		if addr == network.Network.Gateway || addr == doc.Cluster.API.VIP {
			return director.Errorf(director.KindInvalid, op, "%s is the gateway or the virtual address, and not a node's", addr)
		}
	}
	return nil
}

// memberVersion returns the version that the node runs if the cluster knows it, and "" otherwise: then the next plan brings it in.
func (o *Operations) memberVersion(ctx context.Context, m director.Machine) (string, error) {
	inst, ok, err := o.Store.Installed(ctx, m.Cluster)
	if err != nil || !ok || inst.UID != m.ClusterUID {
		return "", err
	}
	nodes, err := o.look(ctx, inst)
	if err != nil {
		return "", &director.Error{
			Kind: director.KindUnavailable, Op: "operations.adopt", Msg: "cluster " + m.Cluster + " does not say whether " + m.Name + " is a member: " + message(err),
			Hint: "bring the cluster's API back first; a member must not be taken for a newcomer", Err: err,
		}
	}
	for _, n := range nodes {
		if n.Name == m.Name {
			return n.Version, nil
		}
	}
	return "", nil
}
