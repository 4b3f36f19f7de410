package client

import (
	"context"
	"net/http"

	"github.com/director-kaas/kaas/director/wire"
)

// Appliance returns which directors the appliance has, and how far an upgrade is.
func (c *imageCalls) Appliance(ctx context.Context) (wire.Appliance, error) {
	var out wire.Appliance
	err := c.call(ctx, request{method: http.MethodGet, path: "/appliance"}, &out)
	return out, err
}

// UpgradeAppliance asks for the root in an uploaded archive.
func (c *imageCalls) UpgradeAppliance(ctx context.Context, q wire.ApplianceUpgrade) (wire.Appliance, error) {
	var out wire.Appliance
	err := c.call(ctx, request{method: http.MethodPost, path: "/appliance/upgrade", body: q}, &out)
	return out, err
}

// RollBackAppliance asks for the former root.
func (c *imageCalls) RollBackAppliance(ctx context.Context, q wire.ApplianceRollback) (wire.Appliance, error) {
	var out wire.Appliance
	err := c.call(ctx, request{method: http.MethodPost, path: "/appliance/rollback", body: q}, &out)
	return out, err
}
