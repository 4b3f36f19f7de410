// Package releasestore keeps the release bundles that were imported into a director, below its state directory, by
// their digests.
//
// A bundle arrives as the archive that bundle.Archive makes. It is unpacked into a place of its own, verified as a
// whole, and moved to where it stays. A bundle is at its place or it is not: what a dead process left half done is
// removed when the store is opened.
package releasestore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/bundle"
	"github.com/director-kaas/kaas/director/jobs"
	"github.com/director-kaas/kaas/director/scratch"
	"github.com/director-kaas/kaas/director/whole"
)

// Config is what Open needs. Dir and Log must be set.
type Config struct {
	Dir string // holds everything; made if it is missing
	// Owner names this process among those that have the directory open at the same time; no two have the same name.
	Owner   string
	Log     *slog.Logger
	Now     func() time.Time // nil means time.Now
	Reserve int64            // bytes that stay free on the disk, for the database; 0 means 1 GiB
}

// File is the director's ReleaseFile, by the store's own name for it.
type File = director.ReleaseFile

// Job is an import that outlives its request. Its stages are unpacking, done and failed.
type Job = jobs.Job[File]

// unpacking is the stage of a job in which bytes of the archive are counted.
const unpacking = "unpacking"

// Store is an open store. It is safe for concurrent use, and directors may share its directory.
type Store struct {
	Config
	jobs *jobs.Table[File]
	tmp  scratch.Place // of this process, for what is half done
}

const opImport = "releasestore.import"

var digest = regexp.MustCompile(`^[0-9a-f]{64}$`)

// Open opens the store and removes what an earlier process of this owner left half done.
func Open(c Config) (*Store, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Reserve = cmp.Or(c.Reserve, 1<<30)
	s := &Store{Config: c, jobs: jobs.New[File](opImport, c.Log, c.Now)}
	var err error
	if s.tmp, err = scratch.Open(c.Dir, c.Owner, c.Now()); err != nil {
		return nil, broken(err)
	}
	entries, err := os.ReadDir(c.Dir)
	if err != nil {
		return nil, broken(err)
	}
	for _, e := range entries { // a record is written before its bundle comes, and removed after it
		sum, isRecord := strings.CutSuffix(e.Name(), ".json")
		isRecord = isRecord && scratch.Old(s.path(e.Name()), c.Now())
		if _, err := os.Stat(s.Path(sum)); isRecord && errors.Is(err, fs.ErrNotExist) {
			if err := os.Remove(s.path(e.Name())); err != nil {
				return nil, broken(err)
			}
		}
	}
	return s, nil
}

// Close ends what runs and waits for it. It is idempotent.
func (s *Store) Close(ctx context.Context) error { return s.jobs.Close(ctx) }

func (s *Store) path(parts ...string) string {
	return filepath.Join(append([]string{s.Dir}, parts...)...)
}

// Path returns where the bundle with the digest is, or would be.
func (s *Store) Path(digest string) string { return s.path(digest) }

func broken(err error) error {
	if errors.Is(err, unix.ENOSPC) {
		return director.Errorf(director.KindExhausted, "releasestore.write", "the director's disk is full: %w", err).
			WithHint("make room: directorctl release prune")
	}
	return director.Errorf(director.KindInternal, "releasestore.disk", "the store of releases cannot be used: %w", err)
}

// ours returns an error of the director as it is, and says of others that the store cannot be used.
func ours(err error) error {
	if _, ok := errors.AsType[*director.Error](err); ok || err == nil {
		return err
	}
	return broken(err)
}

// Files lists the bundles, the newest first.
func (s *Store) Files() ([]File, error) {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return nil, broken(err)
	}
	var out []File
	for _, e := range entries {
		if !digest.MatchString(e.Name()) {
			continue
		}
		f, err := s.File(e.Name())
		if director.KindOf(err) == director.KindNotFound {
			continue // removed since
		}
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b File) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.Digest, b.Digest)) })
	return out, nil
}

// File returns the bundle with the digest, or not_found.
func (s *Store) File(sum string) (File, error) {
	none := director.Errorf(
		director.KindNotFound, "releasestore.file", "this director has no imported release with the digest %.64s", sum,
	).
		WithHint("see what there is: directorctl release list; or import it: directorctl release import FILE")
	if !digest.MatchString(sum) {
		return File{}, none
	}
	if _, err := os.Stat(s.Path(sum)); errors.Is(err, fs.ErrNotExist) {
		return File{}, none
	} else if err != nil {
		return File{}, broken(err)
	}
	text, err := os.ReadFile(s.path(sum + ".json"))
	if errors.Is(err, fs.ErrNotExist) {
		return File{}, none
	}
	var f File
	if err == nil {
		err = json.Unmarshal(text, &f)
	}
	return f, ours(err)
}

// Delete removes the bundle. No error if it is gone. The caller must know whether it is needed.
func (s *Store) Delete(sum string) error {
	if !digest.MatchString(sum) {
		return nil
	}
	release, err := s.hold(sum)
	if err != nil {
		return err
	}
	defer release()
	tmp, err := s.tmp.Temp("delete-")
	if err != nil {
		return broken(err)
	}
	defer func() { _ = os.RemoveAll(tmp) }() // at the latest when the store is opened next
	err = os.Rename(s.Path(sum), filepath.Join(tmp, sum))
	if err == nil || errors.Is(err, fs.ErrNotExist) {
		err = os.Remove(s.path(sum + ".json"))
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return broken(err)
	}
	return nil
}

// hold takes a bundle for the caller, so that no two directors move it at once. Errors: conflict.
func (s *Store) hold(sum string) (release func(), err error) {
	release, err = scratch.Hold(s.Dir, sum)
	if director.KindOf(err) == director.KindConflict {
		return nil, director.Errorf(
			director.KindConflict, "releasestore.hold", "another director works on this release",
		).
			WithHint("try again in a minute")
	}
	return release, err
}

// Job returns the job, or not_found.
func (s *Store) Job(id string) (Job, error) { return s.jobs.Job(id) }

// Archive is an archive that has wholly arrived.
type Archive struct {
	ID   string // SHA-256 of the archive
	Size int64
	By   string
	// Unsigned is why the bundle is imported without a signature, in words.
	Unsigned string
	// Trust is asked before anything is unpacked.
	Trust bundle.Trust
	// Take holds the archive until release is called; conflict if another request works on it.
	Take func() (release func(), err error)
	Open func() (io.ReadCloser, error)
	// Drop throws the archive away. It is called while the archive is held.
	Drop func() error
}

// Import begins to unpack the archive, or returns the job that does. The archive is dropped with it, unless the import
// fails for a reason that can be removed: no room, or no trusted signature.
func (s *Store) Import(_ context.Context, a Archive) (Job, error) {
	id := "import-" + a.ID
	return s.jobs.Begin(id, a.Take, func(ctx context.Context, to jobs.Progress) (File, error) {
		f, err := s.unpack(ctx, a, to(unpacking))
		if err == nil || wrong(err) {
			err = errors.Join(err, a.Drop())
		}
		return f, err
	})
}

// distrust is an error of Trust: another try can help.
type distrust struct{ error }

func (e distrust) Unwrap() error { return e.error }

// wrong tells whether the archive is wrong by itself.
func wrong(err error) bool {
	_, refused := errors.AsType[distrust](err)
	return !refused && director.KindOf(err) == director.KindInvalid
}

func (s *Store) unpack(ctx context.Context, a Archive, progress func(done, total int64)) (File, error) {
	if err := s.tmp.Sweep(s.Now()); err != nil { // it may take the room
		return File{}, broken(err)
	}
	if err := s.room(a.Size); err != nil {
		return File{}, err
	}
	from, err := a.Open()
	if err != nil {
		return File{}, broken(err)
	}
	defer from.Close()
	tmp, err := s.tmp.Temp("import-")
	if err != nil {
		return File{}, broken(err)
	}
	defer func() { _ = os.RemoveAll(tmp) }() // at the latest when the store is opened next
	trust := func(r bundle.Release, text, signature []byte) error {
		if err := a.Trust(r, text, signature); err != nil {
			return distrust{err}
		}
		return nil
	}
	b, err := bundle.Unpack(ctx, &counted{r: from, total: a.Size, progress: progress}, tmp, trust)
	if err != nil {
		return File{}, ours(err)
	}
	return s.keep(b, tmp, a)
}

// keep moves the unpacked bundle to its place.
func (s *Store) keep(b *bundle.Bundle, dir string, a Archive) (File, error) {
	release, err := s.hold(b.Digest())
	if err != nil {
		return File{}, err
	}
	defer release()
	if f, err := s.File(b.Digest()); err == nil {
		return s.signed(f, dir, a)
	}
	r := b.Release()
	f := File{
		Digest: b.Digest(), Name: r.Name, Kubernetes: r.Kubernetes, Arch: r.Arch, Components: r.Components,
		Images: len(r.Images), Upload: a.ID, Unsigned: a.Unsigned, At: s.Now().UTC(), By: a.By,
	}
	err = filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			return whole.SyncDir(name)
		}
		info, err := d.Info()
		if err == nil {
			f.Size += info.Size()
		}
		return err
	})
	if err == nil {
		err = s.save(f)
	}
	if err == nil {
		err = os.Rename(dir, s.Path(f.Digest))
	}
	if err == nil {
		err = whole.SyncDir(s.Dir)
	}
	return f, ours(err)
}

// signed lets a bundle that is there have the signature of the one in dir, or the words: keys are changed, and a bundle
// may be signed after it was imported.
func (s *Store) signed(f File, dir string, a Archive) (File, error) {
	err := os.Rename(filepath.Join(dir, bundle.SignatureName), filepath.Join(s.Path(f.Digest), bundle.SignatureName))
	if errors.Is(err, fs.ErrNotExist) {
		err = nil
	}
	f.Upload, f.Unsigned = a.ID, a.Unsigned
	if err == nil {
		err = s.save(f)
	}
	return f, ours(err)
}

// save writes the record of the bundle.
func (s *Store) save(f File) error {
	text, err := json.MarshalIndent(f, "", "  ")
	if err != nil {
		return err
	}
	tmp, err := s.tmp.Dir()
	if err != nil {
		return err
	}
	return whole.WriteBy(tmp, s.path(f.Digest+".json"), append(text, '\n'), 0o600)
}

// room returns exhausted if the disk cannot take so many bytes in addition to the reserve.
func (s *Store) room(size int64) error {
	var st unix.Statfs_t
	if err := unix.Statfs(s.Dir, &st); err != nil {
		return broken(err)
	}
	if free := int64(st.Bavail)*st.Bsize - s.Reserve; free < size {
		return director.Errorf(
			director.KindExhausted, opImport, "the release has %d MiB, and the director has room for %d MiB", size>>20,
			max(free, 0)>>20,
		).
			WithHint("make room: directorctl release prune; the archive has arrived and need not be sent again")
	}
	return nil
}

// counted notes how much of an archive was read.
type counted struct {
	r           io.Reader
	done, total int64
	progress    func(done, total int64)
}

// Read reads on.
func (c *counted) Read(p []byte) (int, error) {
	n, err := c.r.Read(p)
	c.done += int64(n)
	c.progress(c.done, c.total)
	return n, err
}
