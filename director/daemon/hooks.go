package daemon

import (
	"context"
	"net/netip"
	"time"

	"github.com/director-kaas/kaas/director/engine"
	"github.com/director-kaas/kaas/director/hooks"
	"github.com/director-kaas/kaas/director/metrics"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/store"
)

// startHooks sends to hooks what plans tell and ask.
func (d background) startHooks(
	ctx context.Context, db *store.Store, box *seal.Box, eng *engine.Engine, m *metrics.Metrics, instance string,
	build Build,
) error {
	d.hooks = hooks.New(hooks.Config{
		Store: db, Sealer: box, Engine: eng, Accounts: d.vault(db, box), Observer: m, URL: d.cfg.publicURL(),
		Own: d.listeners, Instance: instance, Version: build.Version, Shared: db.Pool() != nil, Now: time.Now,
		Log: d.log,
	})
	if err := d.hooks.Start(ctx); err != nil {
		return err
	}
	d.onStop(d.hooks.Stop)
	return nil
}

// listeners returns where this director listens: for the API and for the registry.
func (d background) listeners() []netip.AddrPort {
	var out []netip.AddrPort
	for _, text := range []string{d.cfg.Listen, d.cfg.RegistryListen} {
		if a, err := netip.ParseAddrPort(text); err == nil {
			out = append(out, a)
		} else if len(text) > 0 && text[0] == ':' {
			if a, err := netip.ParseAddrPort("0.0.0.0" + text); err == nil {
				out = append(out, a)
			}
		}
	}
	if a := d.apiAddr.Load(); a != nil {
		out = append(out, *a)
	}
	if d.registryAddr != nil {
		if a, err := netip.ParseAddrPort(d.registryAddr.String()); err == nil {
			out = append(out, a)
		}
	}
	return out
}
