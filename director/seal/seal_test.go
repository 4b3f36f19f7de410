package seal

import (
	"bytes"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/director-kaas/kaas/director"
)

func TestSealAndUnseal(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "keys", "sealing.key")
	box, err := Open(path, true)
	if err != nil {
		t.Fatal(err)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
	for _, plain := range [][]byte{nil, []byte("a canary"), bytes.Repeat([]byte("long "), 50_000)} {
		sealed, err := box.Seal("o", "n", plain)
		if err != nil {
			t.Fatal(err)
		}
		if len(plain) > 0 && bytes.Contains(sealed, plain[:5]) {
			t.Error("the plain text is visible")
		}
		again, err := Open(path, false) // as after a restart
		if err != nil {
			t.Fatal(err)
		}
		got, err := again.Unseal("o", "n", sealed)
		if err != nil || !bytes.Equal(got, plain) {
			t.Errorf("%d bytes come back as %d, %v", len(plain), len(got), err)
		}
	}
}

func TestUnsealRefuses(t *testing.T) {
	t.Parallel()
	box, err := Open(filepath.Join(t.TempDir(), "key"), true)
	if err != nil {
		t.Fatal(err)
	}
	other, err := Open(filepath.Join(t.TempDir(), "key"), true)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := box.Seal("o", "n", []byte("a canary"))
	if err != nil {
		t.Fatal(err)
	}
	flipped := bytes.Clone(sealed)
	flipped[len(flipped)-1] ^= 1
	large, err := box.Seal("o", "n", bytes.Repeat([]byte("long "), 50_000))
	if err != nil {
		t.Fatal(err)
	}
	large[len(large)/2] ^= 1
	for _, tc := range []struct {
		name string
		box  *Box
		in   []byte
		hint string
	}{
		{"another key", other, sealed, "sealing key of this database"},
		{"a bit flipped", box, flipped, "backup"},
		{"a bit flipped in the middle of many", box, large, "backup"},
		{"cut short", box, sealed[:len(sealed)-5], "backup"},
		{"empty", box, nil, "backup"},
		{"never sealed", box, []byte("plain"), "backup"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := tc.box.Unseal("o", "n", tc.in)
			if director.KindOf(err) != director.KindInternal || !strings.Contains(director.HintOf(err), tc.hint) {
				t.Errorf("got %v (hint %q)", err, director.HintOf(err))
			}
		})
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	file := func(name, text string, mode os.FileMode) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte(text), mode); err != nil {
			t.Fatal(err)
		}
		return path
	}
	for _, tc := range []struct {
		name string
		path string
		kind director.Kind
	}{
		{"missing", filepath.Join(dir, "missing"), director.KindNotFound},
		{"readable by others", file("open", "AGE-SECRET-KEY-1CANARY", 0o644), director.KindForbidden},
		{"no key", file("text", "AGE-SECRET-KEY-1CANARY\n", 0o600), director.KindInvalid},
		{"empty", file("empty", "", 0o600), director.KindInvalid},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			_, err := Open(tc.path, false)
			if director.KindOf(err) != tc.kind || director.HintOf(err) == "" {
				t.Errorf("got %v (hint %q), want %s", err, director.HintOf(err), tc.kind)
			}
			if err != nil && strings.Contains(err.Error()+director.HintOf(err), "CANARY") {
				t.Error("the error quotes the key")
			}
		})
	}
	// A damaged key is never replaced, also where a new one may be made.
	if _, err := Open(filepath.Join(dir, "text"), true); director.KindOf(err) != director.KindInvalid {
		t.Errorf("damaged and create: %v", err)
	}
}

func TestManyCreateOneKey(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "key")
	publics := make([]string, 8)
	var wg sync.WaitGroup
	for i := range publics {
		wg.Go(func() {
			box, err := Open(path, true)
			if err != nil {
				t.Error(err)
				return
			}
			publics[i] = box.Public()
		})
	}
	wg.Wait()
	for _, p := range publics {
		if p != publics[0] {
			t.Fatalf("two keys: %v", publics)
		}
	}
	if entries, err := os.ReadDir(dir); err != nil || len(entries) != 1 {
		t.Errorf("left behind: %v, %v", entries, err)
	}
}

func TestOpenInADirectoryThatCannotBe(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	_, err := Open(filepath.Join(file, "key"), true)
	if e, ok := errors.AsType[*director.Error](err); !ok || e.Kind != director.KindInternal || e.Hint == "" {
		t.Errorf("got %v", err)
	}
}

// The package comment promises that the age tool opens a sealed value.
func TestAgeToolUnseals(t *testing.T) {
	t.Parallel()
	age, err := exec.LookPath("age")
	if err != nil {
		t.Skip("age is not installed")
	}
	dir := t.TempDir()
	box, err := Open(filepath.Join(dir, "key"), true)
	if err != nil {
		t.Fatal(err)
	}
	sealed, err := box.Seal("o", "n", []byte("a canary"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.CommandContext(t.Context(), age, "-d", "-i", filepath.Join(dir, "key"))
	cmd.Stdin = bytes.NewReader(sealed)
	if out, err := cmd.Output(); err != nil || string(out) != "a canary" {
		t.Errorf("got %q, %v", out, err)
	}
}
