package upgrades_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/rootdisk"
	"github.com/director-kaas/kaas/director/rootdisk/rootdisktest"
	"github.com/director-kaas/kaas/director/signature"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/upgrades"
	"github.com/director-kaas/kaas/director/wire"
)

// uploads has one upload, with the id "good".
type uploads struct {
	path    string
	dropped bool
}

func (u *uploads) Take(id string) (string, func() error, func(), error) {
	if id != "good" {
		return "", nil, nil, director.Errorf(director.KindNotFound, "test", "there is no upload %s", id)
	}
	return u.path, func() error { u.dropped = true; return os.Remove(u.path) }, func() {}, nil
}

type fixture struct {
	*upgrades.Service
	dir     string
	uploads *uploads
}

func appliance(t *testing.T, s rootdisk.State, built int) fixture {
	t.Helper()
	dir := t.TempDir()
	u := &uploads{path: filepath.Join(dir, "arrived")}
	public := rootdisktest.Archive(t, u.path, rootdisk.Root{Version: "v2", Built: int64(built), Schema: "0055"})
	keys, wrong := signature.ReadKeys("trustedKeys", []string{public})
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	if err := os.Mkdir(filepath.Join(dir, rootdisk.Inbox), 0o700); err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(s)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, rootdisk.StateFile), text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	db, err := store.Open(t.Context(), filepath.Join(dir, "director.db"), slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	service := upgrades.New(upgrades.Config{
		Dir: dir, Inbox: filepath.Join(dir, rootdisk.Inbox), Store: db, Uploads: u, Keys: keys, Now: time.Now,
	})
	return fixture{service, dir, u}
}

func (f fixture) asked(t *testing.T) rootdisk.Request {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(f.dir, rootdisk.Inbox, rootdisk.RequestFile))
	if err != nil {
		t.Fatal(err)
	}
	r, err := rootdisk.ParseRequest(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

var running = rootdisk.Held{Slot: rootdisk.A, Root: rootdisk.Root{Version: "v1", Built: 1000, Schema: "0054"}}

func TestPackagesOfTheRoot(t *testing.T) {
	t.Parallel()
	f := appliance(t, rootdisk.State{Running: running}, 2000)
	if s, err := f.State(t.Context()); err != nil || s.Packages != nil {
		t.Errorf("before they are known: %+v, %v", s.Packages, err)
	}
	put := func(text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(f.dir, rootdisk.PackagesFile), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	put(`{"of":"2026-05-20T16:28:12Z","list":"2026-05-27T00:00:00Z","missing":[{"package":"openssl","fixed":"3"}]}`)
	s, err := f.State(t.Context())
	if err != nil || s.Packages == nil || s.Packages.Of.IsZero() || len(s.Packages.Missing) != 1 {
		t.Errorf("%+v, %v", s.Packages, err)
	}
	if w := wire.ApplianceOf(s).Packages; w == nil || w.List == nil || w.Missing[0].Package != "openssl" ||
		w.ListOutdated {
		t.Errorf("shown: %+v", w)
	}
	put(`{"of":"2026-05-20T16:28:12Z","list":"2026-05-19T00:00:00Z"}`)
	if s, err = f.State(t.Context()); err != nil || !wire.ApplianceOf(s).Packages.ListOutdated {
		t.Errorf("a list that is older than the packages: %+v, %v", s.Packages, err)
	}
	put(`{"of":`)
	if _, err := f.State(t.Context()); director.KindOf(err) != director.KindInternal {
		t.Errorf("a file that was cut: %v", err)
	}
}

func TestUpgrade(t *testing.T) {
	t.Parallel()
	f := appliance(t, rootdisk.State{Running: running}, 2000)
	if err := f.Upgrade(t.Context(), "none",
		rootdisk.Request{By: "ann"}); director.KindOf(err) != director.KindNotFound {
		t.Errorf("without an upload: %v", err)
	}
	if root, err := f.Look(t.Context(), "good"); err != nil || root.Version != "v2" {
		t.Errorf("%+v, %v", root, err)
	}
	r := rootdisk.Request{By: "ann", Task: "up7", Drain: 7, Within: 300}
	if err := f.Upgrade(t.Context(), "good", r); err != nil {
		t.Fatal(err)
	}
	want := rootdisk.Request{Verb: "upgrade", By: "ann", Task: "up7", Drain: 7, Within: 300}
	if got := f.asked(t); got != want || !f.uploads.dropped {
		t.Errorf("asked %+v, dropped: %v", got, f.uploads.dropped)
	}
	if _, err := os.Stat(filepath.Join(f.dir, rootdisk.Inbox, rootdisk.UploadFile)); err != nil {
		t.Error(err)
	}
	if s, err := f.State(t.Context()); err != nil || s.Change.Stage != rootdisk.Checking || s.Change.Task != "up7" {
		t.Errorf("%+v, %v", s, err)
	}
	err := f.Upgrade(t.Context(), "good", rootdisk.Request{})
	if director.KindOf(err) != director.KindConflict || !strings.Contains(err.Error(), "another change") {
		t.Errorf("a second one: %v", err)
	}
}

// elsewhere returns a new directory on another file system than dir.
func elsewhere(t *testing.T, dir string) string {
	t.Helper()
	var here, there unix.Stat_t
	if err := unix.Stat(dir, &here); err != nil {
		t.Fatal(err)
	}
	for _, parent := range []string{"/dev/shm", "/var/tmp", "."} {
		if err := unix.Stat(parent, &there); err != nil || there.Dev == here.Dev {
			continue
		}
		other, err := os.MkdirTemp(parent, "uploads-")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = os.RemoveAll(other) })
		return other
	}
	t.Fatal("the test needs a second file system")
	return ""
}

// TestUploadOnOtherStorage asks for an upgrade that has arrived on another file system, as in a group of directors.
func TestUploadOnOtherStorage(t *testing.T) {
	t.Parallel()
	f := appliance(t, rootdisk.State{Running: running}, 2000)
	shared := elsewhere(t, f.dir)
	arrived, err := os.ReadFile(f.uploads.path)
	if err != nil {
		t.Fatal(err)
	}
	f.uploads.path = filepath.Join(shared, "data")
	if err := os.WriteFile(f.uploads.path, arrived, 0o600); err != nil {
		t.Fatal(err)
	}
	inbox := filepath.Join(f.dir, rootdisk.Inbox)
	// What a director that was killed has left.
	if err := os.WriteFile(filepath.Join(inbox, rootdisk.UploadFile+".part"), make([]byte, 1<<20), 0o600); err != nil {
		t.Fatal(err)
	}

	if err := f.Upgrade(t.Context(), "good", rootdisk.Request{By: "ann"}); err != nil {
		t.Fatal(err)
	}
	handed, err := os.ReadFile(filepath.Join(inbox, rootdisk.UploadFile))
	if err != nil || !bytes.Equal(handed, arrived) || !f.uploads.dropped {
		t.Errorf("%d bytes of %d, %v; dropped: %v", len(handed), len(arrived), err, f.uploads.dropped)
	}
	if _, err := os.Stat(filepath.Join(inbox, rootdisk.UploadFile+".part")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("a part is left: %v", err)
	}
}

func TestDowngradeIsRefused(t *testing.T) {
	t.Parallel()
	f := appliance(t, rootdisk.State{Running: running}, 500)
	err := f.Upgrade(t.Context(), "good", rootdisk.Request{By: "ann"})
	if director.KindOf(err) != director.KindConflict || !strings.Contains(err.Error(), "downgrade") {
		t.Errorf("got %v", err)
	}
	if _, err := os.Stat(filepath.Join(f.dir, rootdisk.Inbox, rootdisk.RequestFile)); err == nil || f.uploads.dropped {
		t.Error("it was asked for")
	}
}

func TestRollback(t *testing.T) {
	t.Parallel()
	f := appliance(t, rootdisk.State{Running: running}, 2000)
	if err := f.Rollback(t.Context(), rootdisk.Request{}); director.KindOf(err) != director.KindConflict {
		t.Errorf("without a kept root: %v", err)
	}
	older := running
	older.Slot, older.Schema = rootdisk.B, "0053"
	f = appliance(t, rootdisk.State{Running: running, Kept: &older}, 2000)
	err := f.Rollback(t.Context(), rootdisk.Request{By: "ann"})
	if director.KindOf(err) != director.KindConflict || !strings.Contains(director.HintOf(err), "--lose-changes") {
		t.Errorf("with changes that would be lost: %v", err)
	}
	if err := f.Rollback(t.Context(), rootdisk.Request{By: "ann", LoseChanges: true}); err != nil {
		t.Fatal(err)
	}
	if got := f.asked(t); got.Verb != rootdisk.VerbRollback || !got.LoseChanges {
		t.Errorf("asked %+v", got)
	}
}

func TestAnotherMachine(t *testing.T) {
	t.Parallel()
	s := upgrades.New(upgrades.Config{})
	if _, err := s.State(t.Context()); director.KindOf(err) != director.KindNotFound {
		t.Errorf("got %v", err)
	}
}
