package planner

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
)

type sized struct {
	director.Machine
	model.VMSize
	persist []string
	vm      model.VMModel
}

// machineDiff is the machines of a cluster compared with its document. Each list is ordered: masters first, then by
// pool as in the document, then by number.
type machineDiff struct {
	keep   []sized // members that stay
	add    []sized // that become members: rows of the ledger first, then new ones
	remove []sized // that are too many, or of a pool that is gone
	spare  []sized // that would be too many, and whose VMs are kept outside of the cluster
}

// all returns the machines that the cluster has in the end, masters first.
func (r machineDiff) all() []sized { return mastersFirst(append(slices.Clone(r.keep), r.add...)) }

// known returns all machines, also those that go: what an inventory names while it happens.
func (r machineDiff) known() []sized { return mastersFirst(append(r.all(), r.remove...)) }

func mastersFirst(machines []sized) []sized {
	slices.SortStableFunc(machines, func(a, b sized) int {
		if a.Role != b.Role {
			return strings.Compare(string(a.Role), string(b.Role)) // master, worker
		}
		return 0
	})
	return machines
}

// Spare returns the names of the machines whose VMs are kept outside of the cluster, and that the document does not ask
// for: plans leave them alone.
func (w World) Spare() map[string]bool {
	out := map[string]bool{}
	for _, m := range w.match(nil).spare {
		out[m.Name] = true
	}
	return out
}

// allocator gives new machines names, addresses and hosts that are free in the world.
type allocator struct{ World }

// compare compares the ledger with the document. What exists keeps its row; what is missing gets the lowest free number
// and the next free address. Of what is too many, the nodes that first names go before others, and higher numbers
// before lower ones. A VM that is kept outside of the cluster is never too many unless first names it; it becomes a
// node again when the document asks for more.
func (w World) compare(first []string) (machineDiff, error) {
	r := w.match(first)
	if err := (allocator{w}).settle(r.add); err != nil {
		return r, err
	}
	return r, w.disks().takes(r.add)
}

// match is compare before new machines have addresses and hosts.
func (w World) match(first []string) machineDiff {
	serial := map[string]int{} // how many machines of the name there have been
	existing := map[string][]director.Machine{}
	for _, m := range w.Machines {
		serial[m.Name]++
		if m.Deleted.IsZero() {
			existing[m.Pool] = append(existing[m.Pool], m)
		}
	}
	var r machineDiff
	macs := w.macs()
	for _, p := range w.pools() {
		have := existing[p.name]
		delete(existing, p.name)
		slices.SortFunc(have, func(a, b director.Machine) int {
			return cmp.Or(cmp.Compare(rank(a, first), rank(b, first)), cmp.Compare(number(a), number(b)))
		})
		taken := map[int]bool{}
		for i, m := range have {
			taken[number(m)] = true
			s := sized{m, p.size, p.persist, p.vm}
			switch {
			case i >= p.count && kept(m, first):
				r.spare = append(r.spare, s)
			case i >= p.count:
				r.remove = append(r.remove, s)
			case m.Kubernetes == "":
				r.add = append(r.add, s)
			default:
				r.keep = append(r.keep, s)
			}
		}
		for n, missing := 1, p.count-len(have); missing > 0; n++ {
			if !taken[n] {
				r.add = append(r.add, allocator{w}.newMachine(p, n, serial, macs))
				missing--
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(existing)) { // pools that the document does not have any more
		for _, m := range existing[name] {
			s := sized{Machine: m, VMSize: model.VMSize{CPUs: m.CPUs, Memory: model.Size(m.Memory)}}
			if kept(m, first) {
				r.spare = append(r.spare, s)
				continue
			}
			r.remove = append(r.remove, s)
		}
	}
	r.sort()
	return r
}

// pools returns the pools of the document, the masters' first.
func (w World) pools() []pool {
	c := w.Cluster.Cluster
	pools := []pool{
		{director.RoleMaster, "master", c.Masters.Count, c.Masters.VMSize, c.Masters.Persist, c.Masters.VMModel},
	}
	for _, p := range c.Workers {
		pools = append(pools, pool{director.RoleWorker, p.Name, p.Count, p.VMSize, p.Persist, p.VMModel})
	}
	return pools
}

// sort orders the machines of each pool by number.
func (r machineDiff) sort() {
	for _, list := range [][]sized{r.keep, r.add, r.remove} {
		slices.SortStableFunc(list, func(a, b sized) int {
			if a.Pool != b.Pool {
				return 0
			}
			return cmp.Compare(number(a.Machine), number(b.Machine))
		})
	}
}

// kept reports whether the VM of m is kept outside of the cluster, and no request names it to go.
func kept(m director.Machine, first []string) bool {
	return m.KeptBy != "" && m.Kubernetes == "" && !slices.Contains(first, m.Name)
}

// pool is what the document says of equal machines.
type pool struct {
	role    director.Role
	name    string
	count   int
	size    model.VMSize
	persist []string
	vm      model.VMModel
}

// rank says in which order machines of a pool are kept.
func rank(m director.Machine, first []string) int {
	switch {
	case slices.Contains(first, m.Name):
		return 3
	case kept(m, first):
		return 2
	case m.Kubernetes == "":
		return 1
	}
	return 0
}

// byPlace orders machines: masters first, then by pool and number.
func byPlace(a, b director.Machine) int {
	return cmp.Or(
		strings.Compare(string(a.Role), string(b.Role)), strings.Compare(a.Pool, b.Pool),
		cmp.Compare(number(a), number(b)),
	)
}

// number returns n of a machine named cluster-pool-n.
func number(m director.Machine) int {
	n, _ := strconv.Atoi(m.Name[strings.LastIndexByte(m.Name, '-')+1:]) // names are made by newMachine
	return n
}

func (w allocator) newMachine(p pool, n int, serial map[string]int, macs macs) sized {
	c, name := w.Cluster.Cluster, nodeName(w.Cluster.Metadata.Name, p.name, n)
	m := director.Machine{
		ID: MachineID(
			w.Cluster.UID, name, serial[name],
		), ClusterUID: w.Cluster.UID, Cluster: w.Cluster.Metadata.Name, Name: name,
		Role: p.role, Pool: p.name, Provider: c.Provider, Network: c.Network, Image: w.image(), CPUs: p.size.CPUs,
		Memory: int64(p.size.Memory),
		State:  director.MachineIntended,
	}
	m.MAC = macs.give(m.ID)
	m.NICs = furtherNICs(m.ID, p.vm, macs.give)
	return sized{m, p.size, p.persist, p.vm}
}

// settle gives new machines their addresses and hosts, in place. Masters go where the fewest masters are.
func (w allocator) settle(machines []sized) error {
	pending := map[string]bool{} // new machines, by name
	for _, m := range machines {
		pending[m.Name] = m.Address == ""
	}
	if err := w.address(machines, pending); err != nil {
		return err
	}
	load, masters := map[string]int{}, map[string]int{}
	for _, host := range w.hosts().open() {
		load[host] = w.Host[host]
	}
	for _, m := range w.alive() {
		if m.Role == director.RoleMaster {
			masters[m.Host]++
		}
	}
	for i := range machines {
		m := &machines[i]
		if !pending[m.Name] {
			continue
		}
		if m.Role == director.RoleMaster {
			m.Host = leastLoaded(load, masters)
			masters[m.Host]++
		} else {
			m.Host = leastLoaded(load, nil)
		}
	}
	return nil
}

// address gives the pending machines the addresses that they lack on every network that they are on: those that the
// document gives to their numbers, and the first free ones of the pools.
func (w allocator) address(machines []sized, pending map[string]bool) error {
	slots := w.slots(machines, pending)
	for _, name := range slices.Sorted(maps.Keys(slots)) {
		if err := w.fill(name, slots[name]); err != nil {
			return err
		}
	}
	return nil
}

// slot is an address that a machine lacks.
type slot struct {
	into   *string
	static netip.Addr
	at     string // field of the document
}

// slots returns the addresses that the pending machines lack, by network.
func (w allocator) slots(machines []sized, pending map[string]bool) map[string][]slot {
	slots := map[string][]slot{}
	for i := range machines {
		m := &machines[i]
		if !pending[m.Name] {
			continue
		}
		n := number(m.Machine)
		if m.Address == "" {
			slots[m.Network] = append(slots[m.Network], slot{
				&m.Address, m.vm.Interface(model.NICInternal).Static(n), "spec.network",
			})
		}
		for j := range m.NICs {
			nic := &m.NICs[j]
			if nic.Address != "" {
				continue
			}
			slots[nic.Network] = append(slots[nic.Network], slot{
				&nic.Address, m.vm.Interface(nic.Role).Static(n), w.field(m.Machine, nic.Role),
			})
		}
	}
	return slots
}

// fill gives the slots of a network their addresses.
func (w allocator) fill(name string, slots []slot) error {
	network, used := w.underlay(name)
	missing := 0
	for _, s := range slots {
		switch {
		case !s.static.IsValid():
			missing++
		case used[s.static]:
			return &director.Error{
				Kind: director.KindConflict, Op: "planner.addresses",
				Msg: fmt.Sprintf(
					"%s of Network/%s, which the document gives to a new node, is in use by another machine",
					s.static, name,
				),
				Hint:   "give the node another address, or remove that machine first: directorctl vms audit",
				Fields: []director.Field{{Path: s.at, Msg: s.static.String() + " is in use"}},
			}
		default:
			*s.into = s.static.String()
		}
	}
	free, err := network.Free(missing, used)
	if err != nil {
		at := slots[len(slots)-1].at
		return &director.Error{
			Kind: director.KindExhausted, Op: "planner.addresses",
			Msg:    "Network/" + name + " has too few free addresses: " + err.Error(),
			Hint:   "widen spec.pool of the Network, or delete a cluster that uses it",
			Fields: []director.Field{{Path: at, Msg: err.Error()}},
		}
	}
	for _, s := range slots {
		if !s.static.IsValid() {
			*s.into, free = free[0].String(), free[1:]
		}
	}
	return nil
}

// underlay returns the network of that name with its used addresses.
func (w World) underlay(name string) (*model.Network, map[netip.Addr]bool) {
	if u, ok := w.Underlays[name]; ok && name != w.Cluster.Cluster.Network {
		return u.Network, u.Used
	}
	return w.Network.Network, w.Used
}

// field names where the document speaks of the adapter of that role.
func (w allocator) field(m director.Machine, role string) string {
	place := func(at string, vm model.VMModel) string {
		for i, n := range vm.Interfaces {
			if n.Role == role {
				return fmt.Sprintf("%s.interfaces[%d].network", at, i)
			}
		}
		return at
	}
	if m.Role == director.RoleMaster {
		return place("spec.masters", w.Cluster.Cluster.Masters.VMModel)
	}
	for i, p := range w.Cluster.Cluster.Workers {
		if p.Name == m.Pool {
			return place(fmt.Sprintf("spec.workers[%d]", i), p.VMModel)
		}
	}
	return "spec.workers"
}

// leastLoaded takes the host with the fewest masters of the cluster, where that counts, and among those the one with
// the fewest VMs, the first by name among equals. It counts the new VM.
func leastLoaded(load, masters map[string]int) string {
	hosts := slices.SortedFunc(maps.Keys(load), func(a, b string) int {
		return cmp.Or(cmp.Compare(masters[a], masters[b]), cmp.Compare(load[a], load[b]), strings.Compare(a, b))
	})
	if len(hosts) == 0 {
		return ""
	}
	load[hosts[0]]++
	return hosts[0]
}

// mastersOf returns the masters, in their order.
func mastersOf(machines []sized) []sized {
	var out []sized
	for _, m := range machines {
		if m.Role == director.RoleMaster {
			out = append(out, m)
		}
	}
	return out
}

func names(machines []sized) []string {
	var out []string
	for _, m := range machines {
		out = append(out, m.Name)
	}
	return out
}

// MachineID is the same for the same incarnation of a node, so that a plan made twice is the same plan.
func MachineID(clusterUID, name string, serial int) string {
	sum := sha256.Sum256([]byte(clusterUID + "/" + name + "/" + strconv.Itoa(serial)))
	return "m" + hex.EncodeToString(sum[:8])
}
