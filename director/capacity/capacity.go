// Package capacity computes what hypervisor hosts have left under a provider's policy, and how many VMs of a size still
// fit. It is pure.
package capacity

import (
	"math"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/model"
)

// Thin is by how much disks are expected to stay smaller than their size: a new VM needs a tenth of it free.
const Thin = 10

// Host is a host with what is promised to VMs and what is left.
type Host struct {
	hypervisor.HostCapacity
	CPUsPromised   int   // to all VMs, also strangers and such that are off
	MemoryPromised int64 // likewise
	CPUsLeft       int   // math.MaxInt without a bound
	MemoryLeft     int64
	DiskLeft       int64
}

// Hosts applies the policy. Without a policy for memory, what the host itself calls free is left. With one, VMs may be
// promised so many per cent of the host's memory in all; up to 100 per cent, what is free in fact is the bound too.
// Without a policy for CPUs there is no bound.
func Hosts(rows []hypervisor.HostCapacity, vms []hypervisor.VM, o model.Overcommit) []Host {
	out := make([]Host, len(rows))
	for i, r := range rows {
		h := Host{HostCapacity: r, CPUsLeft: math.MaxInt, MemoryLeft: r.MemoryFree, DiskLeft: r.DiskFree}
		for _, vm := range vms {
			if vm.Host == r.Host {
				h.CPUsPromised += vm.CPUs
				h.MemoryPromised += vm.Memory
			}
		}
		if o.CPUPercent > 0 {
			h.CPUsLeft = max(r.CPUs*o.CPUPercent/100-h.CPUsPromised, 0)
		}
		if o.MemoryPercent > 0 {
			promise := max(int64(float64(r.Memory)*float64(o.MemoryPercent)/100)-h.MemoryPromised, 0)
			if h.MemoryLeft = promise; o.MemoryPercent <= 100 {
				h.MemoryLeft = min(promise, r.MemoryFree)
			}
		}
		out[i] = h
	}
	return out
}

// Need is what VMs take of a host.
type Need struct {
	CPUs         int
	Memory, Disk int64 // bytes; of disk, what has to be free
}

// NeedOf is what n VMs of the size take.
func NeedOf(s model.VMSize, n int) Need {
	return Need{CPUs: s.CPUs * n, Memory: int64(s.Memory) * int64(n), Disk: int64(s.Disk+s.DataDisk) / Thin * int64(n)}
}

// Add adds what more VMs take.
func (n Need) Add(m Need) Need {
	return Need{CPUs: n.CPUs + m.CPUs, Memory: n.Memory + m.Memory, Disk: n.Disk + m.Disk}
}

// Fits returns how many VMs of the size fit on the host, and what ends it: cpus, memory or disk.
func (h Host) Fits(s model.VMSize) (n int, by string) {
	one := NeedOf(s, 1)
	n = math.MaxInt
	least := func(name string, left, need int64) {
		if need > 0 && int(left/need) < n {
			n, by = int(max(left, 0)/need), name
		}
	}
	if h.CPUsLeft != math.MaxInt {
		least("cpus", int64(h.CPUsLeft), int64(one.CPUs))
	}
	least("memory", h.MemoryLeft, one.Memory)
	least("disk", h.DiskLeft, one.Disk)
	return n, by
}

// Bound is a limit on the number of VMs other than the hosts: a quota, or addresses.
type Bound struct {
	Field string // spec.quota.cpus of Provider/lab
	Left  int    // how many VMs of the size it lets be made
}

// Fit returns how many VMs of the size fit on the hosts within the bounds, and what ends it: a bound's field, or cpus,
// memory or disk of the hosts.
func Fit(hosts []Host, s model.VMSize, bounds ...Bound) (n int, by string) {
	by = "hosts"
	for _, h := range hosts {
		k, why := h.Fits(s)
		if k == math.MaxInt {
			return 0, "hosts" // a size of nothing
		}
		if n += k; why != "" {
			by = why + " of the hosts"
		}
	}
	for _, b := range bounds {
		if b.Left < n {
			n, by = max(b.Left, 0), b.Field
		}
	}
	return n, by
}

// Use is what machines take of a quota.
type Use struct {
	Machines, CPUs int
	Memory         int64
}

// UseOf sums the machines up.
func UseOf(machines []director.Machine) Use {
	var u Use
	for _, m := range machines {
		u = u.Add(1, m.CPUs, m.Memory)
	}
	return u
}

// Add adds n machines of a size.
func (u Use) Add(n, cpus int, memory int64) Use {
	return Use{Machines: u.Machines + n, CPUs: u.CPUs + n*cpus, Memory: u.Memory + int64(n)*memory}
}

// Plus adds what others use.
func (u Use) Plus(v Use) Use {
	return Use{Machines: u.Machines + v.Machines, CPUs: u.CPUs + v.CPUs, Memory: u.Memory + v.Memory}
}

// Bounds returns how many VMs of the size the quota allows in addition to what is used. field is the prefix of the
// names of its parts.
func Bounds(q model.Quota, used Use, s model.VMSize, field, of string) []Bound {
	var out []Bound
	add := func(name string, left, one int64) {
		if one > 0 {
			out = append(out, Bound{Field: field + "." + name + " of " + of, Left: int(max(left, 0) / one)})
		}
	}
	if q.Machines > 0 {
		add("machines", int64(q.Machines-used.Machines), 1)
	}
	if q.CPUs > 0 {
		add("cpus", int64(q.CPUs-used.CPUs), int64(s.CPUs))
	}
	if q.Memory > 0 {
		add("memory", int64(q.Memory)-used.Memory, int64(s.Memory))
	}
	return out
}

// Over returns the parts of the quota that the use goes beyond: its name, and what is used and allowed.
func Over(q model.Quota, u Use) []Excess {
	var out []Excess
	if q.Machines > 0 && u.Machines > q.Machines {
		out = append(out, Excess{"machines", u.Machines, q.Machines})
	}
	if q.CPUs > 0 && u.CPUs > q.CPUs {
		out = append(out, Excess{"cpus", u.CPUs, q.CPUs})
	}
	if q.Memory > 0 && u.Memory > int64(q.Memory) {
		out = append(out, Excess{"memory", model.Size(u.Memory), q.Memory})
	}
	return out
}

// Excess is a part of a quota that is too small.
type Excess struct {
	Name       string
	Need, Most any
}
