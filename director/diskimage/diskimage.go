// Package diskimage parses disk images and converts them.
//
// Images are untrusted input. The content decides the format, never the name. Every offset is checked against the file
// before it is followed, and everything that is read is bounded. An image that would make a reader open another file (a
// backing file, an external data file, an extent of its own) is refused. Convert runs qemu-img only on files that
// passed Inspect, with the format named, and within limits.
package diskimage

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
)

// Format is the format of a file.
type Format string

// The formats that are read.
const (
	QCOW2 Format = "qcow2"
	Raw   Format = "raw"
	VMDK  Format = "vmdk" // streamOptimized and monolithicSparse
	OVA   Format = "ova"  // with one disk in VMDK
)

// The variants of VMDK that are read.
const (
	StreamOptimized  = "streamOptimized"
	MonolithicSparse = "monolithicSparse"
)

const (
	// MinVirtual is the least size of a disk that can hold a node: what is smaller is another kind of file.
	MinVirtual = 1 << 30
	// MaxVirtual bounds what a header may claim.
	MaxVirtual = 8 << 40
)

// Info is what a file says of itself.
type Info struct {
	Format Format
	// qcow2: 0.10 or 1.1, its compat level; VMDK, also inside an OVA: StreamOptimized or MonolithicSparse
	Variant string
	Size    int64  // of the file
	Virtual int64  // of the disk
	Arch    string // amd64 or arm64; empty if the file does not tell
	// Release is what is written in /etc/kaas-release on the disk; nil if that was not found. VMDK and OVA do not tell
	// before they are converted, nor do root file systems other than ext4 on a plain partition.
	Release *Release
	// Disk is where the disk lies inside an OVA; the whole file otherwise.
	Disk Part
}

// Part is a part of a file.
type Part struct {
	Name        string // inside an OVA
	Offset, Len int64
}

// String names the format with its variant, such as "qcow2 (compat 1.1)".
func (i Info) String() string {
	switch i.Format {
	case QCOW2:
		return "qcow2 (compat " + i.Variant + ")"
	case VMDK:
		return "VMDK (" + i.Variant + ")"
	case OVA:
		return "OVA with VMDK (" + i.Variant + ")"
	}
	return string(i.Format)
}

const opInspect = "diskimage.inspect"

// InspectFile is Inspect of the file at the path.
func InspectFile(ctx context.Context, path string) (Info, error) {
	f, err := confine.Open(path)
	if errors.Is(err, confine.ErrNotRegular) {
		return Info{}, director.Errorf(director.KindInvalid, opInspect, "%s is not a regular file", path)
	}
	if errors.Is(err, fs.ErrNotExist) {
		return Info{}, director.Errorf(director.KindNotFound, opInspect, "there is no file %s", path)
	}
	if err != nil {
		return Info{}, director.Errorf(director.KindInvalid, opInspect, "%s cannot be read: %w", path, err)
	}
	defer f.Close()
	stat, err := f.Stat()
	if err != nil {
		return Info{}, director.Errorf(director.KindInvalid, opInspect, "%s cannot be read: %w", path, err)
	}
	return Inspect(ctx, path, f, stat.Size())
}

// Inspect returns what the file of that size says of itself. The name is for messages alone. Errors: invalid if it is
// no image of a known format, if it is cut off or damaged as far as its own tables tell, if it needs another file, if
// it is encrypted, or if its disk cannot hold a node; unavailable if it cannot be read.
func Inspect(ctx context.Context, name string, r io.ReaderAt, size int64) (Info, error) {
	format, err := Sniff(name, r, size)
	if err != nil {
		return Info{}, err
	}
	info := Info{Format: format, Size: size, Disk: Part{Len: size}}
	f := file{name: name, r: r, size: size}
	switch format {
	case QCOW2:
		err = f.qcow2(ctx, &info)
	case VMDK:
		err = f.vmdk(ctx, &info)
	case OVA:
		err = f.ova(ctx, &info)
	case Raw:
		info.Virtual = size
		err = f.guest(&info, r)
	}
	if err == nil {
		err = f.sized(info.Virtual)
	}
	if err == nil && ctx.Err() != nil {
		err = ctx.Err()
	}
	return info, err
}

// file is an image that is looked into.
type file struct {
	name string
	r    io.ReaderAt
	size int64
}

// bad is an error about the file.
func (f file) bad(hint, format string, args ...any) error {
	e := director.Errorf(director.KindInvalid, opInspect, "%s %s", f.name, fmt.Sprintf(format, args...))
	e.Hint = hint
	return e
}

// The hints that several checks give.
const (
	hintAgain  = "copy or download it again, and compare its checksum"
	hintAlone  = "make it self-contained: qemu-img convert -O qcow2 OLD NEW"
	hintFormat = "give a qcow2, raw, VMDK (streamOptimized, monolithicSparse) or OVA file"
)

// cut is an error about a file that ends too early.
func (f file) cut(what string) error {
	return f.bad(hintAgain, "is cut off or damaged: %s", what)
}

// at reads n bytes at the offset, which must lie inside the file. n is bounded by the callers.
func (f file) at(off int64, n int, what string) ([]byte, error) {
	if off < 0 || off > f.size-int64(n) {
		return nil, f.cut(what + " lies behind its end")
	}
	b := make([]byte, n)
	if _, err := f.r.ReadAt(b, off); err != nil {
		return nil, director.Errorf(director.KindUnavailable, opInspect, "%s cannot be read: %w", f.name, err)
	}
	return b, nil
}

func (f file) sized(virtual int64) error {
	switch {
	case virtual < MinVirtual:
		return f.bad("a node image has at least 1 GiB", "is too small for a node: its disk has %d MiB", virtual>>20)
	case virtual > MaxVirtual:
		return f.bad("", "claims a disk of %d GiB, which is too large", virtual>>30)
	}
	return nil
}

// guest reads what the disk tells, through r.
func (f file) guest(info *Info, r io.ReaderAt) error {
	g, err := lookInto(r, info.Virtual)
	if err != nil {
		return f.bad("give the image of a bootable disk", "%s", err)
	}
	if info.Arch == "" {
		info.Arch = g.arch
	}
	info.Release = g.release
	if g.release != nil && g.release.Arch != "" {
		info.Arch = g.release.Arch
	}
	return nil
}
