package ansible

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/director-kaas/kaas/director"
)

// Unpack makes the tree of playbooks exist as a directory below dir, named after its content, and returns the hash and
// the directory's absolute path. A plan keeps the hash, so that another version of the director, which unpacks its own
// tree, does not change an unfinished plan.
//
// It is idempotent, safe to call from several processes at once and atomic: a directory with the name is complete. A
// copy that was changed, or that a crash of the machine left truncated, is replaced. Python's caches (__pycache__) are
// left out and do not count; all else must be regular files and directories.
func Unpack(tree fs.FS, dir string) (hash, path string, err error) {
	const op = "ansible.unpack"
	hash, err = hashTree(tree)
	if err != nil {
		return "", "", director.Errorf(director.KindInternal, op, "the playbooks cannot be read: %w", err)
	}
	dir, err = filepath.Abs(dir)
	if err != nil {
		return "", "", director.Errorf(director.KindInternal, op, "no absolute path for %s: %w", dir, err)
	}
	path = filepath.Join(dir, hash)
	if intact(path, hash) {
		return hash, path, nil
	}
	unpack := func() error {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		tmp, err := os.MkdirTemp(dir, ".new-")
		if err != nil {
			return err
		}
		defer func() { _ = os.RemoveAll(tmp) }() // empty by then, unless it failed
		fresh := filepath.Join(tmp, "tree")
		if err := copyTree(tree, fresh); err != nil {
			return err
		}
		// Another process may put the same tree there at any moment: then its copy is as good.
		for range 3 {
			if err = os.Rename(fresh, path); err == nil || intact(path, hash) {
				return nil
			}
			if err := os.Rename(path, filepath.Join(tmp, "damaged")); err != nil && !os.IsNotExist(err) {
				return err
			}
		}
		return err
	}
	if err := unpack(); err != nil {
		return "", "", director.Errorf(
			director.KindInternal, op, "the playbooks cannot be unpacked into %s: %w", dir, err,
		).
			WithHint("check that %s is writable and has room", dir)
	}
	return hash, path, nil
}

func intact(path, hash string) bool {
	if info, err := os.Lstat(path); err != nil || !info.IsDir() {
		return false
	}
	got, err := hashTree(os.DirFS(path))
	return err == nil && got == hash
}

// hashTree hashes names and contents in lexical order. Modes do not count: embedded files have none worth keeping.
func hashTree(tree fs.FS) (string, error) {
	sum := sha256.New()
	err := fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return skipCaches(d)
		}
		if !d.Type().IsRegular() {
			return fmt.Errorf("%s is neither a file nor a directory", name)
		}
		f, err := tree.Open(name)
		if err != nil {
			return err
		}
		defer f.Close()
		one := sha256.New()
		if _, err := io.Copy(one, f); err != nil {
			return err
		}
		_, err = fmt.Fprintf(sum, "%x  %s\n", one.Sum(nil), strings.ReplaceAll(name, "\n", `\n`))
		return err
	})
	if err != nil {
		return "", err
	}
	return hex.EncodeToString(sum.Sum(nil))[:32], nil
}

func copyTree(tree fs.FS, dir string) error {
	return fs.WalkDir(tree, ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		to := filepath.Join(dir, filepath.FromSlash(name))
		if d.IsDir() {
			if err := skipCaches(d); err != nil {
				return err
			}
			return os.MkdirAll(to, 0o755)
		}
		in, err := tree.Open(name)
		if err != nil {
			return err
		}
		defer in.Close()
		out, err := os.OpenFile(to, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, in)
		if e := out.Close(); err == nil {
			err = e
		}
		return err
	})
}

func skipCaches(d fs.DirEntry) error {
	if d.Name() == "__pycache__" {
		return fs.SkipDir
	}
	return nil
}
