package backups

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/backup"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/servicetest"
	"github.com/director-kaas/kaas/director/store"
)

// shelf is a service with the target near in a directory.
type shelf struct {
	*Service
	dir string
	now time.Time
}

func open(t testing.TB, retention string) *shelf {
	t.Helper()
	lab := servicetest.Open(t, 0, 0)
	box, err := seal.Open(filepath.Join(t.TempDir(), "key"), true)
	if err != nil {
		t.Fatal(err)
	}
	s := &shelf{dir: filepath.Join(t.TempDir(), "near"), now: time.Unix(1e9, 0)}
	servicetest.Put(t, lab.Store, fmt.Sprintf("apiVersion: kaas/v1\nkind: BackupTarget\nmetadata: {name: near}\n"+
		"spec: {type: directory, directory: %s, retention: %s}\n", s.dir, retention))
	s.Service = New(Config{
		Store: lab.Store, Box: box, Dirs: confine.Dirs{filepath.Dir(s.dir)}, Log: slog.New(slog.DiscardHandler),
		Now: func() time.Time { return s.now },
	})
	return s
}

// cluster makes the document of the cluster demo, and returns its UID.
func (s *shelf) cluster(t *testing.T) string {
	t.Helper()
	servicetest.Put(t, s.c.Store, "apiVersion: kaas/v1\nkind: Cluster\nmetadata: {name: demo}\n"+
		"spec: {release: k8s, provider: lab, image: node, network: net, backup: {targets: [near, far], maxAge: 5h}}\n")
	docs, err := s.c.Store.Documents(t.Context(), model.KindCluster)
	if err != nil || len(docs) != 1 {
		t.Fatal(docs, err)
	}
	return docs[0].UID
}

// content is like a snapshot of etcd: pages, and their digest at the end.
func content(mark byte) []byte {
	pages := bytes.Repeat([]byte{mark}, 64<<10)
	digest := sha256.Sum256(pages)
	return append(pages, digest[:]...)
}

func (s *shelf) save(t *testing.T, id string, mark byte) {
	t.Helper()
	s.saveOf(t, "u1", id, mark)
}

// saveOf makes a backup of the cluster demo of that UID.
func (s *shelf) saveOf(t *testing.T, uid, id string, mark byte) {
	t.Helper()
	_, err := s.Save(t.Context(), backup.Making{
		ID: id, Cluster: "demo", ClusterUID: uid, Target: "near", Kubernetes: "v1.37.1",
	}, func(_ context.Context, w io.Writer) error {
		_, err := w.Write(content(mark))
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	s.now = s.now.Add(time.Hour)
}

func (s *shelf) ids(t *testing.T) (ids, files []string) {
	t.Helper()
	list, err := s.List(t.Context(), "demo")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range list {
		ids = append(ids, e.ID)
	}
	found, err := filepath.Glob(filepath.Join(s.dir, "demo-u1", "*"))
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range found {
		files = append(files, filepath.Base(f))
	}
	return ids, files
}

func TestBackupComesBack(t *testing.T) {
	t.Parallel()
	s := open(t, "{count: 2}")
	for i, id := range []string{"a", "b", "c"} {
		s.save(t, id, byte(i))
	}
	ids, files := s.ids(t)
	if !slices.Equal(ids, []string{"c", "b"}) ||
		!slices.Equal(files, []string{"b.db.zst.age", "b.json", "c.db.zst.age", "c.json"}) {
		t.Errorf("the retention keeps %v in %v", ids, files)
	}
	var out bytes.Buffer
	if _, err := s.Fetch(t.Context(), "c", &out); err != nil || !bytes.Equal(out.Bytes(), content(2)) {
		t.Errorf("%d bytes, %v", out.Len(), err)
	}
	if e, err := s.Verify(t.Context(), "ann", "c"); err != nil || e.Problem != "" || !e.Verified.Equal(s.now) {
		t.Errorf("%+v, %v", e, err)
	}
	for range 2 {
		err := s.Delete(t.Context(), "ann", "c")
		if err != nil && director.KindOf(err) != director.KindNotFound {
			t.Error(err)
		}
	}
	if ids, files := s.ids(t); !slices.Equal(ids, []string{"b"}) || len(files) != 2 {
		t.Errorf("%v in %v", ids, files)
	}
}

// A backup that Save has left in the target is found by a director that does not know of it, unless it is damaged, or
// was made by another plan.
func TestStoredBackupIsFound(t *testing.T) {
	t.Parallel()
	s := open(t, "{count: 9}")
	uid := s.cluster(t)
	of := func(id, plan string) backup.Making {
		return backup.Making{ID: id, Cluster: "demo", ClusterUID: uid, Target: "near", Plan: plan}
	}
	wants := func(kind director.Kind, m backup.Making) {
		t.Helper()
		if _, err := s.Stored(t.Context(), m); director.KindOf(err) != kind {
			t.Errorf("%s of the plan %q: %v", m.ID, m.Plan, err)
		}
	}
	wants(director.KindNotFound, of("a", ""))
	s.saveOf(t, uid, "a", 1)
	if err := s.c.Store.Update(t.Context(), func(tx *store.Tx) error { return tx.ForgetBackup("a") }); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if m, err := s.Stored(t.Context(), of("a", "")); err != nil || m.ID != "a" {
			t.Errorf("%+v, %v", m, err)
		}
		if list, err := s.List(t.Context(), "demo"); err != nil || len(list) != 1 || !list[0].Verified.Equal(s.now) {
			t.Errorf("the list has %+v, %v", list, err)
		}
	}
	wants(director.KindInvalid, of("a", "another"))
	archive := filepath.Join(s.dir, "demo-"+uid, "a.db.zst.age")
	text, err := os.ReadFile(archive)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/2] ^= 1
	if err := os.WriteFile(archive, text, 0o600); err != nil {
		t.Fatal(err)
	}
	wants(director.KindInvalid, of("a", ""))
}

// A director that was restored from an older bundle knows only what was made before it.
func TestRereadFindsWhatTheListHasNot(t *testing.T) {
	t.Parallel()
	s := open(t, "{count: 9}")
	uid := s.cluster(t)
	for i, id := range []string{"a", "b", "c", "d"} {
		s.saveOf(t, uid, id, byte(i))
	}
	dir := filepath.Join(s.dir, "demo-"+uid)
	if err := errors.Join(
		s.c.Store.Update(t.Context(), func(tx *store.Tx) error {
			return errors.Join(tx.ForgetBackup("b"), tx.ForgetBackup("c"), tx.ForgetBackup("d"))
		}),
		os.Remove(filepath.Join(dir, "a.json")),
		os.Rename(filepath.Join(dir, "c.json"), filepath.Join(dir, "moved.json")),
		os.WriteFile(filepath.Join(dir, "d.json"), []byte(`{"manifest": {"format": 1}, "proof": ""}`), 0o600),
		os.WriteFile(filepath.Join(dir, "notes.txt"), []byte("of a person"), 0o600),
	); err != nil {
		t.Fatal(err)
	}
	got, err := s.Reread(t.Context(), "ann", "near")
	if err != nil {
		t.Fatal(err)
	}
	var refused []string
	for _, r := range got.Refused {
		refused = append(refused, filepath.Base(r.File))
	}
	if got.Found != 1 || !slices.Equal(got.Added, []string{"b"}) || !slices.Equal(got.Missing, []string{"a"}) ||
		!slices.Equal(refused, []string{"d.json", "moved.json"}) {
		t.Errorf("%+v", got)
	}
	if ids, _ := s.ids(t); !slices.Equal(ids, []string{"b", "a"}) {
		t.Errorf("the list has %v", ids)
	}
	if e, err := s.Get(t.Context(), "a"); err != nil || e.Problem == "" {
		t.Errorf("what is gone is listed as %+v, %v", e, err)
	}
	if e, err := s.Verify(t.Context(), "ann", "b"); err != nil || e.Problem != "" {
		t.Errorf("what was found is %+v, %v", e, err)
	}
	again, err := s.Reread(t.Context(), "ann", "near")
	if err != nil || len(again.Added) != 0 || again.Found != 1 {
		t.Errorf("a second look adds %+v, %v", again, err)
	}
	if _, err := s.Reread(t.Context(), "ann", "far"); director.KindOf(err) != director.KindNotFound {
		t.Errorf("an unknown target is %v", err)
	}
}

// The target that is furthest behind makes a cluster late, and a new cluster has as much time for its first backup.
func TestLateBackups(t *testing.T) {
	t.Parallel()
	s := open(t, "{count: 9}")
	uid := s.cluster(t)
	servicetest.Put(t, s.c.Store, fmt.Sprintf("apiVersion: kaas/v1\nkind: BackupTarget\nmetadata: {name: far}\n"+
		"spec: {type: directory, directory: %s-far}\n", s.dir))
	s.c.Dirs = append(s.c.Dirs, confine.Dirs{s.dir + "-far"}...)
	want := func(when string, installed, late bool) {
		t.Helper()
		ages, err := s.Ages(t.Context())
		if err != nil || (len(ages) == 1) != installed {
			t.Fatalf("%s: %+v, %v", when, ages, err)
		}
		if installed && ages[0].Late != late {
			t.Errorf("%s: late is %t", when, ages[0].Late)
		}
	}
	save := func(id, target string) {
		t.Helper()
		if _, err := s.Save(t.Context(), backup.Making{
			ID: id, Cluster: "demo", ClusterUID: uid, Target: target,
		}, func(_ context.Context, w io.Writer) error {
			_, err := w.Write(content(1))
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	want("before it is installed", false, false)
	docs, err := s.c.Store.Documents(t.Context(), model.KindCluster)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.c.Store.Update(t.Context(), func(tx *store.Tx) error {
		return tx.PutInstalled(store.Installed{UID: uid, Name: "demo", Document: docs[0].Document, At: s.now})
	}); err != nil {
		t.Fatal(err)
	}
	want("as it is installed", true, false)
	s.now = s.now.Add(6 * time.Hour)
	want("without a first backup", true, true)
	save("a", "near")
	want("with a backup in one of two targets", true, true)
	save("b", "far")
	want("with a backup in both", true, false)
	s.now = s.now.Add(6 * time.Hour)
	save("c", "near")
	want("when one is behind", true, true)
	if due, err := s.Due(t.Context(), ""); err != nil || !slices.Equal(due, []string{"demo"}) {
		t.Errorf("%v, %v", due, err)
	}
	if _, err := s.Due(t.Context(), "other"); director.KindOf(err) != director.KindConflict {
		t.Errorf("err = %v", err)
	}
}

// A target without space says so, keeps the backups that it has, and has no half of another.
func TestFullTarget(t *testing.T) {
	t.Parallel()
	s := open(t, "{count: 9}")
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("none", s.dir, "tmpfs", 0, "size=256k"); err != nil {
		t.Fatalf("a file system cannot be mounted, which needs root as all of make test does: %v", err)
	}
	t.Cleanup(func() { _ = unix.Unmount(s.dir, 0) })
	s.save(t, "a", 1)
	_, err := s.Save(t.Context(), backup.Making{
		ID: "b", Cluster: "demo", ClusterUID: "u1", Target: "near", Kubernetes: "v1.37.1",
	}, func(_ context.Context, w io.Writer) error {
		_, err := io.CopyN(w, rand.Reader, 1<<20) // what cannot be compressed
		return err
	})
	if director.KindOf(err) != director.KindExhausted {
		t.Errorf("%s: %v", director.KindOf(err), err)
	}
	if ids, files := s.ids(t); !slices.Equal(ids, []string{"a"}) ||
		!slices.Equal(files, []string{"a.db.zst.age", "a.json"}) {
		t.Errorf("%v in %v", ids, files)
	}
	if e, err := s.Verify(t.Context(), "ann", "a"); err != nil || e.Problem != "" {
		t.Errorf("the backup from before is %+v, %v", e, err)
	}
}

// What was changed in the target is refused, whoever asks for it.
func TestChangedBackupIsRefused(t *testing.T) {
	t.Parallel()
	for name, change := range map[string]func(dir string) error{
		"a flipped byte": func(dir string) error {
			file := filepath.Join(dir, "a.db.zst.age")
			text, err := os.ReadFile(file)
			text[len(text)/2] ^= 1
			return errors.Join(err, os.WriteFile(file, text, 0o600))
		},
		"no archive": func(dir string) error { return os.Remove(filepath.Join(dir, "a.db.zst.age")) },
		"another backup in its place": func(dir string) error {
			return errors.Join(
				os.Rename(filepath.Join(dir, "b.db.zst.age"), filepath.Join(dir, "a.db.zst.age")),
				os.Rename(filepath.Join(dir, "b.json"), filepath.Join(dir, "a.json")),
			)
		},
	} {
		s := open(t, "{count: 5}")
		s.save(t, "a", 1)
		s.save(t, "b", 2)
		if err := change(filepath.Join(s.dir, "demo-u1")); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Fetch(t.Context(), "a", io.Discard); err == nil {
			t.Errorf("%s: it is handed out", name)
		}
		if e, err := s.Verify(t.Context(), "ann", "a"); err != nil || e.Problem == "" {
			t.Errorf("%s: %+v, %v", name, e, err)
		}
	}
}

// A snapshot that does not arrive whole is no backup, and leaves nothing.
func TestHalfASnapshotIsNoBackup(t *testing.T) {
	t.Parallel()
	s := open(t, "{count: 5}")
	away := errors.New("the master is away")
	for name, read := range map[string]func(context.Context, io.Writer) error{
		"cut": func(_ context.Context, w io.Writer) error {
			_, err := w.Write(content(1)[:70<<8])
			return err
		},
		"away": func(_ context.Context, w io.Writer) error {
			_, err := w.Write(content(1)[:5000])
			return errors.Join(err, away)
		},
	} {
		_, err := s.Save(t.Context(), backup.Making{ID: "a", Cluster: "demo", ClusterUID: "u1", Target: "near"}, read)
		if err == nil || name == "away" && !errors.Is(err, away) {
			t.Errorf("%s: %v", name, err)
		}
		if ids, files := s.ids(t); len(ids)+len(files) > 0 {
			t.Errorf("%s: left are %v and %v", name, ids, files)
		}
	}
}
