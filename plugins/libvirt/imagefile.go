package libvirt

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
	"github.com/director-kaas/kaas/director/hypervisor"
)

// localImage is the file to upload, after it was checked.
type localImage struct {
	*os.File
	info    fs.FileInfo
	virtual uint64
}

// openImage opens the file and compares its checksum before anything is sent.
func openImage(ctx context.Context, op string, s hypervisor.ImageSpec) (*localImage, error) {
	f, err := os.Open(s.Path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, director.Errorf(director.KindNotFound, op, "there is no file %s", s.Path).
			WithHint("the path is one on the director")
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
	if err != nil || !info.Mode().IsRegular() {
		return nil, director.Errorf(director.KindInvalid, op, "%s is not a regular file", s.Path)
	}
	sum := sha256.New()
	if _, err := io.Copy(sum, readerWith(ctx, f)); err != nil {
		if err := interrupted(ctx, op); err != nil {
			return nil, err
		}
		return nil, director.Errorf(director.KindInvalid, op, "cannot read %s: %w", s.Path, err)
	}
	if got := hex.EncodeToString(sum.Sum(nil)); got != s.SHA256 {
		return nil, director.Errorf(director.KindInvalid, op, "%s has the SHA-256 %s and not %s", s.Path, got, s.SHA256).
			WithHint("the file is damaged or another one: fetch or build it again, or correct the checksum of image %s", s.Name)
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
	return &localImage{File: f, info: info, virtual: binary.BigEndian.Uint64(header[24:])}, nil
}

// unchanged tells whether the file is still the one that was checked.
func (l *localImage) unchanged() bool {
	info, err := l.Stat()
	return err == nil && info.Size() == l.info.Size() && info.ModTime().Equal(l.info.ModTime())
}

// readerWith is r until the context ends.
func readerWith(ctx context.Context, r io.Reader) io.Reader {
	return readerFunc(func(p []byte) (int, error) {
		if err := ctx.Err(); err != nil {
			return 0, err
		}
		return r.Read(p)
	})
}

type readerFunc func(p []byte) (int, error)

func (f readerFunc) Read(p []byte) (int, error) { return f(p) }
