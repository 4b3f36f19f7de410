package libvirt

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"sync"

	virt "libvirt.org/go/libvirt"
	virtxml "libvirt.org/go/libvirtxml"

	"github.com/director-kaas/kaas/director/hypervisor"
)

var _ hypervisor.Discoverer = (*Backend)(nil)

// Discover implements hypervisor.Discoverer. It asks all hosts at once.
func (b *Backend) Discover(ctx context.Context) (hypervisor.Discovery, error) {
	const op = "libvirt.discover"
	type answer struct {
		version string
		items   []hypervisor.Discovered
	}
	answers := make([]answer, len(b.hosts))
	failed := make([]error, len(b.hosts))
	var wg sync.WaitGroup
	for i, h := range b.hosts {
		wg.Go(func() {
			answers[i], failed[i] = soon(ctx, h, op, b.patience.discover, func(c *virt.Connect) (answer, error) {
				version, err := c.GetLibVersion()
				if err != nil {
					return answer{}, err
				}
				items, err := h.discover(c)
				return answer{"libvirt " + dotted(version), items}, err
			})
		})
	}
	wg.Wait()
	var d hypervisor.Discovery
	for i, h := range b.hosts {
		if failed[i] != nil {
			d.Unseen = append(d.Unseen, hypervisor.HostState{Host: h.Name, Err: failed[i]})
			continue
		}
		d.Items = append(d.Items, answers[i].items...)
		if !strings.Contains(d.Version, answers[i].version) {
			d.Version = strings.TrimPrefix(d.Version+", "+answers[i].version, ", ")
		}
	}
	if len(d.Unseen) > 0 && len(d.Items) == 0 {
		return hypervisor.Discovery{}, d.Unseen[0].Err
	}
	d.Bound()
	return d, interrupted(ctx, op)
}

// discover returns what the host has.
func (h *host) discover(c *virt.Connect) ([]hypervisor.Discovered, error) {
	var all []hypervisor.Discovered
	for _, part := range []func(*virt.Connect) ([]hypervisor.Discovered, error){
		h.discoverSelf, h.discoverPools, h.discoverNetworks, h.discoverBridges,
	} {
		items, err := part(c)
		if err != nil {
			return nil, err
		}
		for _, i := range items {
			known := slices.ContainsFunc(all, func(x hypervisor.Discovered) bool {
				return x.Kind == i.Kind && x.Name == i.Name
			})
			if !known {
				all = append(all, i)
			}
		}
	}
	return all, nil
}

func (h *host) discoverSelf(c *virt.Connect) ([]hypervisor.Discovered, error) {
	info, err := c.GetNodeInfo()
	if err != nil {
		return nil, err
	}
	i := hypervisor.Discovered{
		Kind: hypervisor.FoundHost, Name: h.Name, About: h.URI, CPUs: int(info.Cpus), Memory: int64(info.Memory << 10),
	}
	if i.MemoryFree, err = freeMemory(c); err != nil {
		return nil, err
	}
	i.MemoryFree = min(i.MemoryFree, i.Memory)
	domains, err := c.ListAllDomains(0)
	for j := range domains {
		_ = domains[j].Free()
	}
	i.VMs = len(domains)
	return []hypervisor.Discovered{i}, err
}

// discoverPools returns all storage pools, also those that VMs cannot use, with why.
func (h *host) discoverPools(c *virt.Connect) ([]hypervisor.Discovered, error) {
	pools, err := c.ListAllStoragePools(0)
	if err != nil {
		return nil, err
	}
	var items []hypervisor.Discovered
	for i := range pools {
		item, err := h.discoverPool(&pools[i])
		_ = pools[i].Free()
		if is(err, virt.ERR_NO_STORAGE_POOL) {
			continue // since it was listed
		}
		if err != nil {
			return nil, err
		}
		items = append(items, item)
	}
	return items, nil
}

func (h *host) discoverPool(p *virt.StoragePool) (hypervisor.Discovered, error) {
	item := hypervisor.Discovered{Kind: hypervisor.FoundStoragePool, In: h.Name}
	text, err := p.GetXMLDesc(0)
	if err != nil {
		return item, err
	}
	var def virtxml.StoragePool
	if err := def.Unmarshal(text); err != nil {
		return item, err
	}
	item.Name, item.About = def.Name, def.Type
	if def.Target != nil && def.Target.Path != "" {
		item.About += " at " + def.Target.Path
	}
	active, err := p.IsActive()
	if err != nil {
		return item, err
	}
	switch {
	case !slices.Contains(diskTypes, def.Type):
		item.Problem = "VMs need a pool of type " + strings.Join(diskTypes, ", ")
	case !active:
		item.Problem = "it is not started"
	case !slices.Contains(fileTypes, def.Type):
		item.About += ", for disks alone"
	}
	if !active {
		return item, nil
	}
	info, err := p.GetInfo()
	if err == nil {
		item.Size, item.Free = int64(info.Capacity), int64(min(info.Available, info.Capacity))
	}
	return item, err
}

// discoverNetworks returns all networks, and the bridges that those of mode bridge lead to.
func (h *host) discoverNetworks(c *virt.Connect) ([]hypervisor.Discovered, error) {
	networks, err := c.ListAllNetworks(0)
	if err != nil {
		return nil, err
	}
	var items []hypervisor.Discovered
	for i := range networks {
		n, err := inspectNetwork(&networks[i]) // which frees it where it fails
		if n == nil && err == nil {
			continue // since it was listed
		}
		if err != nil {
			return nil, err
		}
		active, err := n.IsActive()
		_ = n.Free()
		if err != nil && !is(err, virt.ERR_NO_NETWORK) {
			return nil, err
		}
		item := hypervisor.Discovered{Kind: hypervisor.FoundNetwork, In: h.Name, Name: n.def.Name, About: "isolated"}
		if n.def.Forward != nil {
			item.About = n.def.Forward.Mode
		}
		for _, r := range ranges(n.def) {
			item.About += ", " + r.Masked().String()
		}
		if !active {
			item.Problem = "it is not started"
		}
		if bridge := n.def.Bridge; bridge != nil && bridge.Name != "" {
			item.About += ", on " + bridge.Name
			if n.def.Forward != nil && n.def.Forward.Mode == "bridge" {
				items = append(items, h.bridge(bridge.Name, "of the network "+n.def.Name))
			}
		}
		items = append(items, item)
	}
	return items, nil
}

func (h *host) bridge(name, about string) hypervisor.Discovered {
	return hypervisor.Discovered{Kind: hypervisor.FoundBridge, In: h.Name, Name: name, About: about}
}

// discoverBridges returns the bridges of the host itself. A libvirt without a driver for interfaces tells of none.
func (h *host) discoverBridges(c *virt.Connect) ([]hypervisor.Discovered, error) {
	all, err := c.ListAllInterfaces(virt.CONNECT_LIST_INTERFACES_ACTIVE)
	if is(err, virt.ERR_NO_SUPPORT) || is(err, virt.ERR_NO_CONNECT) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var items []hypervisor.Discovered
	for i := range all {
		text, err := all[i].GetXMLDesc(0)
		_ = all[i].Free()
		if err != nil {
			continue // gone since it was listed, or of a kind that libvirt cannot describe
		}
		var def virtxml.Interface
		if def.Unmarshal(text) != nil || def.Bridge == nil {
			continue
		}
		items = append(items, h.bridge(def.Name, aboutBridge(def)))
	}
	return items, nil
}

func aboutBridge(def virtxml.Interface) string {
	var parts []string
	for _, i := range def.Bridge.Interfaces {
		parts = append(parts, i.Name)
	}
	for _, p := range def.Protocol {
		for _, ip := range p.IPs {
			parts = append(parts, fmt.Sprintf("%s/%d", ip.Address, ip.Prefix))
		}
	}
	const most = 6 // a bridge has a port for each running VM
	if len(parts) > most {
		parts = append(parts[:most], "...")
	}
	return strings.Join(parts, ", ")
}

// freeMemory is the memory that the host has left. Memory that its kernel would give back counts as free.
func freeMemory(c *virt.Connect) (int64, error) {
	if m, err := c.GetMemoryStats(virt.NODE_MEMORY_STATS_ALL_CELLS, 0); err == nil && m.FreeSet {
		return int64((m.Free + m.Buffers + m.Cached) << 10), nil
	}
	free, err := c.GetFreeMemory()
	return int64(free), err
}
