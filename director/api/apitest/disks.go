package apitest

import (
	"context"
	"slices"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/disks"
	"github.com/director-kaas/kaas/director/ledger"
)

// Disks implements api.Disks over a list.
type Disks struct {
	mu   sync.Mutex
	list []ledger.Disk
}

var _ api.Disks = (*Disks)(nil)

// NewDisks returns disks on provider lab: one that is kept, one that was taken over, and one that others had attached.
func NewDisks() *Disks {
	disk := func(id, node string, state ledger.DiskState) ledger.Disk {
		return ledger.Disk{
			KeptDisk: director.KeptDisk{
				ID: id, Provider: "lab", Host: "host1", Name: "kaas-" + id + ".qcow2", Size: 20 << 30, Cluster: "demo",
				Pool: "worker", Node: node,
				Plan: "p1", Kept: time.Now().Add(-73 * time.Hour),
			},
			State: state,
		}
	}
	return &Disks{list: []ledger.Disk{
		disk("m1.kaas-data", "demo-worker-1", ledger.DiskKept), disk("m2.kaas-data", "demo-worker-2", ledger.DiskTaken),
		disk("pvc-7", "demo-worker-1", ledger.DiskForeign),
	}}
}

// List returns the disks that f selects.
func (d *Disks) List(_ context.Context, f disks.Filter) (disks.View, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v := disks.View{Providers: []ledger.Compared{{Name: "lab"}}}
	for _, p := range f.Providers {
		if p != "lab" {
			return v, notFound("there is no Provider/%s", p)
		}
	}
	for _, x := range d.list {
		if (f.Cluster == "" || f.Cluster == x.Cluster) && (f.Plan == "" || f.Plan == x.Plan) {
			v.Items = append(v.Items, x)
		}
	}
	return v, nil
}

// Delete takes a disk off the list.
func (d *Disks) Delete(_ context.Context, _, provider, id string) (ledger.Disk, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.list, func(x ledger.Disk) bool { return x.Provider == provider && x.ID == id })
	if i < 0 {
		return ledger.Disk{}, notFound("there is no kept disk %s on %s", id, provider)
	}
	x := d.list[i]
	if x.State == ledger.DiskTaken {
		return x, director.Errorf(director.KindConflict, "apitest.disk", "disk %s is in use by %s", id, x.Node).
			WithHint("take the node away first")
	}
	d.list = slices.Delete(d.list, i, i+1)
	return x, nil
}
