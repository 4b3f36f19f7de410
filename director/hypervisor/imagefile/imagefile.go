// Package imagefile reads the files of node images for the back ends that bring them to a hypervisor.
package imagefile

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash"
	"io"
	"io/fs"
	"os"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// File is an image's file whose header was read. It is not safe for concurrent use.
type File struct {
	*os.File
	Size    int64 // of the file
	Virtual int64 // of the disk

	op   string
	spec hypervisor.ImageSpec
	info fs.FileInfo
	sum  hash.Hash // of what was read by Content; nil before
}

// Open opens the file of s and reads its header. The checksum is not compared yet: Check does it before anything is
// sent, Content and Matches do it while it is sent. Errors: not_found without the file, invalid if it is no regular
// file or no self-contained qcow2.
func Open(op string, s hypervisor.ImageSpec) (*File, error) {
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
	file := &File{File: f, op: op, spec: s}
	if err := file.readHeader(); err != nil {
		f.Close()
		return nil, err
	}
	return file, nil
}

func (f *File) readHeader() error {
	info, err := f.Stat()
	if err != nil {
		return f.unreadable(err)
	}
	f.info, f.Size = info, info.Size()
	// The header of qcow2: magic, version, and the virtual size at byte 24.
	header := make([]byte, 32)
	if _, err := f.ReadAt(header, 0); err != nil || !bytes.HasPrefix(header, []byte("QFI\xfb")) {
		return director.Errorf(director.KindInvalid, f.op, "%s is not a qcow2 image", f.spec.Path).WithHint(
			"the file is damaged or another one: fetch or build it again",
		)
	}
	if binary.BigEndian.Uint64(header[8:]) != 0 {
		return director.Errorf(director.KindInvalid, f.op, "%s needs a backing file", f.spec.Path).
			WithHint("make it self-contained: qemu-img convert -O qcow2")
	}
	f.Virtual = int64(binary.BigEndian.Uint64(header[24:]))
	return nil
}

// Check reads the whole file and compares its checksum. Errors: invalid if it is another file than the image says,
// unavailable if the context ends.
func (f *File) Check(ctx context.Context) error {
	content, err := f.Content(ctx)
	if err != nil {
		return err
	}
	if _, err := io.Copy(io.Discard, content); err != nil {
		if ctx.Err() != nil {
			return director.Errorf(director.KindUnavailable, f.op, "interrupted: %w", context.Cause(ctx))
		}
		return f.unreadable(err)
	}
	return f.Matches()
}

// Content is the file from its first byte until the context ends. Each call begins again, and ends the reader of the
// call before it. What is read counts for Matches.
func (f *File) Content(ctx context.Context) (io.Reader, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return nil, f.unreadable(err)
	}
	f.sum = sha256.New()
	return Reader(ctx, io.TeeReader(f.File, f.sum)), nil
}

// Matches compares the checksum of what the last Content gave with the image's. Errors: invalid if it is another file,
// or was not read to its end.
func (f *File) Matches() error {
	if f.sum != nil && hex.EncodeToString(f.sum.Sum(nil)) == f.spec.SHA256 {
		return nil
	}
	return director.Errorf(director.KindInvalid, f.op, "%s does not have the SHA-256 %s", f.spec.Path, f.spec.SHA256).
		WithHint(
			"the file is damaged or another one: fetch or build it again, or correct the checksum of image %s",
			f.spec.Name,
		)
}

func (f *File) unreadable(err error) error {
	return director.Errorf(director.KindInvalid, f.op, "cannot read %s: %w", f.spec.Path, err)
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
