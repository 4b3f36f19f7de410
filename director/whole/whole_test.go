package whole

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

// want fails the test unless the directory has this file with this content and mode, and nothing else.
func want(t *testing.T, path, text string, mode fs.FileMode) {
	t.Helper()
	got, err := os.ReadFile(path)
	if err != nil || string(got) != text {
		t.Errorf("%q, %v; want %q", got, err, text)
	}
	if info, err := os.Stat(path); err != nil || info.Mode() != mode {
		t.Errorf("mode %v, %v; want %v", info.Mode(), err, mode)
	}
	if all, err := os.ReadDir(filepath.Dir(path)); err != nil || len(all) != 1 {
		t.Errorf("%v, %v; want only the file", all, err)
	}
}

func TestWrite(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	for _, c := range []struct {
		text string
		mode fs.FileMode
	}{{"first", 0o600}, {"second", 0o644}, {"", 0o640}} {
		if err := Write(path, []byte(c.text), c.mode); err != nil {
			t.Fatal(err)
		}
		want(t, path, c.text, c.mode)
	}
}

func TestWriteByAnotherDirectory(t *testing.T) {
	t.Parallel()
	path, other := filepath.Join(t.TempDir(), "file"), t.TempDir()
	if err := WriteBy(other, path, []byte("text"), 0o600); err != nil {
		t.Fatal(err)
	}
	want(t, path, "text", 0o600)
	if left, err := os.ReadDir(other); err != nil || len(left) != 0 {
		t.Errorf("%v, %v are left", left, err)
	}
	if err := WriteBy(filepath.Join(other, "none"), path, nil, 0o600); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v", err)
	}
	want(t, path, "text", 0o600)
}

func TestFillIsPrivateUntilItIsWhole(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	err := Fill(path, 0o644, func(f *os.File) error {
		if info, err := f.Stat(); err != nil || info.Mode() != 0o600 {
			t.Errorf("%v, %v", info.Mode(), err)
		}
		if _, err := os.Stat(path); !errors.Is(err, fs.ErrNotExist) {
			t.Errorf("the file is there before it is whole: %v", err)
		}
		_, err := io.WriteString(f, "text")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want(t, path, "text", 0o644)
}

func TestFailureLeavesTheFormerFile(t *testing.T) {
	t.Parallel()
	path, broken := filepath.Join(t.TempDir(), "file"), errors.New("broken")
	if err := Write(path, []byte("former"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := Fill(path, 0o644, func(f *os.File) error {
		_, err := io.WriteString(f, "half")
		return errors.Join(err, broken)
	})
	if !errors.Is(err, broken) {
		t.Errorf("%v", err)
	}
	want(t, path, "former", 0o600)

	dir := filepath.Join(t.TempDir(), "directory")
	if err := os.MkdirAll(filepath.Join(dir, "full"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := Write(dir, []byte("text"), 0o600); err == nil {
		t.Error("a directory was replaced")
	}
	if left, err := filepath.Glob(filepath.Join(filepath.Dir(dir), "*new-*")); err != nil || len(left) != 0 {
		t.Errorf("%v, %v are left", left, err)
	}
}

func TestAddReplacesNothing(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	if err := Add(path, []byte("first"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := Add(path, []byte("second"), 0o644); !errors.Is(err, fs.ErrExist) {
		t.Errorf("%v", err)
	}
	want(t, path, "first", 0o600)
}

func TestFillByWritesOverWhatIsLeft(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path+".part", []byte("much more than the whole file"), 0o600); err != nil {
		t.Fatal(err)
	}
	err := FillBy(path+".part", path, 0o640, func(f *os.File) error {
		_, err := io.WriteString(f, "text")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	want(t, path, "text", 0o640)
}
