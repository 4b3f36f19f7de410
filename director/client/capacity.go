package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
)

// Check says everything that a plan for the request would be refused for.
func (c *clusterCalls) Check(ctx context.Context, cluster string, r plan.Request) (wire.Checked, error) {
	var v wire.Checked
	err := c.call(
		ctx, request{method: http.MethodPost, path: "/clusters/" + cluster + "/check", body: wire.PlanRequestOf(r)}, &v,
	)
	return v, err
}

// Capacity tells what the hosts of the providers, or of all, have left, and how many VMs of the size still fit.
func (c *clusterCalls) Capacity(ctx context.Context, size model.VMSize, providers ...string) ([]wire.Capacity, error) {
	q := providersQuery(providers)
	q.Set("cpus", strconv.Itoa(size.CPUs))
	q.Set("memory", size.Memory.String())
	q.Set("disk", size.Disk.String())
	return c.capacity(ctx, q)
}

// ClusterCapacity tells how many more nodes of the cluster's pools fit on its provider.
func (c *clusterCalls) ClusterCapacity(ctx context.Context, cluster string) ([]wire.Capacity, error) {
	return c.capacity(ctx, url.Values{"cluster": {cluster}})
}

func (c *clusterCalls) capacity(ctx context.Context, q url.Values) ([]wire.Capacity, error) {
	var v wire.Capacities
	err := c.call(ctx, request{method: http.MethodGet, path: "/capacity", query: q}, &v)
	return v.Items, err
}

// AddressFilter narrows NetworkAddresses. What is empty does not narrow.
type AddressFilter struct {
	Text string // in the address, the node or the cluster
	Uses []string
}

// NetworkAddresses lists the addresses of the network that are in use.
func (c *clusterCalls) NetworkAddresses(
	ctx context.Context, network string, f AddressFilter,
) (wire.NetworkAddresses, error) {
	q := url.Values{"limit": {strconv.Itoa(mostPerPage)}}
	if f.Text != "" {
		q.Set("q", f.Text)
	}
	if len(f.Uses) > 0 {
		q.Set("use", strings.Join(f.Uses, ","))
	}
	var out wire.NetworkAddresses
	for {
		var part wire.NetworkAddresses
		err := c.call(
			ctx, request{method: http.MethodGet, path: "/networks/" + network + "/addresses", query: q}, &part,
		)
		if err != nil {
			return out, err
		}
		part.Items = append(out.Items, part.Items...)
		if out = part; out.Continue == "" {
			return out, nil
		}
		q.Set("continue", out.Continue)
	}
}
