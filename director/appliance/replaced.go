package appliance

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"time"

	"github.com/director-kaas/kaas/director"
)

// Former is the data as the root disk had it that was replaced by the one that runs.
type Former struct{ Place }

// Keep copies the data before a root disk that replaces another one changes the database, and reports whether it did.
// Upgrades in place make copies of their own, and a database on a server is not copied. It comes at the start of the
// VM, before the director runs and before Look. It may be killed at any point and called again. Errors: exhausted if
// the data disk has no room for a copy.
func (f Former) Keep(now time.Time) (bool, error) {
	boot, err := booted()
	if err != nil {
		return false, err
	}
	return f.roots().keep(boot, now)
}

func (p rootDisks) keep(b Boot, now time.Time) (bool, error) {
	s, err := p.Roots()
	if err != nil || s.Running.Version == "" || !s.Change.Stage.Ended() {
		return false, err
	}
	running, err := p.runningRoot(b)
	if err != nil || s.Running.Schema >= running.Schema {
		return false, err
	}
	if server, err := p.onServer(); err != nil || server {
		return false, err
	}
	if err := p.save(replaced, s.Running.Root, now); err != nil {
		return false, err
	}
	// From here on the database may be the new root's: a later start does not copy it over the data of before.
	s.Running = running
	return true, p.saveRoots(s)
}

// Saved returns what is known of the data that Keep copied last; not_found if it has copied none.
func (f Former) Saved() (Saved, error) { return f.roots().saved(replaced) }

// returnFile says that data is being restored by Return, until all of it is.
const returnFile = "return"

// Return restores the data that Keep copied last, for a root disk of before that runs again. What has changed since is
// lost. It may be killed at any point: the next start of the VM, or the next call, completes it. Errors: not_found;
// conflict if the root is older than the data, or the root is being changed.
func (f Former) Return(ctx context.Context) (Saved, error) {
	r := f.roots()
	boot, err := booted()
	if err != nil {
		return Saved{}, err
	}
	saved, err := r.mayReturn(boot)
	if err != nil {
		return saved, err
	}
	if err := StopDirector(ctx); err != nil {
		return saved, err
	}
	if err := writeFile(r.upgrade(returnFile), nil, 0o600); err != nil {
		return saved, err
	}
	if err := r.continueReturn(); err != nil {
		return saved, err
	}
	return saved, StartDirector(ctx)
}

// mayReturn returns the data that can be restored for the root that runs.
func (p rootDisks) mayReturn(b Boot) (Saved, error) {
	saved, err := p.saved(replaced)
	if err != nil {
		return saved, err
	}
	running, err := p.runningRoot(b)
	if err != nil {
		return saved, err
	}
	s, err := p.Roots()
	switch {
	case err != nil:
		return saved, err
	case !s.Change.Stage.Ended():
		return saved, director.Errorf(director.KindConflict, opRoots, "the last change of the root has not ended yet").
			WithHint("wait until it has: directorctl appliance status")
	case saved.Schema > running.Schema:
		return saved, director.Errorf(
			director.KindConflict, opRoots, "the copy is of version %s, whose database version %s does not know",
			saved.Version, running.Version,
		).WithHint("attach the root disk of version %s", saved.Version)
	}
	return saved, nil
}

// continueReturn completes Return, if it has begun.
func (p rootDisks) continueReturn() error {
	file := p.upgrade(returnFile)
	if _, err := os.Lstat(file); err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return director.Errorf(director.KindInternal, opRoots, "%w", err)
	}
	if err := p.restore(replaced); err != nil {
		return err
	}
	if err := os.Remove(file); err != nil {
		return director.Errorf(director.KindInternal, opRoots, "%w", err)
	}
	return nil
}
