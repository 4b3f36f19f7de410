package daemon

import (
	"context"
	"errors"
	"os"
	"syscall"
	"time"

	"github.com/director-kaas/kaas/director"
)

// lockState makes the state directory ours: two directors on one directory would run everything twice.
func (d stateOpener) lockState(ctx context.Context) error {
	if err := os.MkdirAll(d.cfg.StateDir, 0o700); err != nil {
		return director.Errorf(director.KindInternal, "daemon.state", "the state directory cannot be made: %w", err)
	}
	f, err := os.OpenFile(d.path("lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return director.Errorf(director.KindInternal, "daemon.state", "the state directory cannot be locked: %w", err)
	}
	if err := d.flock(ctx, f); err != nil {
		return errors.Join(director.Errorf(
			director.KindConflict, "daemon.state", "another director runs on %s", d.cfg.StateDir,
		).
			WithHint("stop it, or give this one a stateDir of its own"), f.Close())
	}
	d.onStop(func(context.Context) error { return f.Close() }) // the kernel drops the lock with it
	if err := d.closeState(ctx); err != nil {
		return err
	}
	return d.markState()
}

// flock takes the lock, and waits a little for it: a director that was killed while it started a process leaves the
// lock to that process until it has become the other program.
func (d stateOpener) flock(ctx context.Context, f *os.File) error {
	const patience, pause = 2 * time.Second, 20 * time.Millisecond
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	tick := time.NewTicker(pause)
	defer tick.Stop()
	for {
		err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			return nil
		}
		select {
		case <-ctx.Done():
			return err
		case <-tick.C:
		}
	}
}
