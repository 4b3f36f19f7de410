package backups

import (
	"bytes"
	"context"
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

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/backup"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/servicetest"
)

// shelf is a service with the target near in a directory.
type shelf struct {
	*Service
	dir string
	now time.Time
}

func open(t *testing.T, retention string) *shelf {
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

// content is like a snapshot of etcd: pages, and their digest at the end.
func content(mark byte) []byte {
	pages := bytes.Repeat([]byte{mark}, 64<<10)
	digest := sha256.Sum256(pages)
	return append(pages, digest[:]...)
}

func (s *shelf) save(t *testing.T, id string, mark byte) {
	t.Helper()
	_, err := s.Save(t.Context(), backup.Making{
		ID: id, Cluster: "demo", ClusterUID: "u1", Target: "near", Kubernetes: "v1.37.1",
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
