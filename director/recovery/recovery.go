// Package recovery writes all that a director is made of into one encrypted bundle, and makes a director of it again on
// another machine.
//
// A bundle is tar in zstd in age. It opens by hand, too: age -d -i KEYFILE BUNDLE | zstd -d | tar -t
package recovery

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/backup"
)

// Format is the newest format of bundles that this director reads.
const Format = 1

// Manifest is the first entry of a bundle.
type Manifest struct {
	Format   int       `json:"format"`
	Director string    `json:"director"` // its id
	Version  string    `json:"version"`  // of the program
	Made     time.Time `json:"made"`
	Database string    `json:"database"` // sqlite or postgres
}

// The kinds of databases.
const (
	SQLite   = "sqlite"
	Postgres = "postgres"
)

// The entries of a bundle, in their order. A name with a slash at its end is a directory.
const (
	manifestName = "manifest.json"
	configDir    = "config/" // of the directory that the configuration is in
	databaseName = "database"
)

// kept are the entries that are in the state directory under the same name.
var kept = []string{"sealing.key", "sealing.bound", "metrics.token", "simulated", "tls/", "archives/"}

// Bounds of what is taken from the directory of the configuration, which may be any.
const (
	configFile = 1 << 20
	configAll  = 64 << 20
)

// Source is a director that runs.
type Source struct {
	Manifest
	StateDir string
	Config   string // its configuration file; empty without one
	// Dump writes the database as it is at this moment into a new file.
	Dump func(ctx context.Context, path string) error
}

// Write writes the bundle for the recipients into w. The database is copied into the state directory on its way.
// Errors: those of Dump and of w, exhausted if the disk is full.
func Write(ctx context.Context, w io.Writer, s Source, to []age.Recipient) (backup.Sums, error) {
	const op = "recovery.write"
	dir, err := os.MkdirTemp(s.StateDir, ".bundle-")
	if err != nil {
		return backup.Sums{}, director.Errorf(director.KindExhausted, op, "the database cannot be copied: %w", err)
	}
	defer func() { _ = os.RemoveAll(dir) }()
	dump := filepath.Join(dir, databaseName)
	if err := s.Dump(ctx, dump); err != nil {
		return backup.Sums{}, err
	}
	_, archive, err := backup.Encode(w, to, func(w io.Writer) error {
		out := tar.NewWriter(w)
		b := bundle{ctx: ctx, out: out, skip: s.StateDir}
		return errors.Join(b.write(s, dump), out.Close())
	})
	return archive, err
}

// bundle is one that is being written.
type bundle struct {
	ctx  context.Context
	out  *tar.Writer
	skip string // directory that is not part of the configuration
}

func (b bundle) write(s Source, dump string) error {
	s.Format = Format
	text, err := json.Marshal(s.Manifest)
	if err != nil {
		return err
	}
	if err := b.text(manifestName, text); err != nil {
		return err
	}
	for _, name := range kept {
		if err := b.tree(name, filepath.Join(s.StateDir, name), 0, nil); err != nil {
			return err
		}
	}
	if s.Config != "" {
		left := int64(configAll)
		if err := b.tree(configDir, filepath.Dir(s.Config), configFile, &left); err != nil {
			return err
		}
	}
	return b.file(databaseName, dump)
}

func (b bundle) text(name string, text []byte) error {
	err := b.out.WriteHeader(&tar.Header{Name: name, Mode: 0o600, Size: int64(len(text)), Typeflag: tar.TypeReg})
	if err == nil {
		_, err = b.out.Write(text)
	}
	return err
}

// tree writes a file, or all regular files of a directory. What is not there is left out; so are files larger than most
// and those for which nothing is left, where these are given.
func (b bundle) tree(name, at string, most int64, left *int64) error {
	return filepath.WalkDir(at, func(file string, e fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil
		case err != nil:
			return err
		case e.IsDir() && most > 0 && sameFile(file, b.skip):
			return fs.SkipDir
		case !e.Type().IsRegular():
			return nil
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		if left != nil {
			if info.Size() > most || info.Size() > *left {
				return nil
			}
			*left -= info.Size()
		}
		rel, err := filepath.Rel(at, file)
		if err != nil {
			return err
		}
		return b.file(path.Join(name, filepath.ToSlash(rel)), file)
	})
}

func sameFile(a, b string) bool {
	x, xerr := os.Stat(a)
	y, yerr := os.Stat(b)
	return xerr == nil && yerr == nil && os.SameFile(x, y)
}

func (b bundle) file(name, from string) error {
	f, err := os.Open(from)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // an archive that was removed meanwhile
	}
	if err != nil {
		return err
	}
	defer func() { _ = f.Close() }()
	info, err := f.Stat()
	if err != nil {
		return err
	}
	if err := b.out.WriteHeader(&tar.Header{
		Name: name, Mode: 0o600, Size: info.Size(), ModTime: info.ModTime(), Typeflag: tar.TypeReg,
	}); err != nil {
		return err
	}
	n, err := io.CopyN(b.out, f, info.Size())
	if err != nil {
		return fmt.Errorf("%s became shorter at byte %d while it was read: %w", from, n, err)
	}
	return b.ctx.Err()
}

// allowed reports whether a bundle may have an entry of that name.
func allowed(name string) bool {
	if !filepath.IsLocal(name) || name != path.Clean(name) || strings.ContainsAny(name, "\\\x00") {
		return false
	}
	if name == manifestName || name == databaseName || strings.HasPrefix(name, configDir) {
		return true
	}
	for _, k := range kept {
		if name == k || strings.HasSuffix(k, "/") && strings.HasPrefix(name, k) {
			return true
		}
	}
	return false
}
