// Package upgrades shows which roots the director's appliance has, and asks for changes of it. The changes themselves
// need rights that the director does not have: director/appliance makes them, as root, and says how far they are.
package upgrades

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/rootdisk"
	"github.com/director-kaas/kaas/director/signature"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/whole"
)

// Uploads holds archives that have arrived. *imagestore.Store implements it.
type Uploads interface {
	Take(id string) (path string, drop func() error, release func(), err error)
}

// Config is what New needs.
type Config struct {
	Dir     string // of upgrades, on the appliance's data disk; empty on another machine
	Inbox   string // of root, in the director's state directory
	Store   *store.Store
	Uploads Uploads
	Keys    signature.Keyring // that may sign upgrades
	Now     func() time.Time
}

// Service asks for changes of the root. It is safe for concurrent use.
type Service struct{ c Config }

// New returns a service.
func New(c Config) *Service { return &Service{c} }

const opUpgrade = "upgrades.ask"

// State returns which roots there are and how far the last change is. Errors: not_found on a machine that is no
// appliance.
func (s *Service) State(_ context.Context) (rootdisk.State, error) {
	var out rootdisk.State
	if s.c.Dir == "" {
		return out, director.Errorf(director.KindNotFound, opUpgrade, "this director does not run on its appliance").
			WithHint("upgrade it as it was installed")
	}
	text, err := os.ReadFile(filepath.Join(s.c.Dir, rootdisk.StateFile))
	if err == nil {
		err = json.Unmarshal(text, &out)
	}
	if err != nil {
		return out, director.Errorf(
			director.KindInternal, opUpgrade, "the state of the appliance's roots cannot be read: %w", err,
		)
	}
	if out.Packages, err = s.packages(); err != nil {
		return out, err
	}
	if asked, err := os.ReadFile(s.inbox(rootdisk.RequestFile)); err == nil && out.Change.Stage.Ended() {
		out.Change = rootdisk.Change{Stage: rootdisk.Checking} // it was asked for, and has not begun
		if r, err := rootdisk.ParseRequest(asked); err == nil {
			out.Change.Verb, out.Change.Task, out.Change.By = r.Verb, r.Task, r.By
		}
	}
	return out, nil
}

// packages returns how the packages of the running root are; nil if the appliance has not said it.
func (s *Service) packages() (*rootdisk.Packages, error) {
	text, err := os.ReadFile(filepath.Join(s.c.Dir, rootdisk.PackagesFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	out := new(rootdisk.Packages)
	if err == nil {
		err = json.Unmarshal(text, out)
	}
	if err != nil {
		return nil, director.Errorf(
			director.KindInternal, opUpgrade, "what is known of the root's packages cannot be read: %w", err,
		)
	}
	return out, nil
}

// Look returns the root in an uploaded archive, after the same checks that Upgrade makes of it. Errors: invalid for an
// archive that no trusted key signed; conflict for a downgrade, for the root that runs, and while the archive arrives;
// not_found.
func (s *Service) Look(ctx context.Context, upload string) (rootdisk.Root, error) {
	state, err := s.State(ctx)
	if err != nil {
		return rootdisk.Root{}, err
	}
	path, _, release, err := s.c.Uploads.Take(upload)
	if err != nil {
		return rootdisk.Root{}, err
	}
	defer release()
	return s.look(path, state)
}

func (s *Service) look(path string, state rootdisk.State) (rootdisk.Root, error) {
	f, err := os.Open(path)
	if err != nil {
		return rootdisk.Root{}, director.Errorf(director.KindInternal, opUpgrade, "%w", err)
	}
	a, err := rootdisk.Open(f, s.c.Keys)
	if err = errors.Join(err, f.Close()); err != nil {
		return rootdisk.Root{}, err
	}
	return a.Manifest.Root, rootdisk.Newer(state.Running.Root, a.Manifest.Root)
}

func (s *Service) inbox(name string) string { return filepath.Join(s.c.Inbox, name) }

// Upgrade asks for the root in an uploaded archive. What can be known is refused at once. Errors: conflict while
// another change is made, and for a downgrade; invalid for an archive that no trusted key signed; not_found.
func (s *Service) Upgrade(ctx context.Context, upload string, r rootdisk.Request) error {
	r.Verb = rootdisk.VerbUpgrade
	state, err := s.free(ctx)
	if err != nil {
		return err
	}
	path, drop, release, err := s.c.Uploads.Take(upload)
	if err != nil {
		return err
	}
	defer release()
	next, err := s.look(path, state)
	if err != nil {
		return err
	}
	if err := s.handOver(path); err != nil {
		return director.Errorf(director.KindInternal, opUpgrade, "the upgrade cannot be handed over: %w", err)
	}
	if err := s.ask(ctx, r, "Appliance/"+next.Version); err != nil {
		return errors.Join(err, os.Remove(s.inbox(rootdisk.UploadFile)))
	}
	return drop()
}

// handOver puts the archive where root finds it: under another name or, if it arrived on storage that several directors
// share, as a copy.
func (s *Service) handOver(path string) error {
	to := s.inbox(rootdisk.UploadFile)
	if err := os.Remove(to); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	err := os.Link(path, to)
	if !errors.Is(err, unix.EXDEV) {
		return err
	}
	from, err := os.Open(path)
	if err != nil {
		return err
	}
	defer from.Close()
	return whole.FillBy(to+".part", to, 0o600, func(f *os.File) error {
		_, err := io.Copy(f, from)
		return err
	})
}

// Rollback asks for the former root. Errors: conflict if none is kept, or another change is made.
func (s *Service) Rollback(ctx context.Context, r rootdisk.Request) error {
	r.Verb = rootdisk.VerbRollback
	state, err := s.free(ctx)
	if err != nil {
		return err
	}
	if state.Kept == nil {
		return director.Errorf(director.KindConflict, opUpgrade, "no former root is kept").
			WithHint("there is one after an upgrade")
	}
	if state.Kept.Schema < state.Running.Schema && !r.LoseChanges {
		return director.Errorf(
			director.KindConflict, opUpgrade,
			"version %s does not know the database of %s: the data of before the upgrade would be restored, and what "+
				"has "+
				"changed since be lost", state.Kept.Version, state.Running.Version,
		).WithHint("agree to it: directorctl appliance rollback --lose-changes")
	}
	return s.ask(ctx, r, "Appliance/"+state.Kept.Version)
}

// free returns conflict while a change is made.
func (s *Service) free(ctx context.Context) (rootdisk.State, error) {
	state, err := s.State(ctx)
	if err == nil && !state.Change.Stage.Ended() {
		err = director.Errorf(director.KindConflict, opUpgrade, "another change of the root is being made").
			WithHint("see how far it is: directorctl appliance status")
	}
	return state, err
}

// ask puts the request where root finds it.
func (s *Service) ask(ctx context.Context, r rootdisk.Request, object string) error {
	text, err := json.Marshal(r)
	if err != nil {
		return director.Errorf(director.KindInternal, opUpgrade, "%w", err)
	}
	err = s.c.Store.Update(ctx, func(tx *store.Tx) error {
		return tx.Audit(s.c.Now(), r.By, r.Verb, object)
	})
	if err != nil {
		return err
	}
	if err := whole.Write(s.inbox(rootdisk.RequestFile), text, 0o600); err != nil {
		return director.Errorf(director.KindInternal, opUpgrade, "the request cannot be written: %w", err)
	}
	return nil
}
