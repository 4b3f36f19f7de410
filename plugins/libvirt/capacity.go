package libvirt

import (
	"context"

	virt "libvirt.org/go/libvirt"

	"github.com/director-kaas/kaas/director/hypervisor"
)

// Capacity implements hypervisor.Capacity. It also finds what is wrong with a host before a VM is to be made there:
// libvirt that does not answer, a pool that is missing or stopped, a domain type that the host cannot run.
func (b *Backend) Capacity(ctx context.Context) ([]hypervisor.HostCapacity, error) {
	const op = "libvirt.capacity"
	var rows []hypervisor.HostCapacity
	for _, h := range b.hosts {
		row, err := soon(ctx, h, op, b.patience.list, func(c *virt.Connect) (hypervisor.HostCapacity, error) {
			if _, err := b.domainType(op, h, c); err != nil {
				return hypervisor.HostCapacity{}, err
			}
			p, err := h.pool(op, c)
			if err != nil {
				return hypervisor.HostCapacity{}, err
			}
			defer p.close()
			return p.capacity()
		})
		if err != nil {
			return nil, err
		}
		rows = append(rows, row)
	}
	return rows, nil
}

// capacity is the row of the pool's host.
func (p *pool) capacity() (hypervisor.HostCapacity, error) {
	info, err := p.conn.GetNodeInfo()
	if err != nil {
		return hypervisor.HostCapacity{}, err
	}
	row := hypervisor.HostCapacity{
		Host: p.h.Name, CPUs: int(info.Cpus), Memory: int64(info.Memory << 10), Disk: int64(p.disks.all),
		DiskFree: int64(p.disks.free),
	}
	if row.MemoryFree, err = freeMemory(p.conn); err != nil {
		return hypervisor.HostCapacity{}, err
	}
	row.MemoryFree = min(row.MemoryFree, row.Memory)
	return row, nil
}
