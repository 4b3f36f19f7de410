package client

import (
	"context"
	"net/http"
	"net/url"
	"strings"

	"github.com/director-kaas/kaas/director/wire"
)

func providersQuery(providers []string) url.Values {
	q := url.Values{}
	if len(providers) > 0 {
		q.Set("provider", strings.Join(providers, ","))
	}
	return q
}

// VMs lists the VMs of the providers, or of all, with strangers or without. The hypervisors are asked.
func (c *providerCalls) VMs(ctx context.Context, strangers bool, providers ...string) (wire.VMs, error) {
	q := providersQuery(providers)
	if strangers {
		q.Set("strangers", "true")
	}
	var v wire.VMs
	err := c.call(ctx, request{method: http.MethodGet, path: "/vms", query: q}, &v)
	return v, err
}

// Audit compares the ledger with what the providers have, or all. It changes nothing.
func (c *providerCalls) Audit(ctx context.Context, providers ...string) (wire.Audit, error) {
	var v wire.Audit
	err := c.call(ctx, request{method: http.MethodGet, path: "/vms/audit", query: providersQuery(providers)}, &v)
	return v, err
}

// AdoptVM writes an orphan into the ledger again. said may be empty.
func (c *providerCalls) AdoptVM(ctx context.Context, provider, id string, said wire.VMAdopt) (wire.VM, error) {
	var v wire.VM
	err := c.call(
		ctx, request{method: http.MethodPost, path: "/providers/" + provider + "/vms/" + id + "/adopt", body: said}, &v,
	)
	return v, err
}

// ReclaimVM deletes an orphan, with its data disks or without.
func (c *providerCalls) ReclaimVM(ctx context.Context, provider, id string, dataDisks bool) (wire.VM, error) {
	var v wire.VM
	err := c.call(
		ctx,
		request{
			method: http.MethodPost, path: "/providers/" + provider + "/vms/" + id + "/reclaim",
			body: wire.VMReclaim{DataDisks: dataDisks},
		},
		&v,
	)
	return v, err
}
