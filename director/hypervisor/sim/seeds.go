package sim

import (
	"context"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

var _ hypervisor.Seeds = (*Backend)(nil)

// RemoveSeed implements hypervisor.Seeds.
func (b *Backend) RemoveSeed(ctx context.Context, id hypervisor.ID, owner director.Stamp) error {
	return b.do(ctx, VerbRemoveSeed, []string{string(id), owner.Machine}, func(op string, when When) error {
		v, err := b.owned(op, id, owner)
		if err != nil || when == Midway || !v.seeded {
			return err
		}
		v.seeded = false
		b.w.putVM(v)
		return nil
	})
}

// HasSeed tells whether the VM still has what its guest reads at the first boot.
func (w *World) HasSeed(id hypervisor.ID) bool {
	defer w.look()()
	v := w.vms[id]
	return v != nil && v.seeded
}
