package daemon

import (
	"context"
	"time"

	"github.com/director-kaas/kaas/director/issuer"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/store"
)

// startIssuer makes the keys that sign tokens for clusters, and keeps rotating them.
func (d background) startIssuer(ctx context.Context, db *store.Store, box *seal.Box) error {
	d.issuer = issuer.New(issuer.Config{Store: db, Sealer: box, URL: d.cfg.publicURL(), Now: time.Now})
	if err := d.issuer.Tick(ctx); err != nil {
		return err
	}
	d.every(ctx, issuerEvery, "rotate the keys that sign tokens", d.issuer.Tick)
	return nil
}
