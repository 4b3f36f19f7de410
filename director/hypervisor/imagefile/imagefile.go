// Package imagefile reads the files of node images for the back ends that bring them to a hypervisor.
package imagefile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"io/fs"
	"os"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// File is an image's file after it was checked.
type File struct {
	*os.File
	Size    int64 // of the file
	Virtual int64 // of the disk

	info fs.FileInfo
}

// Open opens the file of s and compares its checksum, so that nothing wrong is ever sent. Errors: not_found without the
// file, invalid if it is another file than s says or no self-contained qcow2, unavailable if the context ends.
func Open(ctx context.Context, op string, s hypervisor.ImageSpec) (*File, error) {
	f, err := confine.Open(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, director.Errorf(director.KindNotFound, op, "there is no file %s", s.Path).
			WithHint("the path is one on the director")
	}
	if errors.Is(err, confine.ErrNotRegular) {
		return nil, director.Errorf(director.KindInvalid, op, "%s is not a regular file", s.Path)
	}
	if err != nil {
		return nil, director.Errorf(director.KindInvalid, op, "cannot read %s: %w", s.Path, err)
	}
	ok := false
	defer func() {
		if !ok {
			f.Close()
		}
	}()
	info, err := f.Stat()
	if err != nil {
		return nil, director.Errorf(director.KindInvalid, op, "cannot read %s: %w", s.Path, err)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, Reader(ctx, f)); err != nil {
		if ctx.Err() != nil {
			return nil, director.Errorf(director.KindUnavailable, op, "interrupted: %w", context.Cause(ctx))
		}
		return nil, director.Errorf(director.KindInvalid, op, "cannot read %s: %w", s.Path, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != s.SHA256 {
		return nil, director.Errorf(director.KindInvalid, op, "%s does not have the SHA-256 %s", s.Path, s.SHA256).
			WithHint(
				"the file is damaged or another one: fetch or build it again, or correct the checksum of image %s",
				s.Name,
			)
	}
	// The header of qcow2: magic, version, and the virtual size at byte 24.
	header := make([]byte, 32)
	if _, err := f.ReadAt(header, 0); err != nil || !bytes.HasPrefix(header, []byte("QFI\xfb")) {
		return nil, director.Errorf(director.KindInvalid, op, "%s is not a qcow2 image", s.Path)
	}
	if binary.BigEndian.Uint64(header[8:]) != 0 {
		return nil, director.Errorf(director.KindInvalid, op, "%s needs a backing file", s.Path).
			WithHint("make it self-contained: qemu-img convert -O qcow2")
	}
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, director.Errorf(director.KindInvalid, op, "cannot read %s: %w", s.Path, err)
	}
	ok = true
	return &File{File: f, info: info, Size: info.Size(), Virtual: int64(binary.BigEndian.Uint64(header[24:]))}, nil
}

// Unchanged tells whether the file is still the one that was checked.
func (f *File) Unchanged() bool {
	info, err := f.Stat()
	return err == nil && info.Size() == f.info.Size() && info.ModTime().Equal(f.info.ModTime())
}

// Reader is r until the context ends.
func Reader(ctx context.Context, r io.Reader) io.Reader { return reader{ctx, r} }

type reader struct {
	ctx context.Context
	r   io.Reader
}

// Read implements io.Reader.
func (r reader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	return r.r.Read(p)
}
