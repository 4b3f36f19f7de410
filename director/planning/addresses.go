package planning

import (
	"cmp"
	"context"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/snapshot"
	"github.com/director-kaas/kaas/director/step"
)

// inventoryTime bounds the question to the hypervisor which addresses its VMs use. It is a hint, and no plan waits for
// long for it.
const inventoryTime = 10 * time.Second

// claim is an address that a plan is to give to a machine that is not there yet.
type claim struct {
	at      string // field to point to
	network string
	of      director.Machine // as a look at the network needs it; Address is the claimed one
}

// claims returns the addresses of the machines whose VMs the plan makes and that do not exist yet, and the virtual
// address as long as the cluster has no machine. A VM that others make, and that the plan takes over, answers where it
// should.
func claims(w planner.World, c plan.Content, facts step.Facts, existing map[string]bool) []claim {
	made := map[string]bool{}
	for _, s := range c.Steps {
		// its Node may be the one that it follows
		if name, ok := strings.CutPrefix(s.ID, step.VMEnsure+"/"); ok {
			made[name] = true
		}
	}
	doc := w.Cluster.Cluster
	var out []claim
	there, hadVM := false, map[string]bool{}
	for _, m := range w.Machines {
		had := m.State != director.MachineIntended
		there = there || m.Deleted.IsZero() && (had || existing[m.Name])
		hadVM[m.ID] = had || m.VMID != ""
	}
	if doc.API.VIP.IsValid() && !there {
		out = append(out, claim{"spec.api.vip", doc.Network, director.Machine{
			Name: "the virtual address", Cluster: facts.Cluster, Provider: doc.Provider, Network: doc.Network,
			Address: doc.API.VIP.String(),
		}})
	}
	// the others get what the VM has that the plan deletes
	nodes := slices.DeleteFunc(slices.Clone(facts.Moves), func(m plan.MachineSpec) bool {
		return slices.ContainsFunc(facts.Nodes, func(was plan.MachineSpec) bool { return was.Address == m.Address })
	})
	for _, spec := range append(nodes, facts.Nodes...) {
		m := spec.Row()
		if !made[m.Name] || existing[m.Name] || hadVM[m.ID] {
			continue
		}
		out = append(out, claim{"spec.network", m.Network, m})
		for _, n := range m.NICs {
			of := m
			of.Network, of.Address, of.MAC, of.NICs = n.Network, n.Address, n.MAC, nil
			out = append(out, claim{mention(doc, m, n.Role), n.Network, of})
		}
	}
	return out
}

// mention is the field of the document that puts the machine on the network.
func mention(c *model.Cluster, m director.Machine, role string) string {
	at, vm := "spec.masters", c.Masters.VMModel
	for i, p := range c.Workers {
		if m.Role == director.RoleWorker && p.Name == m.Pool {
			at, vm = fmt.Sprintf("spec.workers[%d]", i), p.VMModel
		}
	}
	i := slices.IndexFunc(vm.Interfaces, func(n model.Interface) bool { return n.Role == role })
	if i < 0 {
		return at
	}
	return fmt.Sprintf("%s.interfaces[%d].network", at, i)
}

// checkAddresses looks whether others use the addresses that the plan is to give away. That the ledger has not given
// them to another machine, the planner has seen to; VMs that the hypervisor knows of and hosts on the network are
// looked for here.
func (s prechecks) checkAddresses(
	ctx context.Context, w *snapshot.Snapshot, b hypervisor.Backend, list []claim,
) ([]director.Field, []AddressCheck, error) {
	if len(list) == 0 {
		return nil, nil, nil
	}
	var problems []director.Field
	taken := func(c claim, how string) {
		problems = append(problems, director.Field{
			Path: c.at,
			Msg:  fmt.Sprintf("%s of Network/%s, for %s, is in use: %s", c.of.Address, c.network, c.of.Name, how),
			Hint: fmt.Sprintf("exclude it in spec.pool.exclude of Network/%s, or free it and check again", c.network),
		})
	}
	inventory, seen := s.inventory(ctx, b)
	owners := s.ownersOf(w, list, inventory)
	ours, err := ourMACs(ctx, w)
	if err != nil {
		return nil, nil, err
	}
	var look []director.Machine
	for i, c := range list {
		if owners[i] != "" {
			taken(c, owners[i])
		}
		look = append(look, c.of)
	}
	probe := s.Site.Look(ctx, look, ours)
	checks := map[string]*AddressCheck{}
	for i, c := range list {
		if how := probe.Taken[c.of.Address]; how != "" && owners[i] == "" {
			taken(c, how)
		}
		k := checks[c.network]
		if k == nil {
			k = &AddressCheck{Network: c.network, Ways: []string{"ledger"}}
			if seen {
				k.Ways = append(k.Ways, "hypervisor")
			}
			k.Ways = append(k.Ways, "ssh port")
			checks[c.network] = k
		}
		k.Addresses++
		if probe.ARP[c.of.Address] && !slices.Contains(k.Ways, "arp") {
			k.Ways = append(k.Ways, "arp")
		}
	}
	var views []AddressCheck
	for _, k := range checks {
		views = append(views, *k)
	}
	slices.SortFunc(views, func(a, b AddressCheck) int { return cmp.Compare(a.Network, b.Network) })
	return problems, views, ctx.Err()
}

// ownersOf says which VM of another owner has the address, by the index of the claim.
func (s prechecks) ownersOf(w *snapshot.Snapshot, list []claim, inventory []hypervisor.UsedAddress) map[int]string {
	used := map[netip.Addr][]hypervisor.UsedAddress{}
	for _, u := range inventory {
		used[u.Address] = append(used[u.Address], u)
	}
	owners := map[int]string{}
	for i, c := range list {
		a, err := netip.ParseAddr(c.of.Address)
		if err != nil {
			continue
		}
		for _, u := range used[a] {
			ours := c.of.ID != "" && u.Stamp == director.Stamp{Director: s.Director, Machine: c.of.ID}
			if owners[i] == "" && !ours && sameNetwork(w.World, c.network, u.Network) {
				owners[i] = fmt.Sprintf("VM %s on host %s has it", u.VM, u.Host)
			}
		}
	}
	return owners
}

// ourMACs are those of all machines that the director knows, also of such that are gone.
func ourMACs(ctx context.Context, w *snapshot.Snapshot) (map[string]bool, error) {
	buried, err := w.Buried(ctx)
	ours := map[string]bool{}
	for _, m := range slices.Concat(w.Rows, buried) {
		ours[m.MAC] = true
		for _, n := range m.NICs {
			ours[n.MAC] = true
		}
	}
	return ours, err
}

// inventory asks the hypervisor which addresses its VMs use; false if it does not tell.
func (s prechecks) inventory(ctx context.Context, b hypervisor.Backend) ([]hypervisor.UsedAddress, bool) {
	teller, ok := hypervisor.Capability[hypervisor.AddressTeller](b)
	if !ok {
		return nil, false
	}
	ctx, cancel := context.WithTimeout(ctx, inventoryTime)
	defer cancel()
	used, err := teller.UsedAddresses(ctx)
	if err != nil {
		s.Log.WarnContext(ctx, "the hypervisor does not tell which addresses its VMs use", "err", err)
		return nil, false
	}
	return used, true
}

// sameNetwork tells whether an adapter of a VM may be on the network: hypervisors may have other networks of the same
// range.
func sameNetwork(w planner.World, network, adapter string) bool {
	if adapter == "" || adapter == network {
		return true
	}
	n := w.Network.Network
	if u, ok := w.Underlays[network]; ok {
		n = u.Network
	}
	return n.Mode == "bridge" || n.Bridge == adapter // several of libvirt's networks may be on one bridge
}
