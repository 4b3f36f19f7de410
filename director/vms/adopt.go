package vms

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
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

// Addresses are those of an orphan, as a person knows them.
type Addresses struct {
	First   string
	Further map[string]string // of further adapters, by network
}

// Adopt writes an orphan into the ledger again, if the cluster that it was made for exists: then the next plan of the
// cluster sees it. A VM that is in the ledger already is written down where it is now. said are the addresses of an
// orphan of which no record is left; those that contradict a record are refused.
//
// The row is the one that the VM had, as the tombstone or the newest plan that names it tells. Without either, the
// stamp itself proves the cluster and the node's name; then only the addresses are missing. Nothing is taken from the
// VM's name alone.
func (s *Service) Adopt(ctx context.Context, actor, provider, id string, said Addresses) (director.Machine, error) {
	const op = "vms.adopt"
	_, vm, err := s.owned(ctx, op, provider, id)
	if err != nil {
		return director.Machine{}, err
	}
	row, there, err := s.store.Machine(ctx, vm.Stamp.Machine)
	if err != nil {
		return row, err
	}
	if there && row.Deleted.IsZero() {
		return s.relocate(ctx, actor, row, vm)
	}
	m, err := s.remembered(ctx, op, provider, vm, row, there, said)
	if err != nil {
		return m, err
	}
	if err := s.checkAdopted(ctx, op, m, vm); err != nil {
		return m, err
	}
	m.Host, m.VMID, m.State, m.Deleted = vm.Host, string(vm.ID), director.MachinePresent, time.Time{}
	if m.Kubernetes, err = s.memberVersion(ctx, m); err != nil {
		return m, err
	}
	err = s.store.Update(ctx, func(tx *store.Tx) error {
		if err := tx.AdoptMachine(m, s.now()); err != nil {
			return err
		}
		return tx.Audit(
			s.now(), actor, "adopt", "VM/"+id+" ("+vm.Name+") on Provider/"+provider+" into Cluster/"+m.Cluster,
		)
	})
	return m, err
}

// relocate writes down where the VM of a living row is now.
func (s *Service) relocate(
	ctx context.Context, actor string, row director.Machine, vm hypervisor.VM,
) (director.Machine, error) {
	if row.Host == vm.Host && row.VMID == string(vm.ID) {
		return row, nil
	}
	if holder, err := s.store.Holder(ctx, row.Cluster); err != nil {
		return row, err
	} else if holder != "" {
		return row, s.store.HeldBy(ctx, "vms.adopt", holder, row.Cluster)
	}
	if err := s.store.SetMachine(ctx, row.ID, row.State, vm.Host, string(vm.ID)); err != nil {
		return row, err
	}
	row.Host, row.VMID = vm.Host, string(vm.ID)
	return row, s.store.Update(ctx, func(tx *store.Tx) error {
		return tx.Audit(s.now(), actor, "adopt", "VM/"+string(vm.ID)+" ("+vm.Name+") on host "+vm.Host)
	})
}

// remembered returns the row that the VM had, or has to have.
func (s *Service) remembered(
	ctx context.Context, op, provider string, vm hypervisor.VM, tombstone director.Machine, buried bool,
	said Addresses,
) (director.Machine, error) {
	if buried && tombstone.Address != "" {
		return tombstone, known(op, tombstone, said)
	}
	m, found, err := s.planned(ctx, vm.Stamp.Machine)
	if err != nil {
		return m, err
	}
	if !found {
		if m, err = s.proven(ctx, op, provider, vm); err != nil {
			return m, err
		}
		if err := fill(op, provider, vm, &m, said); err != nil {
			return m, err
		}
	}
	return m, known(op, m, said)
}

// planned returns the machine as the newest plan that names it has it.
func (s *Service) planned(ctx context.Context, machine string) (m director.Machine, found bool, err error) {
	id, err := s.store.PlanWithMachine(ctx, machine)
	if err != nil || id == "" {
		return m, false, err
	}
	p, _, err := s.store.Plan(ctx, id)
	if err != nil {
		return m, false, err
	}
	facts, err := step.DecodeFacts(p.Content)
	if err != nil {
		return m, false, nil // a plan without facts does not tell
	}
	i := slices.IndexFunc(facts.Nodes, func(m plan.MachineSpec) bool { return m.ID == machine })
	if i < 0 {
		return m, false, nil
	}
	return facts.Nodes[i].Row(), true, nil
}

// proven returns the machine that the stamp proves the VM to be, without addresses.
func (s *Service) proven(ctx context.Context, op, provider string, vm hypervisor.VM) (director.Machine, error) {
	clusters, err := s.store.Documents(ctx, model.KindCluster)
	if err != nil {
		return director.Machine{}, err
	}
	reclaim := fmt.Sprintf("delete it: directorctl vms reclaim %s %s", provider, vm.ID)
	c := home(clusters, provider, vm)
	if c.UID == "" {
		return director.Machine{}, director.Errorf(
			director.KindConflict, op, "no cluster of today is the one that VM %s (%s) was made for", vm.ID, vm.Name,
		).
			WithHint("%s", reclaim)
	}
	has := func(mac string) bool {
		return slices.ContainsFunc(vm.Adapters, func(a hypervisor.Adapter) bool {
			return strings.EqualFold(a.MAC, mac)
		})
	}
	m, ok := planner.Member(c, vm.Name, vm.Stamp.Machine, has)
	if !ok {
		return m, director.Errorf(
			director.KindConflict, op, "cluster %s has no pool for VM %s", c.Metadata.Name, vm.Name,
		).
			WithHint("give the pool back to the document, or %s", reclaim)
	}
	if vm.CPUs != 0 && vm.Memory != 0 {
		m.CPUs, m.Memory = vm.CPUs, vm.Memory
	}
	// The document may have got adapters since, which the VM does not have.
	m.NICs = slices.DeleteFunc(m.NICs, func(n director.NIC) bool { return !has(n.MAC) })
	return m, nil
}

// fill gives the machine the addresses that a person said. Errors: invalid if one is missing.
func fill(op, provider string, vm hypervisor.VM, m *director.Machine, said Addresses) error {
	var missing, want []string
	if m.Address = said.First; m.Address == "" {
		missing, want = []string{m.Network}, []string{"--address ADDRESS"}
	}
	for i := range m.NICs {
		n := &m.NICs[i]
		if n.Address = said.Further[n.Network]; n.Address == "" {
			missing, want = append(missing, n.Network), append(want, "--address "+n.Network+"=ADDRESS")
		}
	}
	if len(missing) == 0 {
		return nil
	}
	return director.Errorf(
		director.KindInvalid, op, "there is no record of the address of VM %s (%s) on network %s", vm.ID, vm.Name,
		strings.Join(missing, ", "),
	).
		WithHint(
			"look it up in the guest and name it: directorctl vms adopt %s %s %s", provider, vm.ID,
			strings.Join(want, " "),
		)
}

// known refuses other addresses than those that the machine has.
func known(op string, m director.Machine, said Addresses) error {
	if said.First != "" && said.First != m.Address {
		return director.Errorf(
			director.KindConflict, op, "machine %s has the address %s, and not %s", m.Name, m.Address, said.First,
		).
			WithHint("leave --address out")
	}
	for _, network := range slices.Sorted(maps.Keys(said.Further)) {
		i := slices.IndexFunc(m.NICs, func(n director.NIC) bool { return n.Network == network })
		if i < 0 {
			return director.Errorf(
				director.KindConflict, op, "machine %s has no further adapter on network %s", m.Name, network,
			).
				WithHint("leave --address %s=... out", network)
		}
		if n := m.NICs[i]; n.Address != said.Further[network] {
			return director.Errorf(
				director.KindConflict, op, "machine %s has the address %s on network %s, and not %s", m.Name, n.Address,
				network, said.Further[network],
			).
				WithHint("leave --address %s=... out", network)
		}
	}
	return nil
}

// checkAdopted tells what keeps the row from coming into the ledger: everything of it must still hold.
func (s *Service) checkAdopted(ctx context.Context, op string, m director.Machine, vm hypervisor.VM) error {
	reclaim := fmt.Sprintf("delete it: directorctl vms reclaim %s %s", m.Provider, vm.ID)
	doc, err := s.store.Document(ctx, model.Ref{Kind: model.KindCluster, Name: m.Cluster})
	if err != nil && director.KindOf(err) != director.KindNotFound {
		return err
	}
	if err != nil || doc.UID != m.ClusterUID || doc.Cluster.Provider != m.Provider || doc.Cluster.Network != m.Network {
		return director.Errorf(
			director.KindConflict, op, "the cluster %s that VM %s (%s) was made for is gone", m.Cluster, vm.ID, vm.Name,
		).
			WithHint("%s", reclaim)
	}
	if holder, err := s.store.Holder(ctx, m.Cluster); err != nil {
		return err
	} else if holder != "" {
		return s.store.HeldBy(ctx, op, holder, m.Cluster)
	}
	for _, n := range append([]director.NIC{{Network: m.Network, Address: m.Address}}, m.NICs...) {
		network, err := s.store.Document(ctx, model.Ref{Kind: model.KindNetwork, Name: n.Network})
		if err != nil {
			return err
		}
		addr, err := netip.ParseAddr(n.Address)
		if err != nil || !network.Network.CIDR.Contains(addr) {
			return director.Errorf(
				director.KindInvalid, op, "%q is not an address of Network/%s, %s", n.Address, n.Network,
				network.Network.CIDR,
			)
		}
		if addr == network.Network.Gateway || addr == doc.Cluster.API.VIP {
			return director.Errorf(
				director.KindInvalid, op, "%s is the gateway or the virtual address, and not a node's", addr,
			)
		}
	}
	return nil
}

// memberVersion returns the version that the node runs if the cluster knows it, and "" otherwise: then the next plan
// brings it in. Of a member it learns the host key.
func (s *Service) memberVersion(ctx context.Context, m director.Machine) (string, error) {
	inst, ok, err := s.store.Installed(ctx, m.Cluster)
	if err != nil || !ok || inst.UID != m.ClusterUID {
		return "", err
	}
	nodes, err := s.nodes(ctx, inst)
	if err != nil {
		return "", &director.Error{
			Kind: director.KindUnavailable, Op: "vms.adopt",
			Msg: "cluster " + m.Cluster + " does not say whether " + m.Name + " is a member: " +
				director.MessageOf(err),
			Hint: "bring the cluster's API back first; a member must not be mistaken for a new node", Err: err,
		}
	}
	for _, n := range nodes {
		if n.Name == m.Name {
			return n.Version, s.learnHostKey(ctx, m, n)
		}
	}
	return "", nil
}

// learnHostKey takes the host key of a node that another director of this id has made, as after the restore of a
// bundle. A cluster without the record of it is no obstacle: a plan that needs the key says so.
func (s *Service) learnHostKey(ctx context.Context, m director.Machine, n kube.Node) error {
	if s.hostKeys == nil {
		return nil
	}
	err := s.hostKeys.LearnHostKey(ctx, m.ClusterUID, m, n)
	if director.KindOf(err) == director.KindConflict {
		return nil
	}
	return err
}

// askTime bounds a question to a cluster: a person waits for the answer.
const askTime = 20 * time.Second

// nodes asks the installed cluster for its nodes; nil from one that only pretends.
func (s *Service) nodes(ctx context.Context, inst store.Installed) ([]kube.Node, error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	client, err := s.clusters.Cluster(ctx, inst.UID, inst.Name, inst.Endpoint)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return client.Nodes(ctx)
}
