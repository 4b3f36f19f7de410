package daemon

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/whole"
)

// seals binds rows that older directors sealed without a binding. The mark that all rows are bound is a file next to
// the key and not a row: someone who can write to the database could remove a row, and the next start would bind forged
// rows.
type seals struct {
	db       *store.Store
	box      *seal.Box
	instance string
	mark     string
	warn     func(ctx context.Context, msg string, args ...any)
}

// sealsEvery is how often a director looks whether the last older peer has gone.
const sealsEvery = time.Minute

// bindSeals binds what an older director has sealed to its rows. From then on rows without a binding are refused. While
// an older director shares the database and seals without a binding, such rows are accepted, and a task waits until it
// is gone.
func (d stateOpener) bindSeals(ctx context.Context, db *store.Store, box *seal.Box, instance string) error {
	s := seals{db: db, box: box, instance: instance, mark: d.path(seal.BoundFile), warn: d.log.WarnContext}
	done, err := s.bind(ctx)
	if err != nil || done {
		return err
	}
	d.log.InfoContext(
		ctx,
		"an older director shares the database: secrets that are not bound to their rows are accepted until it has "+
			"gone",
	)
	run, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		s.wait(run, sealsEvery)
	}()
	d.onStop(func(context.Context) error {
		cancel()
		<-ended
		return nil
	})
	return nil
}

func (s seals) wait(ctx context.Context, every time.Duration) {
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		done, err := s.bind(ctx)
		if done {
			return
		}
		if err != nil && ctx.Err() == nil {
			s.warn(ctx, "secrets could not be bound to their rows", "err", err)
		}
	}
}

// bind returns true once every row is bound and none without a binding is accepted any more.
func (s seals) bind(ctx context.Context) (done bool, err error) {
	if _, err := os.Stat(s.mark); !errors.Is(err, fs.ErrNotExist) {
		return err == nil, err
	}
	s.box.AcceptUnbound(true)
	older, err := s.db.OlderPeers(ctx, s.instance) // asked first: what it writes after the walk would be missed
	if err != nil {
		return false, err
	}
	_, err = s.db.Seals(ctx, func(owner, name string, sealed []byte) []byte {
		bound, err := s.box.Bind(owner, name, sealed)
		if err != nil { // it was of no use before; the one who needs it is told why
			s.warn(ctx, "a secret cannot be bound to its row", "owner", owner, "name", name, "err", err)
		}
		return bound
	})
	if err != nil || older {
		return false, err
	}
	const text = "Every secret in the database is bound to its row; others are refused. See docs/operate/security.md.\n"
	if err := whole.Write(s.mark, []byte(text), 0o600); err != nil {
		return false, director.Errorf(
			director.KindInternal, "daemon.seal", "cannot note that the secrets are bound to their rows: %w", err,
		).
			WithHint("check the space and the permissions of %s", filepath.Dir(s.mark))
	}
	s.box.AcceptUnbound(false)
	return true, nil
}
