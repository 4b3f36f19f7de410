package client

import (
	"context"
	"net/http"

	"github.com/director-kaas/kaas/director/wire"
)

// DiskFilter narrows Disks; an empty field selects all.
type DiskFilter struct {
	Providers     []string
	Cluster, Plan string
}

// Disks lists the disks that outlived their VMs. The hypervisors are asked, unless a plan is named.
func (c *providerCalls) Disks(ctx context.Context, f DiskFilter) (wire.Disks, error) {
	q := providersQuery(f.Providers)
	for key, value := range map[string]string{"cluster": f.Cluster, "plan": f.Plan} {
		if value != "" {
			q.Set(key, value)
		}
	}
	var v wire.Disks
	err := c.call(ctx, request{method: http.MethodGet, path: "/disks", query: q}, &v)
	return v, err
}

// DeleteDisk destroys a kept disk with everything on it.
func (c *providerCalls) DeleteDisk(ctx context.Context, provider, id string) (wire.Disk, error) {
	var v wire.Disk
	err := c.call(ctx, request{method: http.MethodDelete, path: "/providers/" + provider + "/disks/" + id}, &v)
	return v, err
}
