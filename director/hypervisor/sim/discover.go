package sim

import (
	"context"
	"slices"

	"github.com/director-kaas/kaas/director/hypervisor"
)

var _ hypervisor.Discoverer = (*Backend)(nil)

// SetInventory replaces what Discover tells besides hosts, as other hypervisors have other things than hosts with
// libvirt. With nothing, each host has a storage pool, a bridge and the networks of the world again.
func (w *World) SetInventory(items ...hypervisor.Discovered) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.inventory = slices.Clone(items)
}

// Discover implements hypervisor.Discoverer. Each host has a storage pool default, the bridge br0, and the networks of
// the world, unless SetInventory names other things.
func (b *Backend) Discover(ctx context.Context) (hypervisor.Discovery, error) {
	d := hypervisor.Discovery{Version: "pretended"}
	err := b.do(ctx, VerbDiscover, nil, func(op string, _ When) error {
		d.Items = slices.Clone(b.w.inventory)
		vms := map[string]int{}
		for _, v := range b.w.vms {
			vms[v.Host]++
		}
		for _, name := range b.w.hostNames() {
			h := b.w.hosts[name]
			if h.down {
				d.Unseen = append(d.Unseen, hypervisor.HostState{Host: name, Err: unreachable(op, name)})
				continue
			}
			memory, space := b.w.free(h)
			d.Items = append(d.Items, hypervisor.Discovered{
				Kind: hypervisor.FoundHost, Name: name, CPUs: h.CPUs, Memory: h.Memory,
				MemoryFree: max(memory, 0), VMs: vms[name],
			})
			if len(b.w.inventory) > 0 {
				continue
			}
			d.Items = append(
				d.Items,
				hypervisor.Discovered{
					Kind: hypervisor.FoundStoragePool, In: name, Name: "default", About: "dir", Size: h.Disk,
					Free: max(space, 0),
				},
				hypervisor.Discovered{Kind: hypervisor.FoundBridge, In: name, Name: "br0"},
			)
			for _, n := range b.w.networks {
				i := hypervisor.Discovered{Kind: hypervisor.FoundNetwork, In: name, Name: n.Name, About: n.Mode}
				if n.CIDR.IsValid() {
					i.About += ", " + n.CIDR.String()
				}
				if !n.started {
					i.Problem = "it is not started"
				}
				d.Items = append(d.Items, i)
			}
		}
		return nil
	})
	if err != nil {
		return hypervisor.Discovery{}, err
	}
	d.Bound()
	return d, nil
}
