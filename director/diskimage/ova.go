package diskimage

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha1" // older manifests have nothing else
	"crypto/sha256"
	"crypto/sha512"
	"encoding/hex"
	"encoding/xml"
	"errors"
	"hash"
	"io"
	"path"
	"regexp"
	"strings"
)

const (
	maxOVF     = 4 << 20
	maxEntries = 64 // of an OVA
)

// envelope is the part of an OVF description that is looked at.
type envelope struct {
	XMLName xml.Name `xml:"Envelope"`
	Files   []struct {
		ID          string `xml:"id,attr"`
		Href        string `xml:"href,attr"`
		Compression string `xml:"compression,attr"`
		ChunkSize   string `xml:"chunkSize,attr"`
	} `xml:"References>File"`
	Disks []struct {
		ID     string `xml:"diskId,attr"`
		File   string `xml:"fileRef,attr"`
		Parent string `xml:"parentRef,attr"`
	} `xml:"DiskSection>Disk"`
	Systems []struct {
		OS struct {
			Type string `xml:"osType,attr"`
		} `xml:"OperatingSystemSection"`
	} `xml:"VirtualSystem"`
}

var manifestLine = regexp.MustCompile(`^(SHA1|SHA256|SHA512)\s*\(([^()]+)\)\s*=\s*([0-9a-fA-F]+)$`)

// sum is a line of a manifest.
type sum struct {
	algorithm, hex string
}

// ova reads the archive, its description and its manifest, and the disk in it.
func (f file) ova(ctx context.Context, info *Info) error {
	parts := map[string]Part{}
	var ovf, manifest []byte
	at := &offsets{r: f.r, size: f.size}
	archive := tar.NewReader(at)
	for n := 0; ; n++ {
		h, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return f.cut("the archive ends in the middle")
		}
		if n >= maxEntries {
			return f.bad("give an OVA with one disk", "has more than %d files", maxEntries)
		}
		name := path.Clean(h.Name)
		if h.Typeflag != tar.TypeReg || name != path.Base(name) {
			return f.bad("export it again", "has an entry %q that no OVA has", h.Name)
		}
		parts[name] = Part{Name: name, Offset: at.pos, Len: h.Size}
		if h.Size > f.size-at.pos {
			return f.cut("the archive ends in the middle")
		}
		var into *[]byte
		switch path.Ext(strings.ToLower(name)) {
		case ".ovf":
			into = &ovf
		case ".mf":
			into = &manifest
		default:
			continue
		}
		if *into != nil || h.Size > maxOVF {
			return f.bad("export it again", "has a second or far too long %s", name)
		}
		if *into, err = io.ReadAll(archive); err != nil {
			return f.cut("the archive ends in the middle")
		}
	}
	disk, err := f.ovf(ovf, parts, info)
	if err != nil {
		return err
	}
	info.Disk = disk
	inner := file{name: f.name + ": " + disk.Name, r: io.NewSectionReader(f.r, disk.Offset, disk.Len), size: disk.Len}
	format, err := Sniff(inner.name, inner.r, inner.size)
	if err != nil {
		return err
	}
	if format != VMDK {
		return inner.bad("an OVA holds its disk as VMDK", "is %s", format)
	}
	if err := inner.vmdk(ctx, info); err != nil {
		return err
	}
	return f.manifest(ctx, manifest, parts)
}

// offsets reads a file and knows how far.
type offsets struct {
	r         io.ReaderAt
	pos, size int64
}

// Read reads on.
func (o *offsets) Read(p []byte) (int, error) {
	if o.pos >= o.size {
		return 0, io.EOF
	}
	n, err := o.r.ReadAt(p[:min(int64(len(p)), o.size-o.pos)], o.pos)
	o.pos += int64(n)
	if errors.Is(err, io.EOF) && n > 0 {
		err = nil
	}
	return n, err
}

// Seek lets the archive's reader skip unwanted content.
func (o *offsets) Seek(off int64, whence int) (int64, error) {
	switch whence {
	case io.SeekCurrent:
		off += o.pos
	case io.SeekEnd:
		off += o.size
	}
	if off < 0 {
		return 0, errors.New("diskimage: a place before the beginning")
	}
	o.pos = off
	return off, nil
}

// ovf finds the one disk that the description names.
func (f file) ovf(text []byte, parts map[string]Part, info *Info) (Part, error) {
	var e envelope
	if text == nil {
		return Part{}, f.bad("an OVA begins with its .ovf file", "has no description")
	}
	if err := xml.Unmarshal(text, &e); err != nil {
		return Part{}, f.bad("export it again", "has a description that is not OVF")
	}
	files := map[string]int{}
	for i, x := range e.Files {
		files[x.ID] = i
	}
	var disk Part
	found := 0
	for _, d := range e.Disks {
		if d.File == "" {
			continue // an empty disk
		}
		i, known := files[d.File]
		if !known {
			return Part{}, f.cut("its description names a disk without a file")
		}
		x := e.Files[i]
		if d.Parent != "" || x.ChunkSize != "" || (x.Compression != "" && x.Compression != "identity") {
			return Part{}, f.bad(
				"export it again with one plain VMDK", "has a disk in parts, compressed or with a parent",
			)
		}
		part, there := parts[path.Clean(x.Href)]
		if !there {
			return Part{}, f.cut("its disk " + x.Href + " is missing")
		}
		disk = part
		found++
	}
	if found != 1 {
		return Part{}, f.bad("a node image has one disk", "has %d disks", found)
	}
	if len(e.Systems) == 1 {
		info.Arch = archOf(e.Systems[0].OS.Type)
	}
	return disk, nil
}

// archOf reads VMware's name of a guest, such as debian12_64Guest.
func archOf(guest string) string {
	g := strings.ToLower(guest)
	switch {
	case strings.Contains(g, "arm"):
		return "arm64"
	case strings.Contains(g, "64"):
		return "amd64"
	}
	return ""
}

// manifest compares the checksums of the files that it names.
func (f file) manifest(ctx context.Context, text []byte, parts map[string]Part) error {
	for line := range bytes.Lines(text) {
		m := manifestLine.FindStringSubmatch(strings.TrimSpace(string(line)))
		if m == nil {
			if len(bytes.TrimSpace(line)) > 0 {
				return f.cut("its manifest cannot be read")
			}
			continue
		}
		part, there := parts[path.Clean(m[2])]
		if !there {
			return f.cut("its file " + m[2] + " is missing")
		}
		if err := f.compare(ctx, part, sum{m[1], m[3]}); err != nil {
			return err
		}
	}
	return nil
}

func (f file) compare(ctx context.Context, p Part, want sum) error {
	var h hash.Hash
	switch want.algorithm {
	case "SHA1":
		h = sha1.New()
	case "SHA512":
		h = sha512.New()
	default:
		h = sha256.New()
	}
	if _, err := io.Copy(h, WithContext(ctx, io.NewSectionReader(f.r, p.Offset, p.Len))); err != nil {
		return err
	}
	if got := hex.EncodeToString(h.Sum(nil)); !strings.EqualFold(got, want.hex) {
		return f.cut(p.Name + " does not have the checksum of the manifest")
	}
	return nil
}

// WithContext is r until the context ends.
func WithContext(ctx context.Context, r io.Reader) io.Reader { return contextReader{ctx, r} }

type contextReader struct {
	ctx context.Context // a reader has no other way to be given one
	r   io.Reader
}

// Read reads, or returns why the context ended.
func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
