package daemon

import (
	"context"
	"time"
)

// How often regular tasks run.
const (
	repairEvery = 30 * time.Second // looks for nodes to repair
	// looks for hosts that were declared lost. A VM that comes back with its host runs for at most as long.
	fenceEvery = 15 * time.Second
	// looks at clusters that no director has looked at for a minute.
	observeEvery = 10 * time.Second
	// looks for people whom their directory has not confirmed for the time that its document says.
	peopleEvery   = 20 * time.Second
	upgradesEvery = 2 * time.Second  // looks whether an outer plan asks for the upgrade of this director
	drillsEvery   = 10 * time.Second // looks for drills that stopped before their VM was gone
	// looks for snapshots that upgrades have left.
	snapshotsEvery = 5 * time.Minute
	keysEvery      = time.Minute     // looks for clusters whose masters have other keys
	issuerEvery    = 5 * time.Minute // looks whether signing keys are due
)

// background starts what works by itself.
type background struct{ *Daemon }

func (d *Daemon) background() background { return background{d} }

// every runs task once per period until the daemon stops, and waits for the last run. An error is logged, and the next
// period tries again. Every director does so: tasks can be done twice. A
// director that is held does nothing.
func (d *Daemon) every(ctx context.Context, period time.Duration, name string, task func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.WithoutCancel(ctx))
	done := make(chan struct{})
	go func() {
		defer close(done)
		tick := time.NewTicker(period)
		defer tick.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-tick.C:
			}
			if d.held.Load() {
				continue
			}
			if err := task(ctx); err != nil && ctx.Err() == nil {
				d.log.ErrorContext(ctx, "a regular task failed", "task", name, "err", err)
			}
		}
	}()
	d.onStop(func(context.Context) error {
		cancel()
		<-done
		return nil
	})
}
