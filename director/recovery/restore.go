package recovery

import (
	"archive/tar"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"time"

	"filippo.io/age"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/backup"
	"github.com/director-kaas/kaas/director/whole"
)

// Mark is a file in the state directory while a restore is under way. A director does not start there.
const Mark = "restoring"

const unpackDir = ".restore"

// restored is a file in the state directory that keeps when the bundle was made that the director there is from.
const restored = "restored"

// Restored returns when the bundle was made from which the director with this state directory was restored; the zero
// time if it was not.
func Restored(stateDir string) (time.Time, error) {
	text, err := os.ReadFile(filepath.Join(stateDir, restored))
	if errors.Is(err, fs.ErrNotExist) {
		return time.Time{}, nil
	}
	var made time.Time
	if err == nil {
		made, err = time.Parse(time.RFC3339Nano, strings.TrimSpace(string(text)))
	}
	if err != nil {
		return time.Time{}, director.Errorf(
			director.KindInternal, "recovery.restored", "%s in the state directory cannot be read: %w", restored, err,
		).WithHint("remove it if all plans have ended that ran when the bundle was made")
	}
	return made, nil
}

// Unpacked is a bundle that was read to its end, and lies next to the place of its parts.
type Unpacked struct {
	Manifest
	stateDir, dir string
}

// Unpack reads the bundle to its end into the state directory, which has to be that of no director yet. Nothing of it
// is in its place before Place. Errors: conflict if a director is there, invalid for a bundle that is damaged or for
// another key.
func Unpack(ctx context.Context, r io.Reader, key age.Identity, stateDir string) (*Unpacked, error) {
	const op = "recovery.restore"
	if err := os.MkdirAll(stateDir, 0o700); err != nil {
		return nil, director.Errorf(director.KindInvalid, op, "%s cannot be made: %w", stateDir, err)
	}
	if err := vacant(stateDir); err != nil {
		return nil, err
	}
	dir := filepath.Join(stateDir, unpackDir)
	if err := os.RemoveAll(dir); err != nil {
		return nil, err
	}
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	u := &Unpacked{stateDir: stateDir, dir: dir}
	if err := u.read(ctx, r, key); err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	return u, nil
}

// vacant returns an error if there is a director in the directory, unless a restore that was cut off has put it there.
func vacant(stateDir string) error {
	if _, err := os.Stat(filepath.Join(stateDir, Mark)); err == nil {
		return nil
	}
	for _, name := range []string{"director.db", "sealing.key", "instance"} {
		if _, err := os.Lstat(filepath.Join(stateDir, name)); !errors.Is(err, fs.ErrNotExist) {
			return director.Errorf(
				director.KindConflict, "recovery.restore", "there is a director in %s: it has %s", stateDir, name,
			).WithHint("restore into an empty state directory; move this one away if it is not needed")
		}
	}
	return nil
}

func (u *Unpacked) read(ctx context.Context, r io.Reader, key age.Identity) error {
	pr, pw := io.Pipe()
	done := make(chan error, 1)
	go func() {
		_, _, err := backup.Decode(ctx, pw, r, key)
		_ = pw.CloseWithError(err)
		done <- err
	}()
	err := u.untar(pr)
	if err == nil { // what is behind the last entry counts too
		_, err = io.Copy(io.Discard, pr)
	}
	_ = pr.CloseWithError(errStopped)
	if derr := <-done; derr != nil && !errors.Is(derr, errStopped) {
		return withHint(derr)
	}
	return err
}

var errStopped = errors.New("nothing more is read")

func withHint(err error) error {
	if director.KindOf(err) != director.KindInvalid {
		return err
	}
	return director.Errorf(director.KindInvalid, "recovery.restore", "%s", director.MessageOf(err)).
		WithHint("use another bundle, or the key of one of the recipients that it was made for")
}

func (u *Unpacked) untar(r io.Reader) error {
	in := tar.NewReader(r)
	root, err := os.OpenRoot(u.dir)
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	complete := false
	for first := true; ; first = false {
		h, err := in.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return foreign("it cannot be read: " + err.Error())
		}
		switch {
		case first != (h.Name == manifestName):
			return foreign("its manifest is not the first entry")
		case h.Typeflag != tar.TypeReg || !allowed(h.Name):
			return foreign("it has an entry that no bundle has")
		case first:
			if err := u.open(in); err != nil {
				return err
			}
		default:
			if err := unpackFile(root, h.Name, in); err != nil {
				return err
			}
			complete = h.Name == databaseName
		}
	}
	if !complete {
		return foreign("it does not end with a database")
	}
	return nil
}

func foreign(why string) error {
	return director.Errorf(director.KindInvalid, "recovery.restore", "this is no bundle of a director: %s", why).
		WithHint("use a file that the job backup has written into a target")
}

func (u *Unpacked) open(r io.Reader) error {
	if err := json.NewDecoder(io.LimitReader(r, 1<<16)).Decode(&u.Manifest); err != nil {
		return foreign("its manifest cannot be read")
	}
	if u.Format > Format || u.Format < 1 {
		return director.Errorf(
			director.KindInvalid, "recovery.restore", "the bundle has format %d, and this director reads up to %d",
			u.Format, Format,
		).WithHint("use a director of version %s or a newer one", u.Version)
	}
	if u.Database != SQLite && u.Database != Postgres {
		return foreign("its database is of no known kind")
	}
	return nil
}

func unpackFile(root *os.Root, name string, r io.Reader) error {
	if err := root.MkdirAll(filepath.Dir(name), 0o700); err != nil {
		return err
	}
	f, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		return foreign("it has an entry twice")
	}
	if err != nil {
		return err
	}
	_, err = io.Copy(f, r)
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return director.Errorf(director.KindExhausted, "recovery.restore", "the bundle cannot be unpacked: %w", err).
			WithHint("check the space and the permissions of the state directory")
	}
	return nil
}

// DatabasePath is the file with the database, before Place.
func (u *Unpacked) DatabasePath() string { return filepath.Join(u.dir, databaseName) }

// ConfigFile returns a file of the directory of the configuration, if the bundle has it. Names are those without a
// directory.
func (u *Unpacked) ConfigFile(name string) ([]byte, bool) {
	text, err := os.ReadFile(filepath.Join(u.dir, configDir, filepath.Base(name)))
	return text, err == nil
}

// PutConfig writes the files of the configuration's directory that are not there yet, and returns the names of all that
// it wrote.
func (u *Unpacked) PutConfig(dir string) (written []string, err error) {
	from := filepath.Join(u.dir, configDir)
	err = filepath.WalkDir(from, func(file string, e fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) || err == nil && e.IsDir() {
			return nil
		}
		if err != nil {
			return err
		}
		rel, err := filepath.Rel(from, file)
		if err != nil {
			return err
		}
		to := filepath.Join(dir, rel)
		if _, err := os.Lstat(to); !errors.Is(err, fs.ErrNotExist) {
			return err // also nil: it is there
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			return err
		}
		if err := copyFile(file, to); err != nil {
			return err
		}
		written = append(written, rel)
		return nil
	})
	return written, err
}

func copyFile(from, to string) error {
	text, err := os.ReadFile(from) // bounded when the bundle was made
	if err != nil {
		return err
	}
	return whole.Write(to, text, 0o600)
}

// Place puts everything in its place, the database last, if it is a file. It may be cut off and run again.
func (u *Unpacked) Place() error {
	mark := filepath.Join(u.stateDir, Mark)
	if err := os.WriteFile(mark, []byte("A restore is under way, or was cut off.\n"), 0o600); err != nil {
		return err
	}
	for _, name := range kept {
		name = strings.TrimSuffix(name, "/")
		if err := os.RemoveAll(filepath.Join(u.stateDir, name)); err != nil {
			return err
		}
		err := os.Rename(filepath.Join(u.dir, name), filepath.Join(u.stateDir, name))
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	made := u.Made.UTC().Format(time.RFC3339Nano)
	if err := os.WriteFile(filepath.Join(u.stateDir, restored), []byte(made+"\n"), 0o600); err != nil {
		return err
	}
	if u.Database == SQLite {
		for _, name := range []string{"director.db-wal", "director.db-shm"} {
			if err := os.Remove(filepath.Join(u.stateDir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return err
			}
		}
		if err := os.Rename(u.DatabasePath(), filepath.Join(u.stateDir, "director.db")); err != nil {
			return err
		}
	}
	return errors.Join(os.RemoveAll(u.dir), os.Remove(mark))
}

// Discard removes what was unpacked.
func (u *Unpacked) Discard() error { return os.RemoveAll(u.dir) }
