package appliance

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/rootdisk"
)

// databaseFile is the file that a root with a newer schema changes.
const databaseFile = "director/director.db"

// onRoot has the place run a root.
func onRoot(t *testing.T, p Place, r rootdisk.Root) {
	t.Helper()
	text := `{"version": "` + r.Version + `", "built": 1, "schema": "` + r.Schema + `"}`
	if err := writeFile(filepath.Join(p.Root, rootFile), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

// TestKeep says when data is copied before a root changes it.
func TestKeep(t *testing.T) {
	t.Parallel()
	now := time.Unix(1_750_000_000, 0).UTC()
	trying, done := rootdisk.Change{Stage: rootdisk.Trying}, rootdisk.Change{Stage: rootdisk.Done}
	alike := rootdisk.Root{Version: "v3", Schema: old.Schema}
	for name, tt := range map[string]struct {
		last     rootdisk.State
		runs     rootdisk.Root
		settings string
		want     bool
	}{
		"a newer root disk":         {last: rootdisk.State{Running: old}, runs: next.Root, want: true},
		"the same root":             {last: rootdisk.State{Running: old}, runs: old.Root},
		"the same database":         {last: rootdisk.State{Running: old}, runs: alike},
		"an older root disk":        {last: rootdisk.State{Running: next}, runs: old.Root},
		"the first start":           {runs: next.Root},
		"an upgrade that has begun": {last: rootdisk.State{Running: old, Change: trying}, runs: next.Root},
		"after an upgrade in place": {last: rootdisk.State{Running: next, Change: done}, runs: next.Root},
		"a database on a server": {
			last: rootdisk.State{Running: old}, runs: next.Root, settings: "database: postgres://db/director",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := somewhere(t)
			onRoot(t, p, tt.runs)
			files(t, p, map[string]string{databaseFile: "before", "etc/director.yaml": tt.settings})
			if err := p.roots().saveRoots(tt.last); err != nil {
				t.Fatal(err)
			}
			got, err := p.roots().keep(Boot{Slot: rootdisk.A}, now)
			if err != nil || got != tt.want {
				t.Fatalf("copied: %v, %v", got, err)
			}
			saved, err := Former{p}.Saved()
			if tt.want != (err == nil) || tt.want && !cmp.Equal(saved, Saved{Root: old.Root, At: now}) {
				t.Errorf("%+v, %v", saved, err)
			}
			// The database is the new root's now, and a second start does not copy it over the data of before.
			files(t, p, map[string]string{databaseFile: "migrated"})
			if again, err := p.roots().keep(Boot{Slot: rootdisk.A}, now); err != nil || again {
				t.Errorf("copied at the second start: %v, %v", again, err)
			}
			if tt.want {
				kept, err := os.ReadFile(filepath.Join(p.roots().savedDir(replaced), databaseFile))
				if err != nil || string(kept) != "before" {
					t.Errorf("the copy is %q, %v", kept, err)
				}
			}
		})
	}
}

// TestReturn goes back to a former root disk, over a start that comes in the middle of it.
func TestReturn(t *testing.T) {
	t.Parallel()
	p, now := somewhere(t), time.Unix(1_750_000_000, 0).UTC()
	r := p.roots()
	if _, err := r.mayReturn(Boot{Slot: rootdisk.A}); director.KindOf(err) != director.KindNotFound {
		t.Errorf("without a copy: %v", err)
	}
	onRoot(t, p, next.Root)
	files(t, p, map[string]string{databaseFile: "before"})
	if err := r.saveRoots(rootdisk.State{Running: old}); err != nil {
		t.Fatal(err)
	}
	if _, err := r.keep(Boot{Slot: rootdisk.A}, now); err != nil {
		t.Fatal(err)
	}
	files(t, p, map[string]string{databaseFile: "migrated", databaseFile + "-wal": "journal"})

	onRoot(t, p, rootdisk.Root{Version: "v0", Built: 1, Schema: "0053"})
	if _, err := r.mayReturn(Boot{Slot: rootdisk.A}); director.KindOf(err) != director.KindConflict ||
		!strings.Contains(director.HintOf(err), old.Version) {
		t.Errorf("with a root that does not know the copy: %v, %s", err, director.HintOf(err))
	}
	onRoot(t, p, old.Root)
	if _, err := r.mayReturn(Boot{Slot: rootdisk.A}); err != nil {
		t.Error(err)
	}
	if err := writeFile(r.upgrade(returnFile), nil, 0o600); err != nil { // it was killed behind this
		t.Fatal(err)
	}
	for range 2 {
		if err := r.settle(Boot{Slot: rootdisk.A}, now); err != nil {
			t.Fatal(err)
		}
	}
	got := content(t, p, databaseFile, databaseFile+"-wal", upgradeDir+"/"+returnFile)
	if diff := cmp.Diff(map[string]string{databaseFile: "before"}, got); diff != "" {
		t.Error(diff)
	}
	if content(t, p, restoredFile)[restoredFile] == "" {
		t.Error("the director does not learn that its database was restored")
	}
}

// TestKeepNeedsRoom refuses a copy that would fill the data disk, and changes nothing.
func TestKeepNeedsRoom(t *testing.T) {
	t.Parallel()
	p := somewhere(t)
	onRoot(t, p, next.Root)
	files(t, p, map[string]string{databaseFile: "before"})
	if err := os.Truncate(p.data(databaseFile), 1<<40); err != nil { // a file of holes, larger than the disk has room
		t.Fatal(err)
	}
	if err := p.roots().saveRoots(rootdisk.State{Running: old}); err != nil {
		t.Fatal(err)
	}
	_, err := p.roots().keep(Boot{Slot: rootdisk.A}, time.Now())
	if director.KindOf(err) != director.KindExhausted || director.HintOf(err) == "" {
		t.Errorf("%v", err)
	}
	if _, err := (Former{p}).Saved(); director.KindOf(err) != director.KindNotFound {
		t.Errorf("a part of a copy is there: %v", err)
	}
}
