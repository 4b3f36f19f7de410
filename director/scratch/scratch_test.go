package scratch_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/scratch"
)

func TestOpenRemovesItsOwnAndWhatIsOld(t *testing.T) {
	dir, now := t.TempDir(), time.Now()
	for _, name := range []string{"mine/image-1", "other/image-2", "dead/image-3", "image-4"} {
		if err := os.MkdirAll(filepath.Join(dir, "tmp", name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	long := now.Add(-scratch.Life)
	for _, name := range []string{"dead/image-3", "dead", "image-4"} {
		if err := os.Chtimes(filepath.Join(dir, "tmp", name), long, long); err != nil {
			t.Fatal(err)
		}
	}
	own, err := scratch.Open(dir, "mine", now)
	if err != nil || own != scratch.Place(filepath.Join(dir, "tmp", "mine")) {
		t.Fatalf("Open = %q, %v", own, err)
	}
	if diff := cmp.Diff([]string{"mine", "other", "other/image-2"}, below(t, filepath.Join(dir, "tmp"))); diff != "" {
		t.Errorf("left (-want +got):\n%s", diff)
	}
}

// below returns the names of all that is below the directory.
func below(t *testing.T, dir string) []string {
	t.Helper()
	var out []string
	err := filepath.WalkDir(dir, func(path string, _ os.DirEntry, err error) error {
		if rel, rerr := filepath.Rel(dir, path); err == nil && rerr == nil && rel != "." {
			out = append(out, rel)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func TestHold(t *testing.T) {
	dir := t.TempDir()
	release, err := scratch.Hold(dir, "a")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := scratch.Hold(dir, "a"); director.KindOf(err) != director.KindConflict {
		t.Errorf("a lock that is held: %v, want conflict", err)
	}
	other, err := scratch.Hold(dir, "b")
	if err != nil {
		t.Fatalf("another lock: %v", err)
	}
	other()
	release()
	again, err := scratch.Hold(dir, "a")
	if err != nil {
		t.Fatalf("a lock that was released: %v", err)
	}
	again()
	if left := below(t, filepath.Join(dir, "locks")); len(left) != 0 {
		t.Errorf("files of locks are left: %v", left)
	}
}
