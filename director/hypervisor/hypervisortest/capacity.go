package hypervisortest

import (
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director/hypervisor"
)

func capacityRows(b bundle) {
	c := capability[hypervisor.Capacity](b)
	rows, err := c.Capacity(b.ctx)
	if err != nil {
		b.Fatalf("Capacity: %v", err)
	}
	if len(rows) == 0 {
		b.Fatal("no hosts")
	}
	for _, r := range rows {
		if r.Host == "" || r.CPUs < 1 || r.Memory <= 0 || r.Disk <= 0 || r.MemoryFree < 0 || r.DiskFree < 0 ||
			r.MemoryFree > r.Memory || r.DiskFree > r.Disk {
			b.Errorf("row %+v", r)
		}
	}
	if !slices.IsSortedFunc(rows, func(x, y hypervisor.HostCapacity) int { return strings.Compare(x.Host, y.Host) }) {
		b.Errorf("not ordered by host: %v", rows)
	}
}
