// Package imagestore keeps the image files that were imported into a director, below its state directory, by their
// checksums.
//
// A file comes in two moves. Its bytes arrive as an upload, named by the SHA-256 that they shall have, piece by piece
// from the offset that is there, so that a cut costs what had not arrived. Then it is imported: checked, converted to
// qcow2 if need be, checked again, and moved to its place. What is wrong is thrown away whole. Each move may be
// repeated, also after a crash at any line: a file is at its place or it is not, and what is half done is removed when
// the store is opened.
package imagestore

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/diskimage"
	"github.com/director-kaas/kaas/director/jobs"
	"github.com/director-kaas/kaas/director/scratch"
	"github.com/director-kaas/kaas/director/whole"
)

// Config is what Open needs. Dir and Log must be set.
type Config struct {
	Dir string // holds everything; made if it is missing
	// Owner names this process among those that have the directory open at the same time; no two have the same name.
	Owner   string
	Convert diskimage.Converter
	Log     *slog.Logger
	Now     func() time.Time // nil means time.Now
	Reserve int64            // bytes that stay free on the disk, for the database; 0 means 1 GiB
	// Uploads and UploadBytes bound the uploads that are not finished, by number and by the sum of their sizes; 0 means
	// 16 and 256 GiB.
	Uploads     int
	UploadBytes int64
	// Free returns how many bytes of the disk are free; nil asks the file system.
	Free func(dir string) (int64, error)
}

// File is the director's ImageFile, by the store's own name for it.
type File = director.ImageFile

// Origin is the director's ImageOrigin, by the store's own name for it.
type Origin = director.ImageOrigin

// Upload is the director's ImageUpload, by the store's own name for it.
type Upload = director.ImageUpload

// Request is the director's ImageRequest, by the store's own name for it.
type Request = director.ImageRequest

// Import is the director's ImageImport, by the store's own name for it.
type Import = director.ImageImport

// Job is work on an image that outlives the request for it. Its stages are checking, converting, done and failed.
type Job = jobs.Job[File]

// Store is an open store. It is safe for concurrent use. Directors may share its directory: each upload is worked on
// by one of them at a time. What a conversion has reserved is known to its own director alone.
type Store struct {
	Config
	jobs *jobs.Table[File]
	tmp  scratch.Place // of this process, for what is half done

	beginning sync.Mutex // held while room is looked for and reserved

	mu   sync.Mutex
	room int64 // that running conversions have reserved
	// moved are the checksums of uploads that were begun without one, by their former ids.
	moved map[string]string
}

var (
	digest = regexp.MustCompile(`^[0-9a-f]{64}$`)
	place  = regexp.MustCompile(`^[0-9a-f]{64}\.qcow2$`)
)

// Open opens the store and removes what an earlier process of this owner left half done.
func Open(c Config) (*Store, error) {
	if c.Now == nil {
		c.Now = time.Now
	}
	c.Reserve, c.Uploads, c.UploadBytes = cmp.Or(c.Reserve, 1<<30), cmp.Or(c.Uploads, 16),
		cmp.Or(c.UploadBytes, 256<<30)
	if c.Free == nil {
		c.Free = freeOf
	}
	s := &Store{
		Config: c, jobs: jobs.New[File](opImport, c.Log, c.Now), moved: map[string]string{},
	}
	if err := os.MkdirAll(s.path("uploads"), 0o700); err != nil {
		return nil, broken(err)
	}
	var err error
	if s.tmp, err = scratch.Open(c.Dir, c.Owner, c.Now()); err != nil {
		return nil, broken(err)
	}
	entries, err := os.ReadDir(c.Dir)
	if err != nil {
		return nil, broken(err)
	}
	for _, e := range entries { // a record is written before its file comes, and removed after it
		sum, isRecord := strings.CutSuffix(e.Name(), ".json")
		if !isRecord || !digest.MatchString(sum) || !scratch.Old(s.path(e.Name()), c.Now()) {
			continue
		}
		if _, err := os.Stat(s.Path(sum)); errors.Is(err, fs.ErrNotExist) {
			if err := os.Remove(s.path(e.Name())); err != nil {
				return nil, broken(err)
			}
		}
	}
	if err := s.sweep(); err != nil {
		return nil, err
	}
	return s, nil
}

// Close ends what runs and waits for it. It is idempotent.
func (s *Store) Close(ctx context.Context) error { return s.jobs.Close(ctx) }

func (s *Store) path(parts ...string) string {
	return filepath.Join(append([]string{s.Dir}, parts...)...)
}

// Path returns where the file with the checksum lies, or would.
func (s *Store) Path(sum string) string { return s.path(sum + ".qcow2") }

func broken(err error) error {
	if errors.Is(err, unix.ENOSPC) {
		return director.Errorf(director.KindExhausted, "imagestore.write", "the director's disk is full: %w", err).
			WithHint("make room: directorctl image prune")
	}
	return director.Errorf(director.KindInternal, "imagestore.disk", "the store of images cannot be used: %w", err)
}

// Files lists the files, the newest first.
func (s *Store) Files() ([]File, error) {
	entries, err := os.ReadDir(s.Dir)
	if err != nil {
		return nil, broken(err)
	}
	var out []File
	for _, e := range entries {
		if !place.MatchString(e.Name()) {
			continue
		}
		f, err := s.File(strings.TrimSuffix(e.Name(), ".qcow2"))
		if director.KindOf(err) == director.KindNotFound {
			continue // removed since
		}
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	slices.SortFunc(out, func(a, b File) int { return cmp.Or(b.At.Compare(a.At), cmp.Compare(a.SHA256, b.SHA256)) })
	return out, nil
}

// File returns the file with the checksum, or not_found.
func (s *Store) File(sum string) (File, error) {
	none := director.Errorf(
		director.KindNotFound, "imagestore.file", "this director has no imported image with the SHA-256 %.64s", sum,
	).
		WithHint("see what there is: directorctl image list; or import it: directorctl image import FILE")
	if !digest.MatchString(sum) {
		return File{}, none
	}
	if _, err := os.Stat(s.Path(sum)); errors.Is(err, fs.ErrNotExist) {
		return File{}, none
	} else if err != nil {
		return File{}, broken(err)
	}
	var f File
	err := s.load(sum+".json", &f)
	if errors.Is(err, fs.ErrNotExist) {
		return File{}, none
	}
	if err != nil {
		return File{}, broken(err)
	}
	return f, nil
}

// Delete removes the file. No error if it is gone. The caller must know whether it is needed.
func (s *Store) Delete(sum string) error {
	if !digest.MatchString(sum) {
		return nil
	}
	for _, name := range []string{sum + ".qcow2", sum + ".json"} {
		if err := os.Remove(s.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return broken(err)
		}
	}
	return nil
}

// made finds the image that was made from the file with that checksum, at that compat level unless it is empty.
func (s *Store) made(origin, compat string) (File, bool, error) {
	files, err := s.Files()
	for _, f := range files {
		if f.Origin.SHA256 == origin && (f.Compat == compat || compat == "") {
			return f, true, nil
		}
	}
	return File{}, false, err
}

// load reads a record.
func (s *Store) load(name string, into any) error {
	text, err := os.ReadFile(s.path(name))
	if err != nil {
		return err
	}
	return json.Unmarshal(text, into)
}

// save writes a record.
func (s *Store) save(name string, v any) error {
	text, err := json.MarshalIndent(v, "", "  ")
	if err != nil {
		return err
	}
	tmp, err := s.tmp.Dir()
	if err != nil {
		return err
	}
	return whole.WriteBy(tmp, s.path(name), append(text, '\n'), 0o600)
}

// hold takes an upload for the caller, or fails if someone else has it.
func (s *Store) hold(id string) (release func(), err error) {
	release, err = scratch.Hold(s.Dir, id)
	if director.KindOf(err) == director.KindConflict {
		return nil, director.Errorf(
			director.KindConflict, "imagestore.upload", "another request works on this upload",
		).
			WithHint("wait until that has ended")
	}
	return release, err
}
