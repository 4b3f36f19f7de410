package daemon

import (
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/director-kaas/kaas/director"
)

func TestPlaysLieInTheRunDirectory(t *testing.T) {
	t.Parallel()
	shared := t.TempDir()
	for range 2 { // directors that were told the same directory
		c := testConfig(t)
		c.RunDir = shared
		if _, err := start(t, c, io.Discard); err != nil {
			t.Fatal(err)
		}
		if _, err := os.Stat(filepath.Join(c.StateDir, "ansible")); err == nil {
			t.Error("the state directory has a place for plays too")
		}
	}
	made, err := filepath.Glob(filepath.Join(shared, "plays-*"))
	if err != nil || len(made) != 2 {
		t.Fatalf("%v, %v: want one of each director", made, err)
	}
	for _, dir := range made {
		if info, err := os.Lstat(dir); err != nil || info.Mode().Perm() != 0o700 {
			t.Errorf("%s is open to others: %v, %v", dir, info.Mode(), err)
		}
	}
}

// Secrets of plays would go wherever the first one there wants them.
func TestAnotherRunDirectoryIsRefused(t *testing.T) {
	t.Parallel()
	c := testConfig(t)
	c.RunDir = t.TempDir()
	d := &Daemon{cfg: c}
	work := d.workDir("")
	if err := os.Symlink(t.TempDir(), work); err != nil {
		t.Fatal(err)
	}
	if _, err := start(t, c, io.Discard); director.KindOf(err) != director.KindInvalid {
		t.Errorf("a link: %v, want invalid", err)
	}
	if os.Geteuid() != 0 {
		return // no one else can be the owner
	}
	if err := os.Remove(work); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(work, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(work, 1, 1); err != nil {
		t.Fatal(err)
	}
	if _, err := start(t, c, io.Discard); director.KindOf(err) != director.KindInvalid {
		t.Errorf("another user's: %v, want invalid", err)
	}
}
