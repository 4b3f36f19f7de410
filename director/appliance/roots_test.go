package appliance

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/rootdisk"
)

func TestParseBoot(t *testing.T) {
	t.Parallel()
	for line, want := range map[string]Boot{
		"root=PARTUUID=x ro director.slot=a quiet":   {Slot: rootdisk.A},
		"director.slot=b director.trial=300":         {Slot: rootdisk.B, Trial: true, Within: 300},
		"director.slot=b director.trial=":            {Slot: rootdisk.B, Trial: true, Within: rootdisk.UsualWithin},
		"director.slot=b director.trial=1":           {Slot: rootdisk.B, Trial: true, Within: rootdisk.UsualWithin},
		"director.slot=../x director.trials=1 quiet": {Slot: rootdisk.A},
	} {
		if got := ParseBoot(line); got != want {
			t.Errorf("%q: got %+v, want %+v", line, got, want)
		}
	}
}

// TestBlock compares with what images/director/disk.sh writes and GRUB reads: 1024 bytes, the variables first.
func TestBlock(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "grubenv")
	first := "# GRUB Environment Block\nslot=a\ntry=\nwithin=\n"
	if err := os.WriteFile(path, []byte(first+strings.Repeat("#", blockSize-len(first))), 0o600); err != nil {
		t.Fatal(err)
	}
	was, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []loaderBlock{
		{slot: rootdisk.A, try: rootdisk.B, within: 7200},
		{slot: rootdisk.B},
		{slot: rootdisk.B, try: rootdisk.A, within: 60},
	} {
		if err := writeBlock(path, want); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(path)
		if err != nil || len(text) != blockSize || bytes.LastIndexByte(text, '\n') > 512 {
			t.Errorf("%d bytes, %v", len(text), err)
		}
		if got := parseBlock(text); got != want {
			t.Errorf("got %+v, want %+v", got, want)
		}
	}
	if now, err := os.Stat(path); err != nil || !os.SameFile(was, now) {
		t.Errorf("the file was replaced, and GRUB would look elsewhere: %v", err)
	}
	if got := parseBlock([]byte("nonsense\nslot=c\ntry=$(reboot)\n")); got != (loaderBlock{slot: rootdisk.A}) {
		t.Errorf("got %+v", got)
	}
	if err := os.WriteFile(path, make([]byte, blockSize), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := writeBlock(path, loaderBlock{slot: rootdisk.B}); err == nil {
		t.Error("another file was overwritten")
	}
}

func TestLateStart(t *testing.T) {
	t.Parallel()
	f, err := os.Create(filepath.Join(t.TempDir(), "root"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	want := bytes.Repeat([]byte("0123456789abcdef"), 200_000)
	w := &lateStart{to: f}
	for rest := want; len(rest) > 0; {
		n := min(700_001, len(rest))
		if got, err := w.Write(rest[:n]); err != nil || got != n {
			t.Fatalf("%d of %d, %v", got, n, err)
		}
		rest = rest[n:]
	}
	text, err := os.ReadFile(f.Name())
	if err != nil || !bytes.Equal(text[:heldBack], make([]byte, heldBack)) ||
		!bytes.Equal(text[heldBack:], want[heldBack:]) {
		t.Errorf("the beginning was written, or the rest was not: %v", err)
	}
	if !bytes.Equal(w.first, want[:heldBack]) {
		t.Error("the beginning is not kept")
	}
}

// old and next are two roots.
var (
	old  = rootdisk.Held{Slot: rootdisk.A, Root: rootdisk.Root{Version: "v1", Built: 1, Schema: "0054"}}
	next = rootdisk.Held{Slot: rootdisk.B, Root: rootdisk.Root{Version: "v2", Built: 2, Schema: "0055"}}
)

func files(t *testing.T, p Place, content map[string]string) {
	t.Helper()
	for name, text := range content {
		if err := writeFile(p.data(name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func content(t *testing.T, p Place, names ...string) map[string]string {
	t.Helper()
	all := map[string]string{}
	for _, name := range names {
		if text, err := os.ReadFile(p.data(name)); err == nil {
			all[name] = string(text)
		}
	}
	return all
}

// TestSettle goes through the starts that may follow a change, also one that is cut off in its midst.
func TestSettle(t *testing.T) {
	t.Parallel()
	before := map[string]string{"director/director.db": "before", "director/tls/ca.crt": "ca", "setup/setup.json": "{}"}
	after := map[string]string{"director/director.db": "migrated", "director/director.db-wal": "journal"}
	now := time.Unix(1_750_000_000, 0).UTC()
	for name, tt := range map[string]struct {
		change rootdisk.Change
		boot   Boot
		want   rootdisk.Stage
		data   string // of the database afterwards
		reason string
	}{
		"no change": {boot: Boot{Slot: rootdisk.A}, data: "migrated"},
		"an ended change": {
			rootdisk.Change{Stage: rootdisk.Failed},
			Boot{Slot: rootdisk.A},
			rootdisk.Failed,
			"migrated", "",
		},
		"killed while it was written": {
			rootdisk.Change{Stage: rootdisk.Writing},
			Boot{Slot: rootdisk.A},
			rootdisk.Failed, "migrated",
			"it was interrupted",
		},
		"the trial": {
			rootdisk.Change{Stage: rootdisk.Trying},
			Boot{Slot: rootdisk.B, Trial: true},
			rootdisk.Trying,
			"migrated", "",
		},
		"killed after the loader was told": {
			rootdisk.Change{Stage: rootdisk.Trying}, Boot{Slot: rootdisk.B}, rootdisk.Done, "migrated", "",
		},
		"the former root is back": {
			rootdisk.Change{Stage: rootdisk.Trying},
			Boot{Slot: rootdisk.A},
			rootdisk.Failed, "before",
			"said nothing of it",
		},
		"and says why": {
			rootdisk.Change{Stage: rootdisk.Trying, Reason: "no answer"},
			Boot{Slot: rootdisk.A},
			rootdisk.Failed, "before",
			"no answer",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			p := somewhere(t)
			files(t, p, before)
			if err := p.roots().save(leaving(old.Slot), old.Root, now); err != nil {
				t.Fatal(err)
			}
			files(t, p, after)
			tt.change.From, tt.change.To = old, next
			if err := p.roots().saveRoots(rootdisk.State{Running: old, Change: tt.change}); err != nil {
				t.Fatal(err)
			}
			for range 2 { // it may be killed behind it, and comes again
				if err := p.roots().settle(tt.boot, now); err != nil {
					t.Fatal(err)
				}
			}
			s, err := p.Roots()
			if err != nil || s.Change.Stage != tt.want || !strings.Contains(s.Change.Reason, tt.reason) {
				t.Errorf("%+v, %v", s.Change, err)
			}
			want := map[string]string{
				"director/director.db": tt.data, "director/tls/ca.crt": "ca",
				"setup/setup.json": "{}",
			}
			if tt.data == "migrated" {
				want["director/director.db-wal"] = "journal"
			}
			got := content(t, p, "director/director.db", "director/director.db-wal", "director/tls/ca.crt",
				"setup/setup.json")
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// TestRollbackPutsDataBack goes back to a root that does not know the database, and then forward again when that root
// does not become healthy.
func TestRollbackPutsDataBack(t *testing.T) {
	t.Parallel()
	p, now := somewhere(t), time.Unix(1_750_000_000, 0).UTC()
	database := func(want string) {
		t.Helper()
		if got := content(t, p, "director/director.db")["director/director.db"]; got != want {
			t.Errorf("the database is %q, want %q", got, want)
		}
	}
	files(t, p, map[string]string{"director/director.db": "before"})
	owned(t, p.data("director"))
	if err := p.roots().save(leaving(old.Slot), old.Root, now); err != nil {
		t.Fatal(err)
	}
	files(t, p, map[string]string{"director/director.db": "migrated"})
	if err := p.roots().save(leaving(next.Slot), next.Root, now.Add(time.Minute)); err != nil {
		t.Fatal(err)
	}
	c := rootdisk.Change{Verb: rootdisk.VerbRollback, Stage: rootdisk.Trying, From: next, To: old, Restores: true}
	if err := p.roots().saveRoots(rootdisk.State{Running: next, Change: c}); err != nil {
		t.Fatal(err)
	}
	if err := p.roots().settle(Boot{Slot: rootdisk.A, Trial: true}, now); err != nil {
		t.Fatal(err)
	}
	database("before")
	files(t, p, map[string]string{"director/director.db": "before, and used"})
	if err := p.roots().settle(Boot{Slot: rootdisk.A, Trial: true}, now); err != nil { // the trial's director restarts
		t.Fatal(err)
	}
	database("before, and used")
	saved := func() string { return content(t, p, restoredFile)[restoredFile] }
	first := saved()
	ownedBySame(t, p.data("director"), p.data(restoredFile))
	if err := p.roots().settle(Boot{Slot: rootdisk.B}, now); err != nil {
		t.Fatal(err)
	}
	database("migrated")
	// It has to differ, so that the director takes its clusters over after each.
	if first == "" || saved() == first {
		t.Errorf("the marks of restored data are %q and %q", first, saved())
	}
}

// owned gives files to another user, as far as the test may: the director is not root.
func owned(t *testing.T, paths ...string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	for _, path := range paths {
		if err := os.Lchown(path, 901, 901); err != nil {
			t.Fatal(err)
		}
	}
}

// ownedBySame fails unless all files have the owner of the first.
func ownedBySame(t *testing.T, first string, others ...string) {
	t.Helper()
	owner := func(path string) uint32 {
		info, err := os.Lstat(path)
		if err != nil {
			t.Fatal(err)
		}
		return info.Sys().(*syscall.Stat_t).Uid
	}
	for _, path := range others {
		if got, want := owner(path), owner(first); got != want {
			t.Errorf("%s has the owner %d, want %d", path, got, want)
		}
	}
}

func TestSavedDataIsWhole(t *testing.T) {
	t.Parallel()
	p := somewhere(t)
	files(t, p, map[string]string{"director/director.db": "before"})
	if err := p.roots().save(leaving(old.Slot), old.Root, time.Now()); err != nil {
		t.Fatal(err)
	}
	// As if it was cut off.
	if err := os.Remove(filepath.Join(p.roots().savedDir(leaving(rootdisk.A)), savedFile)); err != nil {
		t.Fatal(err)
	}
	if err := p.roots().restore(leaving(rootdisk.A)); director.KindOf(err) != director.KindNotFound {
		t.Errorf("a part of the data was restored: %v", err)
	}
}
