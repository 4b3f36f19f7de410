package recovery

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
)

func TestRestoredSaysWhenTheBundleWasMade(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if at, err := Restored(dir); err != nil || !at.IsZero() {
		t.Errorf("a director that was never restored: %s, %v", at, err)
	}
	made := time.Date(2026, 1, 2, 3, 4, 5, 6000, time.UTC)
	u := &Unpacked{
		Manifest: Manifest{Database: Postgres, Made: made}, stateDir: dir,
		dir: filepath.Join(dir, unpackDir),
	}
	for range 2 { // a restore may be cut off, and run again
		if err := u.Place(); err != nil {
			t.Fatal(err)
		}
		if at, err := Restored(dir); err != nil || !at.Equal(made) {
			t.Errorf("it was made at %s, want %s: %v", at, made, err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, restored), []byte("long ago"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Restored(dir); director.KindOf(err) != director.KindInternal || director.HintOf(err) == "" {
		t.Errorf("a file that cannot be read: %v", err)
	}
}
