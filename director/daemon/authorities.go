package daemon

import (
	"time"

	"github.com/director-kaas/kaas/director/authorities"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/store"
)

// makeAuthorities returns what issues the authorities of clusters from outer ones.
func (d *Daemon) makeAuthorities(db *store.Store, box *seal.Box) *authorities.Service {
	return authorities.New(authorities.Config{
		Store: db, Accounts: d.vault(db, box), Sealer: box, Networks: d.cfg.ProviderNetworks, Now: time.Now,
	})
}
