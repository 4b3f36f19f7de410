package imagestore

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"

	"github.com/director-kaas/kaas/director"
)

func freeOf(dir string) (int64, error) {
	var st unix.Statfs_t
	err := unix.Statfs(dir, &st)
	return int64(st.Bavail) * st.Bsize, err
}

// free returns how many bytes may be written until only the reserve is left.
func (s *Store) free() (int64, error) {
	n, err := s.Free(s.Dir)
	if err != nil {
		return 0, broken(err)
	}
	return n - s.Reserve, nil
}

// unfinished is what the uploads that are not finished amount to.
type unfinished struct {
	number  int
	sizes   int64 // that were declared
	missing int64 // of these, what has no place on the disk yet
}

func (s *Store) unfinished() (unfinished, error) {
	var sum unfinished
	entries, err := os.ReadDir(s.path("uploads"))
	if err != nil {
		return sum, broken(err)
	}
	for _, e := range entries {
		var r record
		if err := s.load("uploads/"+e.Name()+"/record.json", &r); err != nil {
			continue // it is beginning, or going
		}
		sum.number++
		sum.sizes += r.Size
		sum.missing += max(0, r.Size-placed(s.data(e.Name())))
	}
	return sum, nil
}

// placed returns how many bytes of the disk the file has.
func placed(path string) int64 {
	var st unix.Stat_t
	if err := unix.Stat(path, &st); err != nil {
		return 0
	}
	return st.Blocks * 512
}

// left returns how many bytes nothing has reserved.
func (s *Store) left() (int64, unfinished, error) {
	sum, err := s.unfinished()
	if err != nil {
		return 0, sum, err
	}
	free, err := s.free()
	s.mu.Lock()
	defer s.mu.Unlock()
	return free - sum.missing - s.room, sum, err
}

// reserve makes the place of an upload, with as much of the disk as it will need. The caller holds beginning.
func (s *Store) reserve(r Request, unchecked bool) error {
	left, sum, err := s.left()
	if err != nil {
		return err
	}
	switch {
	case left < r.Size:
		return director.Errorf(
			director.KindExhausted, opUpload, "the file has %d MiB, and the director has room for %d MiB", r.Size>>20,
			max(left, 0)>>20,
		).
			WithHint("make room: directorctl image prune; or give the director a larger disk")
	case sum.number >= s.Uploads:
		return director.Errorf(
			director.KindExhausted, opUpload, "%d uploads are open, and %d are allowed", sum.number, s.Uploads,
		).
			WithHint("finish or abort one of them; an upload that receives nothing is removed after a day")
	case sum.sizes+r.Size > s.UploadBytes:
		return director.Errorf(
			director.KindExhausted, opUpload, "the open uploads would have %d MiB together, and %d MiB are allowed",
			(sum.sizes+r.Size)>>20, s.UploadBytes>>20,
		).
			WithHint("finish or abort one of them, or raise imageUploadsSize in the director's configuration")
	}
	if err := os.MkdirAll(s.path("uploads", r.SHA256), 0o700); err != nil {
		return broken(err)
	}
	of := record{Name: r.Name, Size: r.Size, By: r.By, Release: r.Release, Unchecked: unchecked}
	if err := s.save("uploads/"+r.SHA256+"/record.json", of); err != nil {
		return broken(err)
	}
	if err := allocate(s.data(r.SHA256), r.Size); err != nil {
		return errors.Join(broken(err), s.drop(r.SHA256))
	}
	return nil
}

// allocate gives the file its part of the disk without changing its length, which says how much has arrived. File
// systems that cannot do so leave it to the sums of left.
func allocate(path string, size int64) error {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o600)
	if err != nil {
		return err
	}
	err = unix.Fallocate(int(f.Fd()), unix.FALLOC_FL_KEEP_SIZE, 0, size)
	if errors.Is(err, unix.EOPNOTSUPP) || errors.Is(err, unix.ENOSYS) {
		err = nil
	}
	return errors.Join(err, f.Close())
}

// copyWithin copies into the upload's file as long as the reserve stays free.
func (s *Store) copyWithin(id string, size int64, to *os.File, from io.Reader) (int64, error) {
	const piece = 8 << 20
	for done := int64(0); ; {
		if missing := size - placed(s.data(id)); missing > 0 {
			free, err := s.free()
			if err != nil {
				return done, err
			}
			if free < min(missing, piece) {
				return done, director.Errorf(
					director.KindExhausted, opUpload,
					"the director's disk is nearly full, and the rest is for its database",
				).
					WithHint("free space: directorctl image prune; the received part stays, so continue afterwards")
			}
		}
		n, err := io.CopyN(to, from, piece)
		done += n
		if errors.Is(err, io.EOF) {
			return done, nil
		}
		if err != nil {
			return done, err
		}
	}
}

// take reserves room for a conversion: at most what it asks for, and at least 1 MiB, which soon ends it with the right
// message.
func (s *Store) take(most int64) (taken int64, release func(), err error) {
	s.beginning.Lock()
	defer s.beginning.Unlock()
	left, _, err := s.left()
	if err != nil {
		return 0, nil, err
	}
	taken = min(most, max(left, 1<<20))
	s.mu.Lock()
	defer s.mu.Unlock()
	s.room += taken
	return taken, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.room -= taken
	}, nil
}
