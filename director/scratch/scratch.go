// Package scratch gives each of the directors that share a directory a place of its own for what is half done.
package scratch

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/director-kaas/kaas/director"
)

// Life is how long what is half done stays when nothing is added to it: another director may be at work. Nothing that
// the stores do takes so long.
const Life = 24 * time.Hour

// Place is the directory of one owner.
type Place string

// Open returns the owner's place below dir/tmp, empty. What an earlier process of this owner left in it is gone, and so
// is what others left long ago. No two processes may be one owner at a time. An empty owner is a director that shares
// with no other.
func Open(dir, owner string, now time.Time) (Place, error) {
	if owner == "" {
		owner = "alone"
	}
	own := Place(filepath.Join(dir, "tmp", owner))
	if err := os.RemoveAll(string(own)); err != nil {
		return "", err
	}
	if err := own.Sweep(now); err != nil {
		return "", err
	}
	return own, os.MkdirAll(string(own), 0o700)
}

// Sweep removes what other owners left long ago: those that died, and the empty places of those that were idle.
func (p Place) Sweep(now time.Time) error {
	all, owner := filepath.Split(string(p))
	entries, err := os.ReadDir(all)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(all, e.Name())
		if e.Name() == owner || !Old(path, now) {
			continue
		}
		if err := os.RemoveAll(path); err != nil {
			return err
		}
	}
	return nil
}

// Dir returns the place. It makes it again if another owner removed it, because it was empty for long.
func (p Place) Dir() (string, error) { return string(p), os.MkdirAll(string(p), 0o700) }

// Temp makes a new directory in the place, with a name that begins with the prefix.
func (p Place) Temp(prefix string) (string, error) {
	dir, err := p.Dir()
	if err != nil {
		return "", err
	}
	return os.MkdirTemp(dir, prefix)
}

// Old reports whether nothing has changed for Life in the file, or in the entries of the directory.
func Old(path string, now time.Time) bool {
	last := time.Time{}
	names, err := os.ReadDir(path)
	if err != nil {
		names = nil // a file, or gone
	}
	paths := []string{path}
	for _, n := range names {
		paths = append(paths, filepath.Join(path, n.Name()))
	}
	for _, p := range paths {
		if info, err := os.Lstat(p); err == nil && info.ModTime().After(last) {
			last = info.ModTime()
		}
	}
	return now.Sub(last) >= Life
}

// Hold takes the lock of that name below dir/locks, for one holder in all processes and on all machines. It ends with
// release, or with the process. Errors: conflict if someone has it. The caller must know that name is no path.
func Hold(dir, name string) (release func(), err error) {
	const op = "scratch.hold"
	locks := filepath.Join(dir, "locks")
	if err := os.MkdirAll(locks, 0o700); err != nil {
		return nil, director.Errorf(director.KindInternal, op, "%w", err)
	}
	path := filepath.Join(locks, name)
	for {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return nil, director.Errorf(director.KindInternal, op, "%w", err)
		}
		// On NFS, flock is a lock of the file's bytes on the server (flock(2)), which needs a file that can be written.
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		if errors.Is(err, unix.EWOULDBLOCK) {
			_ = f.Close()
			return nil, director.Errorf(director.KindConflict, op, "another request works on this")
		}
		if err != nil {
			return nil, errors.Join(director.Errorf(director.KindInternal, op, "%w", err), f.Close())
		}
		if same(f, path) {
			return func() { _, _ = os.Remove(path), f.Close() }, nil
		}
		_ = f.Close() // its holder removed it meanwhile
	}
}

func same(f *os.File, path string) bool {
	held, err := f.Stat()
	if err != nil {
		return false
	}
	there, err := os.Stat(path)
	return err == nil && os.SameFile(held, there)
}
