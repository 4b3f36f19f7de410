package vsphere

import (
	"context"
	"slices"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// Capacity implements hypervisor.Capacity. It also finds what is wrong with the provider before a VM is to be made
// there: names that vCenter does not have, and privileges that the account lacks, all at once. A host in maintenance is
// left out, since no VM can go there. Hosts share datastores: each row has the space of the one with the most.
func (b *Backend) Capacity(ctx context.Context) ([]hypervisor.HostCapacity, error) {
	const op = "vsphere.capacity"
	p, err := b.place(ctx, op)
	if err != nil {
		return nil, err
	}
	if err := b.checkPrivileges(ctx, op, p); err != nil {
		return nil, err
	}
	hosts, err := b.hosts(ctx, op, p)
	if err != nil {
		return nil, err
	}
	space, err := b.stores(ctx, op, p)
	if err != nil {
		return nil, err
	}
	var rows []hypervisor.HostCapacity
	for _, h := range hosts {
		if h.state != "" || slices.Contains(b.lost, h.name) {
			continue
		}
		row := hypervisor.HostCapacity{Host: h.name, CPUs: h.cpus, Memory: h.memory, MemoryFree: h.free}
		for _, d := range p.stores {
			if i := space[d.Reference()]; i.usable && h.stores[d.Reference()] && i.free >= row.DiskFree {
				row.Disk, row.DiskFree = i.size, i.free
			}
		}
		if row.Disk > 0 {
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		return nil, director.Errorf(director.KindUnavailable, op, "no host of cluster %s can take a VM", b.cfg.Cluster).
			WithHint("hosts must be connected, out of maintenance, and reach one of the provider's datastores")
	}
	return rows, nil
}

// Role is what the account must be allowed to do, by the object on which, as vCenter calls the privileges.
// docs/operate/vsphere.md has it as a role.
func Role() map[string][]string {
	return map[string][]string{
		"datacenter": {"System.View"},
		"cluster":    {"System.View", "Host.Inventory.EditCluster"},
		"pool":       {"Resource.AssignVMToPool", "VApp.Import"},
		"datastore":  {"Datastore.AllocateSpace", "Datastore.Browse", "Datastore.FileManagement"},
		"network":    {"Network.Assign"},
		"folder": {
			"Folder.Create",
			"VirtualMachine.Config.AddExistingDisk", "VirtualMachine.Config.AddNewDisk",
			"VirtualMachine.Config.AddRemoveDevice",
			"VirtualMachine.Config.AdvancedConfig", "VirtualMachine.Config.Annotation",
			"VirtualMachine.Config.CPUCount", "VirtualMachine.Config.DiskExtend",
			"VirtualMachine.Config.EditDevice", "VirtualMachine.Config.Memory", "VirtualMachine.Config.RemoveDisk",
			"VirtualMachine.Config.Settings",
			"VirtualMachine.Interact.PowerOff", "VirtualMachine.Interact.PowerOn",
			"VirtualMachine.Inventory.Create", "VirtualMachine.Inventory.CreateFromExisting",
			"VirtualMachine.Inventory.Delete",
			"VirtualMachine.Provisioning.Clone", "VirtualMachine.Provisioning.CloneTemplate",
			"VirtualMachine.Provisioning.DeployTemplate",
			"VirtualMachine.Provisioning.MarkAsTemplate",
			"VirtualMachine.State.CreateSnapshot", "VirtualMachine.State.RemoveSnapshot",
			"VirtualMachine.State.RevertToSnapshot",
		},
	}
}

// role is what of the role the configuration needs.
func (b *center) role() map[string][]string {
	role := Role()
	if b.cfg.ClusterPools {
		role["pool"] = append(role["pool"], "Resource.CreatePool")
	}
	if b.cfg.Attributes {
		role["folder"] = append(role["folder"], "Global.SetCustomField")
		role["vcenter"] = []string{"Global.ManageCustomFields"}
	}
	return role
}

// parts are the parts of the role, in the order in which they are told.
var parts = []string{"vcenter", "datacenter", "cluster", "pool", "folder", "datastore", "network"}

// objects are the objects of each part of the role, as far as they were found.
func (p *place) objects() map[string][]types.ManagedObjectReference {
	m := map[string][]types.ManagedObjectReference{}
	add := func(part string, found bool, ref func() types.ManagedObjectReference) {
		if found && !slices.Contains(m[part], ref()) {
			m[part] = append(m[part], ref())
		}
	}
	add("vcenter", true, func() types.ManagedObjectReference { return p.vim.ServiceContent.RootFolder })
	add("datacenter", p.dc != nil, func() types.ManagedObjectReference { return p.dc.Reference() })
	add("cluster", p.cluster != nil, func() types.ManagedObjectReference { return p.cluster.Reference() })
	add("pool", p.pool != nil, func() types.ManagedObjectReference { return p.pool.Reference() })
	for _, f := range []*object.Folder{p.folder, p.templates} {
		add("folder", f != nil, func() types.ManagedObjectReference { return f.Reference() })
	}
	for _, d := range append(p.dataStores(), p.images) {
		add("datastore", d != nil, func() types.ManagedObjectReference { return d.Reference() })
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, g := range p.networks { // those that were used so far
		add("network", true, func() types.ManagedObjectReference { return g.ref })
	}
	return m
}
