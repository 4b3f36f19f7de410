package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/director-kaas/kaas/director/wire"
)

// Consuls lists all Consuls with how their last comparisons went.
func (c *providerCalls) Consuls(ctx context.Context) ([]wire.Consul, error) {
	var v wire.Consuls
	err := c.call(ctx, request{method: http.MethodGet, path: "/consuls"}, &v)
	return v.Items, err
}

// TestConsul looks at everything that the director needs of the Consul.
func (c *providerCalls) TestConsul(ctx context.Context, name string) (wire.ProviderTest, error) {
	var v wire.ProviderTest
	err := c.call(ctx, request{method: http.MethodPost, path: "/consuls/" + url.PathEscape(name) + "/test"}, &v)
	return v, err
}

// ConsulServices lists what is registered in the Consul, and how it differs from what is wanted.
func (c *providerCalls) ConsulServices(ctx context.Context, name string) ([]wire.ConsulService, error) {
	var v wire.ConsulServices
	err := c.call(ctx, request{method: http.MethodGet, path: "/consuls/" + url.PathEscape(name) + "/services"}, &v)
	return v.Items, err
}

// ConsulGaps lists which nodes have no route to services of the Consul.
func (c *providerCalls) ConsulGaps(ctx context.Context, name string) (wire.ConsulGaps, error) {
	var v wire.ConsulGaps
	err := c.call(ctx, request{method: http.MethodGet, path: "/consuls/" + url.PathEscape(name) + "/gaps"}, &v)
	return v, err
}

// SyncConsul compares the Consul now, and repairs it. confirm is the id of removals that are held, or empty.
func (c *providerCalls) SyncConsul(ctx context.Context, name, confirm string) (wire.ConsulState, error) {
	var v wire.ConsulState
	err := c.call(ctx, request{
		method: http.MethodPost, path: "/consuls/" + url.PathEscape(name) + "/sync",
		body: wire.ConsulSync{Confirm: confirm},
	}, &v)
	return v, err
}
