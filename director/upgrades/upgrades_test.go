package upgrades_test

import (
	"archive/tar"
	"bytes"
	"encoding/json"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/rootdisk"
	"github.com/director-kaas/kaas/director/signature"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/upgrades"
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

// archive writes an upgrade to version v2, whose root nothing reads, and returns the key that signed it.
func archive(t *testing.T, path string, built int) signature.Keyring {
	t.Helper()
	key, err := signature.Generate()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(map[string]any{ // JSON is YAML
		"apiVersion": "kaas/v1", "kind": "Appliance", "metadata": map[string]any{"name": "v2"},
		"spec": map[string]any{
			"version": "v2", "built": built, "schema": "0055", "arch": "amd64",
			"root": map[string]any{"sha256": strings.Repeat("0", 64), "size": 1},
		},
	})
	if err != nil {
		t.Fatal(err)
	}
	sig, err := key.Sign(text, rootdisk.Subject("v2"))
	if err != nil {
		t.Fatal(err)
	}
	var out bytes.Buffer
	w := tar.NewWriter(&out)
	for i, text := range [][]byte{text, sig, {}} {
		name := []string{rootdisk.ManifestName, rootdisk.ManifestName + signature.Suffix, rootdisk.RootName}[i]
		h := &tar.Header{Name: name, Mode: 0o644, Size: int64(len(text)), Typeflag: tar.TypeReg}
		if err := w.WriteHeader(h); err != nil {
			t.Fatal(err)
		}
		if _, err := w.Write(text); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(path, out.Bytes(), 0o600); err != nil {
		t.Fatal(err)
	}
	keys, wrong := signature.ReadKeys("trustedKeys", []string{key.Public()})
	if len(wrong) > 0 {
		t.Fatal(wrong)
	}
	return keys
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
	keys := archive(t, u.path, built)
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
	return fixture{
		upgrades.New(upgrades.Config{Dir: dir, Inbox: filepath.Join(dir, rootdisk.Inbox), Store: db, Uploads: u, Keys: keys, Now: time.Now}), dir, u,
	}
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

func TestUpgrade(t *testing.T) {
	t.Parallel()
	f := appliance(t, rootdisk.State{Running: running}, 2000)
	if err := f.Upgrade(t.Context(), "none", rootdisk.Request{By: "ann"}); director.KindOf(err) != director.KindNotFound {
		t.Errorf("without an upload: %v", err)
	}
	if err := f.Upgrade(t.Context(), "good", rootdisk.Request{By: "ann", Drain: 7, Within: 300}); err != nil {
		t.Fatal(err)
	}
	want := rootdisk.Request{Verb: "upgrade", By: "ann", Drain: 7, Within: 300}
	if got := f.asked(t); got != want || !f.uploads.dropped {
		t.Errorf("asked %+v, dropped: %v", got, f.uploads.dropped)
	}
	if _, err := os.Stat(filepath.Join(f.dir, rootdisk.Inbox, rootdisk.UploadFile)); err != nil {
		t.Error(err)
	}
	if s, err := f.State(t.Context()); err != nil || s.Change.Stage != rootdisk.Checking {
		t.Errorf("%+v, %v", s, err)
	}
	err := f.Upgrade(t.Context(), "good", rootdisk.Request{})
	if director.KindOf(err) != director.KindConflict || !strings.Contains(err.Error(), "another change") {
		t.Errorf("a second one: %v", err)
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
