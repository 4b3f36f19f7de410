package daemon

import (
	"context"
	"time"
)

// repairEvery is how often nodes are looked at for repairs.
const repairEvery = 30 * time.Second

// startRepairs looks after the clusters that ask for automatic repair. Every director does so: plans hold their
// cluster, so one of them repairs it.
func (d *Daemon) startRepairs(ctx context.Context) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(repairEvery)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if err := d.ops.Repair(ctx, time.Now()); err != nil && ctx.Err() == nil {
				d.log.ErrorContext(ctx, "looking for nodes to repair failed", "err", err)
			}
		}
	}()
	d.onStop(func(context.Context) error {
		cancel()
		<-done
		return nil
	})
}
