package daemon

import (
	"context"
	"time"

	"github.com/director-kaas/kaas/director/fence"
)

// fenceEvery is how often hosts that were declared lost are looked for. A VM that comes back with its host runs for at
// most as long.
const fenceEvery = 15 * time.Second

// startFencing powers off what was given up with a lost host, as soon as the host answers. Every director does so: it
// can be done twice.
func (d *Daemon) startFencing(ctx context.Context, f *fence.Service) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(fenceEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := f.Sweep(ctx); err != nil && ctx.Err() == nil {
				d.log.ErrorContext(ctx, "looking for lost hosts failed", "err", err)
			}
		}
	}()
	d.onStop(func(context.Context) error {
		cancel()
		<-done
		return nil
	})
}
