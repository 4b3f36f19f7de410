package appliance

import (
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/rootdisk"
	"github.com/director-kaas/kaas/director/whole"
)

// savedNames are what another version of the director may change of the data disk at its start: the database with the
// journals of SQLite, what belongs to its content, and the setup. All else is added to and never changed.
var savedNames = []string{
	"director/director.db", "director/director.db-wal", "director/director.db-shm", "director/sealing.key",
	"director/sealing.bound", "director/instance", "director/metrics.token", "director/tls", "setup", markFile,
	restoredFile,
}

// restoredFile is in saved data alone, with the time when it was saved: a director that finds it knows that its
// database was restored, and that clusters may have claims which that database does not know.
const restoredFile = "director/" + rootdisk.RestoredFile

// Saved is what is known of saved data.
type Saved struct {
	rootdisk.Root           // that used it
	At            time.Time `json:"at"`
}

// savedFile is written last: data without it is not whole.
const savedFile = "saved.json"

// copyName names data that was saved.
type copyName string

// replaced is the data that was saved when a root disk with a newer database had replaced another one.
const replaced copyName = "replaced"

// leaving names the data that was saved when the root in the slot was left by an upgrade or a rollback.
func leaving(s rootdisk.Slot) copyName { return copyName(s) }

func (p rootDisks) savedDir(n copyName) string { return p.upgrade("data-" + string(n)) }

// saved returns what is known of the saved data; not_found if there is none.
func (p rootDisks) saved(n copyName) (Saved, error) {
	var out Saved
	text, err := os.ReadFile(filepath.Join(p.savedDir(n), savedFile))
	if errors.Is(err, fs.ErrNotExist) {
		return out, director.Errorf(director.KindNotFound, opRoots, "there is no copy of the data: %s", p.savedDir(n))
	}
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		return out, director.Errorf(director.KindInternal, opRoots, "the saved data cannot be read: %w", err)
	}
	return out, nil
}

// save copies what a next root may change, after the root r. The director must not run. It may be killed at any point
// and called again.
func (p rootDisks) save(n copyName, r rootdisk.Root, now time.Time) error {
	dir := p.savedDir(n)
	fail := func(err error) error {
		return director.Errorf(director.KindInternal, opRoots, "the data cannot be saved: %w", err)
	}
	if err := os.RemoveAll(dir); err != nil {
		return fail(err)
	}
	if err := p.roomFor(); err != nil {
		return err
	}
	for _, name := range savedNames {
		if err := copyTree(p.data(name), filepath.Join(dir, name)); err != nil {
			return fail(err)
		}
	}
	if err := p.markSaved(dir, now); err != nil {
		return fail(err)
	}
	text, err := json.Marshal(Saved{Root: r, At: now.UTC()})
	if err != nil {
		return fail(err)
	}
	return writeFile(filepath.Join(dir, savedFile), append(text, '\n'), 0o600)
}

// markSaved writes restoredFile into saved data, with the owner of the director's directory: the director reads it.
func (p rootDisks) markSaved(dir string, now time.Time) error {
	info, err := os.Stat(p.data(filepath.Dir(restoredFile)))
	if err != nil {
		return ignoreMissing(err) // no director has started yet
	}
	path := filepath.Join(dir, restoredFile)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return err
	}
	return whole.Fill(path, 0o600, func(out *os.File) error {
		_, err := out.WriteString(now.UTC().Format(time.RFC3339Nano) + "\n")
		if owner, ok := info.Sys().(*syscall.Stat_t); ok {
			err = errors.Join(err, out.Chown(int(owner.Uid), int(owner.Gid)))
		}
		return err
	})
}

// leftFree is what has to be left on the data disk besides saved data: the director makes no plan with less.
const leftFree = 512 << 20

// roomFor returns exhausted if the data disk has no room for a copy of what is saved.
func (p rootDisks) roomFor() error {
	var need int64
	for _, name := range savedNames {
		err := filepath.WalkDir(p.data(name), func(_ string, e fs.DirEntry, err error) error {
			if err != nil {
				return ignoreMissing(err)
			}
			info, err := e.Info()
			if err == nil {
				need += info.Size()
			}
			return ignoreMissing(err)
		})
		if err != nil {
			return director.Errorf(director.KindInternal, opRoots, "%w", err)
		}
	}
	var disk unix.Statfs_t
	if err := unix.Statfs(p.Data, &disk); err != nil {
		return director.Errorf(director.KindInternal, opRoots, "%w", err)
	}
	if free := int64(disk.Bavail) * disk.Bsize; free < need+leftFree {
		return director.Errorf(
			director.KindExhausted, opRoots, "the data disk has %d MiB left, and a copy of the database needs %d",
			free>>20, (need+leftFree)>>20,
		).WithHint("make it larger, or delete images and bundles that nothing needs")
	}
	return nil
}

// restore restores what was saved. The director must not run. It may be killed at any point and called again.
func (p rootDisks) restore(n copyName) error {
	if _, err := p.saved(n); err != nil {
		return err
	}
	for _, name := range savedNames {
		from := filepath.Join(p.savedDir(n), name)
		err := copyTree(from, p.data(name))
		if _, missing := os.Lstat(from); err == nil && errors.Is(missing, fs.ErrNotExist) {
			err = os.RemoveAll(p.data(name)) // a journal of the database that is replaced
		}
		if err != nil {
			return director.Errorf(director.KindInternal, opRoots, "the saved data cannot be restored: %w", err)
		}
	}
	return nil
}

// copyTree copies a file, or a directory with the files in it, with modes and owners. Each file is there whole or not
// at all. What is not there is no error. It follows no links.
func copyTree(from, to string) error {
	return filepath.WalkDir(from, func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return ignoreMissing(err)
		}
		target := to + strings.TrimPrefix(path, from)
		info, err := e.Info()
		if err != nil {
			return ignoreMissing(err)
		}
		owner, ok := info.Sys().(*syscall.Stat_t)
		switch {
		case !ok || !e.IsDir() && !e.Type().IsRegular():
			return nil
		case e.IsDir():
			if err := os.MkdirAll(target, 0o700); err != nil {
				return err
			}
			return errors.Join(os.Lchown(target, int(owner.Uid), int(owner.Gid)), os.Chmod(target, info.Mode().Perm()))
		}
		if err := os.MkdirAll(filepath.Dir(target), 0o700); err != nil {
			return err
		}
		return copyFile(path, target, info.Mode().Perm(), owner)
	})
}

func copyFile(from, to string, mode fs.FileMode, owner *syscall.Stat_t) error {
	in, err := os.OpenFile(from, os.O_RDONLY|unix.O_NOFOLLOW, 0)
	if err != nil {
		return err
	}
	defer in.Close()
	return whole.Fill(to, mode, func(out *os.File) error {
		_, err := io.Copy(out, in)
		return errors.Join(err, out.Chown(int(owner.Uid), int(owner.Gid)))
	})
}

// settle continues a change of the root after a start: if the former root runs again, its data is restored. It
// comes before anything else reads the data disk. It may be killed at any point and called again.
func (p rootDisks) settle(b Boot, now time.Time) error {
	if err := p.continueReturn(); err != nil {
		return err
	}
	s, err := p.Roots()
	if err != nil || s.Change.Stage.Ended() {
		return err
	}
	c := &s.Change
	end := func(stage rootdisk.Stage, reason, hint string) error {
		c.Stage, c.Ended = stage, now.UTC()
		if c.Reason == "" {
			c.Reason, c.Hint = reason, hint
		}
		return p.saveRoots(s)
	}
	switch {
	case c.Stage != rootdisk.Trying:
		return end(rootdisk.Failed, "it was interrupted; nothing has changed", "begin it again")
	case b.Slot == c.To.Slot:
		if c.Restores && !c.Restored {
			if err := p.restore(leaving(c.To.Slot)); err != nil {
				return err
			}
			c.Restored = true
			if err := p.saveRoots(s); err != nil {
				return err
			}
		}
		if b.Trial {
			return nil // director setup trial ends it
		}
		return end(rootdisk.Done, "", "")
	}
	if err := p.restore(leaving(c.From.Slot)); err != nil {
		return err
	}
	return end(
		rootdisk.Failed, "version "+c.To.Version+" did not become healthy, and said nothing of it",
		"look at the journal of that start: journalctl --list-boots",
	)
}

// onServer reports whether the director's database is on a server: it is not on the data disk then.
func (p rootDisks) onServer() (bool, error) {
	settings, err := p.ownSettings()
	if err != nil {
		return false, err
	}
	text, _ := settings["database"].(string)
	return text != "", nil
}
