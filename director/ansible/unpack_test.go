package ansible_test

import (
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/fstest"

	"github.com/director-kaas/kaas/director/ansible"
)

func TestUnpack(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "trees")
	tree := fstest.MapFS{
		"install/prepare.yml":         {Data: []byte("- hosts: all\n")},
		"roles/x/tasks/main.yml":      {Data: []byte("[]\n")},
		"library/__pycache__/m.pyc":   {Data: []byte("compiled")},
		"roles/x/files/.hidden empty": {},
	}
	hash, path, err := ansible.Unpack(tree, dir)
	if err != nil {
		t.Fatal(err)
	}
	if path != filepath.Join(dir, hash) {
		t.Errorf("path %s", path)
	}
	read := func(path string) string {
		t.Helper()
		data, err := os.ReadFile(path)
		if err != nil {
			t.Error(err)
		}
		return string(data)
	}
	if read(filepath.Join(path, "install/prepare.yml")) != "- hosts: all\n" ||
		read(filepath.Join(path, "roles/x/files/.hidden empty")) != "" {
		t.Error("wrong content")
	}
	if _, err := os.Stat(filepath.Join(path, "library", "__pycache__")); err == nil {
		t.Error("a cache was unpacked")
	}

	// Again, by many at once, and with what a run by hand leaves: nothing moves.
	write(t, filepath.Join(path, "library", "__pycache__", "x.pyc"), "by hand")
	before, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if h, p, err := ansible.Unpack(tree, dir); err != nil || h != hash || p != path {
				t.Errorf("again: %s %s %v", h, p, err)
			}
		})
	}
	all.Wait()
	if after, err := os.Stat(path); err != nil || !os.SameFile(before, after) {
		t.Errorf("the tree was replaced: %v", err)
	}

	// A damaged copy is replaced.
	write(t, filepath.Join(path, "install/prepare.yml"), "")
	if _, _, err := ansible.Unpack(
		tree, dir,
	); err != nil || read(filepath.Join(path, "install/prepare.yml")) != "- hosts: all\n" {
		t.Errorf("damaged: %v", err)
	}

	// Another tree lies beside the first; a name counts as much as a content.
	tree["install/other.yml"] = tree["install/prepare.yml"]
	delete(tree, "install/prepare.yml")
	if h, p, err := ansible.Unpack(tree, dir); err != nil || h == hash || p == path {
		t.Errorf("changed: %s %s %v", h, p, err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 2 {
		t.Errorf("in %s: %v %v", dir, entries, err)
	}
}

func TestUnpackByManyAtOnce(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	tree := fstest.MapFS{"a/b.yml": {Data: []byte("x")}, "c.yml": {Data: []byte("y")}}
	var all sync.WaitGroup
	for range 8 {
		all.Go(func() {
			if _, path, err := ansible.Unpack(tree, dir); err != nil {
				t.Error(err)
			} else if data, err := os.ReadFile(filepath.Join(path, "a", "b.yml")); string(data) != "x" {
				t.Error(err)
			}
		})
	}
	all.Wait()
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left %v %v", entries, err)
	}
}

func TestUnpackRefusesLinks(t *testing.T) {
	t.Parallel()
	tree := fstest.MapFS{"link": {Data: []byte("/etc/passwd"), Mode: fs.ModeSymlink}}
	if _, _, err := ansible.Unpack(tree, t.TempDir()); err == nil {
		t.Error("no error")
	}
}
