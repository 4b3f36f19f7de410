package daemon

import (
	"context"

	"github.com/director-kaas/kaas/director/store"
)

// reportMACs warns of machines that share a MAC address since before the ledger refused it. They keep it: the address
// of a VM never changes.
func (d stateOpener) reportMACs(ctx context.Context, db *store.Store) error {
	shared, err := db.SharedMACs(ctx)
	if err != nil {
		return err
	}
	for _, s := range shared {
		d.log.WarnContext(
			ctx, "machines share a MAC address; replace all but one: directorctl node replace", "mac", s.MAC,
			"machines", s.Machines,
		)
	}
	return nil
}
