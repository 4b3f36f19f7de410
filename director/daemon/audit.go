package daemon

import (
	"context"
	"time"

	"github.com/director-kaas/kaas/director/audit"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/store"
)

// auditEvery is how often counts of refused attempts are written, and how late a checkpoint of the audit trail can be.
const auditEvery = 30 * time.Second

func (d *Daemon) startAudit(ctx context.Context, db *store.Store, box *seal.Box) (*audit.Service, error) {
	s, err := audit.New(ctx, audit.Config{Store: db, Sealer: box, Now: time.Now})
	if err != nil {
		return nil, err
	}
	d.every(ctx, auditEvery, "sign the audit trail", s.Tick)
	d.onStop(s.Close)
	return s, nil
}
