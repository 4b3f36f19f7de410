package sim

import (
	"fmt"
	"slices"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// Everything that comes, changes or goes passes here, under the world's lock: the indexes and the journal follow from
// it.

// putVM keeps a new VM, or what has changed about one.
func (w *things) putVM(v *vm) {
	if w.vms[v.ID] == nil {
		w.vms[v.ID] = v
		w.names[v.Name]++
		if v.Stamp != (director.Stamp{}) {
			w.stamps[v.Stamp] = v
		}
		h := w.host(v.Host)
		h.memory += v.spec.Memory
		h.space += v.spec.RootDisk
	}
	for _, d := range v.foreign {
		w.foreign[d.Name] = true
	}
	w.journal.add(record{VM: &vmRecord{
		VM: v.VM, Spec: v.spec, Made: v.made, Seeded: v.seeded, Ensured: v.ensured, Since: v.since,
		Snapshots: v.snapshots, Foreign: v.foreign,
	}, Next: w.next})
}

func (w *things) dropVM(v *vm) {
	delete(w.vms, v.ID)
	if w.names[v.Name]--; w.names[v.Name] == 0 {
		delete(w.names, v.Name)
	}
	delete(w.stamps, v.Stamp)
	h := w.host(v.Host)
	h.memory -= v.spec.Memory
	h.space -= v.spec.RootDisk
	w.journal.add(record{NoVM: v.ID})
}

// power switches the VM, and remembers since when it is on.
func (w *things) power(v *vm, p hypervisor.Power) {
	v.Power = p
	if p == hypervisor.PowerOn {
		v.since = time.Now()
	}
	w.putVM(v)
}

func (w *things) putDisk(k diskKey, d *disk) {
	if w.disks[k] == nil {
		w.host(d.host).space += d.size
	}
	w.disks[k] = d
	w.journal.add(record{Disk: &diskRecord{
		Stamp: k.stamp, Serial: k.serial, Host: d.host, Size: d.size, Label: d.label, Content: d.content, Part: d.part,
	}})
}

// dropDisks drops the disks of the owner with those serials, or all without any.
func (w *things) dropDisks(owner director.Stamp, serials []string) {
	for k, d := range w.disks {
		if k.stamp == owner && (len(serials) == 0 || slices.Contains(serials, k.serial)) {
			w.host(d.host).space -= d.size
			delete(w.disks, k)
			w.journal.add(record{NoDisk: &diskRecord{Stamp: k.stamp, Serial: k.serial}})
		}
	}
}

func (w *things) putImage(name string, i *image) {
	w.images[name] = i
	w.journal.add(record{Image: &imageRecord{Name: name, Sum: i.sum, Done: i.done}})
}

func (w *things) dropImage(name string) {
	delete(w.images, name)
	w.journal.add(record{NoImage: name})
}

func (w *things) putNetwork(n *network) {
	w.networks[n.Name] = n
	w.journal.add(record{Network: &networkRecord{Spec: n.NetworkSpec, Started: n.started}})
}

func (w *things) dropNetwork(name string) {
	delete(w.networks, name)
	w.journal.add(record{NoNetwork: name})
}

// forget empties the world before it is read again.
func (w *World) forget() {
	clear(w.vms)
	clear(w.stamps)
	clear(w.names)
	clear(w.disks)
	clear(w.foreign)
	clear(w.images)
	clear(w.networks)
	w.next, w.read = 0, 0
	for _, h := range w.hosts {
		h.memory, h.space = 0, 0
	}
}

// host returns the host; one that the world was opened without, but has things on it, has no room.
func (w *things) host(name string) *host {
	if w.hosts[name] == nil {
		w.hosts[name] = &host{Host: Host{Name: name}}
	}
	return w.hosts[name]
}

// Running tells since when the VM with the stamp is on, and false if it is not.
func (w *World) Running(s director.Stamp) (since time.Time, on bool) {
	defer w.look()()
	v := w.stamps[s]
	if v == nil || !v.made || v.Power != hypervisor.PowerOn {
		return time.Time{}, false
	}
	return v.since, true
}

// Count returns how many VMs exist.
func (w *World) Count() int {
	defer w.look()()
	return len(w.vms)
}

// Answers tells whether a VM that is on, on a host that can be reached, has the address on that network.
func (w *World) Answers(network, address string) bool {
	defer w.look()()
	for _, v := range w.vms {
		if v.Power == hypervisor.PowerOn && !w.hosts[v.Host].down &&
			slices.ContainsFunc(v.spec.NICs, func(n hypervisor.NIC) bool {
				return n.Network == network && slices.Contains(addresses(n), address)
			}) {
			return true
		}
	}
	return false
}

func addresses(n hypervisor.NIC) []string {
	var out []string
	for _, a := range n.Addresses {
		out = append(out, a.Addr().String())
	}
	return out
}

// Twins returns what exists twice and must not: stamps, names, addresses of a network, MACs. It looks at every VM and
// trusts no index.
func (w *World) Twins() []string {
	defer w.look()()
	seen := map[string][]string{}
	for _, v := range w.vms {
		who := fmt.Sprintf("%s (%s)", v.ID, v.Name)
		mark := func(what string) { seen[what] = append(seen[what], who) }
		mark("name " + v.Name)
		if v.Stamp != (director.Stamp{}) {
			mark("stamp " + v.Stamp.Director + "/" + v.Stamp.Machine)
		}
		for _, n := range v.spec.NICs {
			mark("MAC " + n.MAC)
			for _, a := range addresses(n) {
				mark("address " + a + " of network " + n.Network)
			}
		}
	}
	var twins []string
	for what, who := range seen {
		if len(who) > 1 {
			slices.Sort(who)
			twins = append(twins, fmt.Sprintf("%s: %v", what, who))
		}
	}
	slices.Sort(twins)
	return twins
}
