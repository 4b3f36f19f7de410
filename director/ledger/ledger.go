// Package ledger compares what the director has written down of its VMs with what the hypervisors have. It is pure: who
// calls it has read the VMs first and the rows afterwards, so that a VM in the making is never taken for an orphan.
package ledger

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// Kind is a way in which the ledger and a hypervisor can disagree.
type Kind string

// The kinds, the most pressing first.
const (
	Twin     Kind = "twin"      // a VM with the stamp of a machine that another VM has too
	Fenced   Kind = "fenced"    // a VM that was given up with its host, and has been found
	LostHost Kind = "lost-host" // a machine whose host was declared lost
	Orphan   Kind = "orphan"    // a VM with our stamp, and no row
	Ghost    Kind = "ghost"     // a row of a VM that should exist, and no VM
	Stranger Kind = "stranger"  // a VM that is not ours, with a name that is or will be one of our nodes'
	Drift    Kind = "drift"     // a VM that is not as its row says

	// A data disk with our stamp, and neither its machine nor the disk in the ledger; a copy whose plan has ended.
	OrphanDisk Kind = "orphan-disk"
	GhostDisk  Kind = "ghost-disk" // a disk that the ledger keeps, and that is not there, or not free
)

// Kinds returns every kind, the most pressing first.
func Kinds() []Kind {
	return []Kind{Twin, Fenced, LostHost, Orphan, Ghost, Stranger, Drift, OrphanDisk, GhostDisk}
}

// Finding is one disagreement, and what a person can do about it.
type Finding struct {
	Kind     Kind
	Provider string
	Host     string
	VM       hypervisor.ID // empty for a ghost
	Name     string        // of the VM; of the machine for a ghost
	Machine  string        // id of the row, or the one that an orphan is stamped with
	Cluster  string        // that it belongs to; empty if unknown
	Problem  string        // in a sentence without a final stop
	Next     string        // what to do
}

// String renders the finding in a line, without what to do.
func (f Finding) String() string { return string(f.Kind) + ": " + f.Problem }

// Provider is one provider as it was seen, with the rows that are meant to be there.
type Provider struct {
	Name     string
	Director string             // our id, as VMs are stamped
	VMs      []hypervisor.VM    // with strangers
	Rows     []director.Machine // that are no tombstones; those of other providers are left out
	Given    []director.Machine // tombstones of machines that were given up with their hosts
	Lost     map[string]bool    // hosts that were declared lost and were not contacted
	Nodes    map[string]string  // names that the clusters of the provider give to nodes, with the cluster
	// clusters that a plan works on, or has left half way: their machines may differ
	Busy map[string]bool
	Home func(hypervisor.VM) string // the living cluster that an orphan was made for, or ""
}

// Compare returns what is wrong on the provider, by kind and name.
func Compare(p Provider) []Finding {
	c := comparison{
		p: p, rows: map[string]director.Machine{}, given: map[string]director.Machine{},
		there: map[string]hypervisor.VM{}, names: map[string]string{},
	}
	for name, cluster := range p.Nodes {
		c.names[name] = cluster
	}
	for _, m := range p.Rows {
		if m.Provider == p.Name {
			c.rows[m.ID], c.names[m.Name] = m, m.Cluster
		}
	}
	for _, m := range p.Given {
		c.given[m.ID] = m
	}
	for _, vm := range p.VMs {
		c.look(vm)
	}
	for _, m := range c.rows {
		if _, ok := c.there[m.ID]; !ok && m.State == director.MachinePresent && !p.Busy[m.Cluster] {
			if p.Lost[m.Host] {
				c.lostHost(m)
				continue
			}
			c.ghost(m)
		}
	}
	slices.SortFunc(c.found, func(a, b Finding) int {
		return cmp.Or(
			cmp.Compare(slices.Index(Kinds(), a.Kind), slices.Index(Kinds(), b.Kind)), strings.Compare(a.Name, b.Name),
			strings.Compare(string(a.VM), string(b.VM)), strings.Compare(a.Problem, b.Problem),
		)
	})
	return c.found
}

type comparison struct {
	p     Provider
	rows  map[string]director.Machine // by id
	given map[string]director.Machine // up with their hosts, by id
	there map[string]hypervisor.VM    // the first VM of a machine, by its id
	names map[string]string           // of nodes, with their clusters
	found []Finding
}

func (c *comparison) add(k Kind, vm hypervisor.VM, cluster, next, format string, args ...any) {
	c.found = append(c.found, Finding{
		Kind: k, Provider: c.p.Name, Host: vm.Host, VM: vm.ID, Name: vm.Name, Machine: vm.Stamp.Machine,
		Cluster: cluster,
		Problem: fmt.Sprintf(format, args...), Next: next,
	})
}

// at renders where a VM is.
func (c *comparison) at(host string) string {
	if host == "" {
		return c.p.Name
	}
	return c.p.Name + "/" + host
}

func (c *comparison) look(vm hypervisor.VM) {
	if vm.Stamp.Director != c.p.Director {
		c.stranger(vm)
		return
	}
	m, known := c.rows[vm.Stamp.Machine]
	first, twice := c.there[vm.Stamp.Machine]
	given, up := c.given[vm.Stamp.Machine]
	switch {
	case !known && up:
		c.fenced(given, vm)
	case !known:
		c.orphan(vm)
	case twice:
		c.add(Twin, vm, m.Cluster,
			"find out which of the two is the node, and remove the other by hand: the director deletes neither "+
				"while there are two",
			"VM %s on %s has the stamp of machine %s, which VM %s has too", vm.Name, c.at(vm.Host), m.Name, first.ID)
	case !c.p.Busy[m.Cluster]:
		c.drift(m, vm)
	}
	if !twice {
		c.there[vm.Stamp.Machine] = vm
	}
}

func (c *comparison) fenced(m director.Machine, vm hypervisor.VM) {
	state := "it is off, and is never started again"
	if vm.Power != hypervisor.PowerOff {
		state = "it runs, and is powered off within a minute"
	}
	c.add(Fenced, vm, m.Cluster, fmt.Sprintf(
		"delete it when nothing of its root disk is wanted: directorctl vms reclaim %s %s", c.p.Name, vm.ID,
	),
		"VM %s on %s was given up when its host was lost: %s", vm.Name, c.at(vm.Host), state)
}

func (c *comparison) lostHost(m director.Machine) {
	c.add(LostHost, hypervisor.VM{Name: m.Name, Host: m.Host, Stamp: director.Stamp{Machine: m.ID}}, m.Cluster,
		"make it on another host: "+replacement(m)+"; or bring the host back",
		"%s is on %s, which was declared lost", known(m), c.at(m.Host))
}

// known is the machine as people know it.
func known(m director.Machine) string {
	if m.Role == director.RoleDirector {
		return "the VM of director " + m.Cluster
	}
	return "machine " + m.Name + " of cluster " + m.Cluster
}

// replacement is what has the machine's VM made again.
func replacement(m director.Machine) string {
	if m.Role == director.RoleDirector {
		return "directorctl director delete " + m.Cluster + ", and then its document and its creation again"
	}
	return "directorctl node replace " + m.Cluster + " " + m.Name
}

func (c *comparison) orphan(vm hypervisor.VM) {
	reclaim := fmt.Sprintf("directorctl vms reclaim %s %s", c.p.Name, vm.ID)
	cluster, next := "", "delete it: "+reclaim
	if c.p.Home != nil {
		cluster = c.p.Home(vm)
	}
	if cluster != "" {
		next = fmt.Sprintf(
			"take it back into cluster %s: directorctl vms adopt %s %s; or delete it: %s", cluster, c.p.Name, vm.ID,
			reclaim,
		)
	}
	c.add(
		Orphan, vm, cluster, next, "VM %s on %s carries our stamp, and the ledger has no machine %s", vm.Name,
		c.at(vm.Host), vm.Stamp.Machine,
	)
}

func (c *comparison) stranger(vm hypervisor.VM) {
	cluster, ours := c.names[vm.Name]
	if !ours {
		return
	}
	owner := "no stamp"
	if vm.Stamp.Director != "" {
		owner = "the stamp of director " + vm.Stamp.Director
	}
	c.add(Stranger, vm, cluster,
		"rename or remove it by hand if it is yours, or give the cluster another name: the director leaves it as it is",
		"VM %s on %s has the name of a node of cluster %s, and %s", vm.Name, c.at(vm.Host), cluster, owner)
}

func (c *comparison) ghost(m director.Machine) {
	next := "create its VM again: " + replacement(m)
	if m.Role != director.RoleDirector {
		next += fmt.Sprintf("; or delete the node: directorctl node delete %s %s", m.Cluster, m.Name)
	}
	c.add(Ghost, hypervisor.VM{Name: m.Name, Host: m.Host, Stamp: director.Stamp{Machine: m.ID}}, m.Cluster, next,
		"%s is in the ledger, and %s does not have it", known(m), c.at(m.Host))
}

// drift adds a finding for each way in which the VM differs from its row.
func (c *comparison) drift(m director.Machine, vm hypervisor.VM) {
	differs := func(next, format string, args ...any) {
		c.add(Drift, vm, m.Cluster, next, "%s on %s: %s", known(m), c.p.Name, fmt.Sprintf(format, args...))
	}
	again := "change it back on the hypervisor, or create the VM again: " + replacement(m)
	if m.State == director.MachinePresent && vm.Power != hypervisor.PowerOn {
		next := fmt.Sprintf("switch it on and bring it back: directorctl node repair %s %s", m.Cluster, m.Name)
		if m.Role == director.RoleDirector {
			next = "switch it on on the hypervisor"
		}
		differs(next, "it is powered %s", vm.Power)
	}
	if m.Host != "" && vm.Host != m.Host {
		differs(
			fmt.Sprintf("move it back, or write down where it is: directorctl vms adopt %s %s", c.p.Name, vm.ID),
			"it is on host %s and not on %s", vm.Host, m.Host,
		)
	}
	if vm.Name != m.Name {
		differs("give it its name back on the hypervisor", "its VM is called %s", vm.Name)
	}
	if vm.CPUs != 0 && m.CPUs != 0 && vm.CPUs != m.CPUs {
		differs(again, "it has %d vCPUs and not %d", vm.CPUs, m.CPUs)
	}
	if vm.Memory != 0 && m.Memory != 0 && vm.Memory != m.Memory {
		differs(again, "it has %d MiB of memory and not %d MiB", vm.Memory>>20, m.Memory>>20)
	}
	if problem := network(m, vm.Adapters); problem != "" {
		differs("connect it again on the hypervisor, or create the VM again: "+replacement(m), "%s", problem)
	}
}

// network says what is wrong with the adapters of the node's addresses, which their MACs identify; "" if nothing is, or
// it is unknown.
func network(m director.Machine, nics []hypervisor.Adapter) string {
	for _, n := range append([]director.NIC{{Network: m.Network, MAC: m.MAC}}, m.NICs...) {
		if problem := connected(n, nics); problem != "" {
			return problem
		}
	}
	return ""
}

func connected(m director.NIC, nics []hypervisor.Adapter) string {
	if nics == nil || m.MAC == "" || m.Network == "" {
		return ""
	}
	for _, n := range nics {
		switch {
		case !strings.EqualFold(n.MAC, m.MAC):
		case n.Network == m.Network:
			return ""
		case n.Network == "":
			return "its adapter " + m.MAC + " is on no network, and not on " + m.Network
		default:
			return "its adapter " + m.MAC + " is on network " + n.Network + " and not on " + m.Network
		}
	}
	return "it has no adapter " + m.MAC
}

// Report is what an audit found.
type Report struct {
	At        time.Time
	Findings  []Finding // by provider, kind and name
	Providers []Compared
	Disks     []Disk   // that outlived their VMs
	Busy      []string // clusters that a plan works on, or has left half way: what differs there is not looked at
}

// Compared is a provider that an audit looked at, or could not.
type Compared struct {
	Name string
	VMs  int   // with our stamp
	Err  error // why it was not compared; nil if it was
}

// Both returns the findings that are in both lists, with the text of the second. What was found twice was not just
// being changed.
func Both(first, second []Finding) []Finding {
	type key struct {
		kind    Kind
		vm      hypervisor.ID
		machine string
	}
	seen := map[key]bool{}
	for _, f := range first {
		seen[key{f.Kind, f.VM, f.Machine}] = true
	}
	return slices.DeleteFunc(slices.Clone(second), func(f Finding) bool { return !seen[key{f.Kind, f.VM, f.Machine}] })
}
