package daemon

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/whole"
)

// oneTimeFile holds the first password of admin, below the state directory, until it is changed.
const oneTimeFile = "admin-password"

// others are the permissions that nothing in the state directory gives.
const others = 0o077

// closeState takes from everybody but the director's own user what the state directory and all in it permit to them.
// Someone else's directory is refused: its owner could read what is written into it.
func (d stateOpener) closeState(ctx context.Context) error {
	if err := ownDirectory("the state directory", d.cfg.StateDir); err != nil {
		return err
	}
	closed := 0
	err := filepath.WalkDir(d.cfg.StateDir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.Type()&fs.ModeSymlink != 0 {
			return ignoreGone(err)
		}
		info, err := e.Info()
		if err != nil || info.Mode().Perm()&others == 0 {
			return ignoreGone(err)
		}
		closed++
		return ignoreGone(os.Chmod(path, info.Mode().Perm()&^others))
	})
	if err != nil {
		return director.Errorf(
			director.KindInternal, "daemon.state", "the modes of the state directory cannot be set: %w", err,
		)
	}
	if closed > 0 {
		d.log.WarnContext(
			ctx, "other users could get at files of the state directory; they no longer can", "stateDir",
			d.cfg.StateDir, "files", closed,
		)
	}
	return nil
}

// ownDirectory returns invalid for what is no directory, or belongs to another user.
func ownDirectory(what, path string) error {
	info, err := os.Lstat(path)
	if err == nil && !info.IsDir() {
		err = errors.New("it is no directory")
	}
	if err != nil {
		return director.Errorf(director.KindInvalid, "daemon.state", "%s %s cannot be used: %w", what, path, err)
	}
	if st, ok := info.Sys().(*syscall.Stat_t); ok && int(st.Uid) != os.Geteuid() {
		return director.Errorf(
			director.KindInvalid, "daemon.state", "%s %s belongs to the user %d, and the director runs as %d", what,
			path, st.Uid, os.Geteuid(),
		).WithHint("chown -R %d %s, or start the director as its owner", os.Geteuid(), path)
	}
	return nil
}

func ignoreGone(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}

// ensureOneTime has the first password of admin in its file as long as it must be changed. The password is nowhere
// else: neither on the terminal nor in the journal of the service.
func (d stateOpener) ensureOneTime(ctx context.Context, service *auth.Service, out io.Writer) error {
	path := d.path(oneTimeFile)
	pending, err := service.EnsureOneTime(ctx, func(password director.Secret, expires time.Time) error {
		if err := whole.Write(path, []byte(password.Reveal()+"\n"), 0o600); err != nil {
			return director.Errorf(
				director.KindInternal, "daemon.password", "the first password cannot be written: %w", err,
			)
		}
		_, err := fmt.Fprintf(out, "\nThe first password of user %s is in %s\nIt is good until %s, and has to be "+
			"changed at the first login.\n\n",
			auth.AdminName, path, expires.UTC().Format(time.RFC3339))
		return err
	})
	if err == nil && !pending {
		d.forgetOneTime(ctx) // the director was killed between the change and the removal
	}
	return err
}

// passwordChanged removes the file with the first password as soon as it is not the password of admin any more.
func (d stateOpener) passwordChanged(user string) {
	if user == auth.AdminName {
		d.forgetOneTime(context.Background())
	}
}

func (d stateOpener) forgetOneTime(ctx context.Context) {
	if err := ignoreGone(os.Remove(d.path(oneTimeFile))); err != nil {
		d.log.WarnContext(
			ctx, "the file with the first password cannot be removed; the password in it is no longer good", "err", err,
		)
	}
}
