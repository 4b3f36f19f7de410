package backup

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
)

// Target keeps files by names such as cluster/file. All methods return *director.Error: not_found, unavailable if it
// cannot be reached, exhausted if it is full. It is safe for concurrent use.
type Target interface {
	// Put stores what r has under the name: all of it, or nothing under that name. One that is there is replaced.
	Put(ctx context.Context, name string, r io.Reader) error
	// Get returns what is stored under the name.
	Get(ctx context.Context, name string) (io.ReadCloser, error)
	// List returns the names below the directory, sorted; none if there is no such directory.
	List(ctx context.Context, dir string) ([]string, error)
	// Delete removes what is stored under the name. No error if there is nothing.
	Delete(ctx context.Context, name string) error
}

// The files of a backup.
const (
	archiveSuffix = ".db.zst.age"
	// ManifestSuffix ends the names of manifests, and of no other file.
	ManifestSuffix = ".json"
)

// Dir is where the backups of a cluster lie in a target.
func Dir(cluster, uid string) string { return cluster + "-" + uid }

// ArchiveName and ManifestName are the files of a backup in a target.
func (m Manifest) ArchiveName() string {
	return path.Join(Dir(m.Cluster, m.ClusterUID), m.ID+archiveSuffix)
}

// ManifestName is the file that is written last: without it there is no backup.
func (m Manifest) ManifestName() string {
	return path.Join(Dir(m.Cluster, m.ClusterUID), m.ID+ManifestSuffix)
}

// IDs returns the ids of the complete backups among the files of a cluster, sorted.
func IDs(files []string) []string {
	var out []string
	for _, f := range files {
		if id, ok := strings.CutSuffix(path.Base(f), ManifestSuffix); ok {
			out = append(out, id)
		}
	}
	slices.Sort(out)
	return out
}

// Directory is a target in a directory of the director.
type Directory struct {
	Path string
	Dirs confine.Dirs // that it must lie in
	NFS  bool         // it must be on NFS
}

const partPrefix = ".part-"

// nfsMagic is what statfs calls NFS.
const nfsMagic = 0x6969

// open returns the directory. No link in a name leads out of it.
func (d Directory) open() (*os.Root, error) {
	const op = "backup.directory"
	if err := d.Dirs.Check(d.Path); err != nil {
		return nil, director.Errorf(director.KindInvalid, op, "%s", err).
			WithHint("name its directory in backupDirs of the director's configuration")
	}
	if !d.NFS { // a mount point that is missing must not be made
		if err := os.MkdirAll(d.Path, 0o700); err != nil {
			return nil, explain(op, d.Path, err)
		}
	}
	real, err := filepath.EvalSymlinks(d.Path)
	if err != nil {
		return nil, explain(op, d.Path, err)
	}
	if err := d.Dirs.Check(real); err != nil {
		return nil, director.Errorf(director.KindInvalid, op, "%s leads elsewhere: %s", d.Path, err).
			WithHint("name its directory in backupDirs of the director's configuration")
	}
	root, err := os.OpenRoot(real)
	if err != nil {
		return nil, explain(op, d.Path, err)
	}
	if d.NFS {
		var s syscall.Statfs_t
		if err := syscall.Statfs(real, &s); err != nil || s.Type != nfsMagic {
			_ = root.Close()
			return nil, director.Errorf(director.KindUnavailable, op, "no NFS is mounted at %s", d.Path).
				WithHint("mount it; or use the type directory")
		}
	}
	return root, nil
}

// Put implements Target.
func (d Directory) Put(ctx context.Context, name string, r io.Reader) (err error) {
	const op = "backup.put"
	root, err := d.open()
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	dir := path.Dir(name)
	if err := root.MkdirAll(dir, 0o700); err != nil {
		return explain(op, d.Path, err)
	}
	part := path.Join(dir, partPrefix+path.Base(name))
	f, err := root.OpenFile(part, os.O_WRONLY|os.O_CREATE|os.O_TRUNC|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return explain(op, d.Path, err)
	}
	defer func() {
		if err != nil {
			_ = root.Remove(part) // the error that is returned says more
		}
	}()
	source := &failing{r: &cancelled{ctx, r}}
	if _, err = io.Copy(f, source); err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err != nil {
		if source.err != nil {
			return source.err // not of the target
		}
		return explain(op, d.Path, err)
	}
	if err = root.Rename(part, name); err != nil {
		return explain(op, d.Path, err)
	}
	at, err := root.Open(dir)
	if err == nil {
		err = errors.Join(at.Sync(), at.Close())
	}
	return explain(op, d.Path, err)
}

// Get implements Target.
func (d Directory) Get(_ context.Context, name string) (io.ReadCloser, error) {
	root, err := d.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	f, err := root.OpenFile(name, os.O_RDONLY|syscall.O_NOFOLLOW, 0)
	if err != nil {
		return nil, explain("backup.get", d.Path, err)
	}
	return f, nil
}

// List implements Target.
func (d Directory) List(_ context.Context, dir string) ([]string, error) {
	const op = "backup.list"
	root, err := d.open()
	if err != nil {
		return nil, err
	}
	defer func() { _ = root.Close() }()
	entries, err := fs.ReadDir(root.FS(), dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, explain(op, d.Path, err)
	}
	var out []string
	for _, e := range entries {
		if e.Type().IsRegular() && !strings.HasPrefix(e.Name(), partPrefix) {
			out = append(out, path.Join(dir, e.Name()))
		}
	}
	return out, nil
}

// Delete implements Target.
func (d Directory) Delete(_ context.Context, name string) error {
	root, err := d.open()
	if err != nil {
		return err
	}
	defer func() { _ = root.Close() }()
	if err := root.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return explain("backup.delete", d.Path, err)
	}
	return nil
}

// explain says what went wrong in the directory. A full one is not the director's own disk, so the error does not wrap
// what plans would wait for.
func explain(op, dir string, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		return director.Errorf(director.KindExhausted, op, "the backup target %s is full", dir).
			WithHint("delete backups, keep fewer of them (spec.retention), or give the target more space")
	case errors.Is(err, fs.ErrNotExist):
		return director.Errorf(director.KindNotFound, op, "the backup target %s does not have it: %s", dir, err)
	}
	return director.Errorf(director.KindUnavailable, op, "the backup target %s does not work: %s", dir, err).
		WithHint("check its directory: the director's user must be able to write there")
}
