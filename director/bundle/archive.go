package bundle

import (
	"archive/tar"
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"sort"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
)

// Archive is a bundle as one tar file that is read where it lies. release.yaml comes first and its signature second, so
// that a reader knows whom to trust and what will come before it writes anything. The bytes depend on the contents of
// the bundle alone. It is safe for concurrent use; the bundle must not change below it.
type Archive struct {
	dir   string
	parts []part
	size  int64
}

// part is a piece of an archive: bytes, or a file of the bundle.
type part struct {
	at    int64 // where it begins in the archive
	bytes []byte
	name  string // of the file, relative, with slashes; empty for bytes
	size  int64
}

// Archive returns the bundle as a tar file. Errors: internal if a file of the bundle cannot be looked at.
func (b *Bundle) Archive() (*Archive, error) {
	names, err := b.names()
	a := &Archive{dir: b.dir}
	for _, name := range names {
		if err == nil {
			err = a.add(name)
		}
	}
	if err != nil {
		return nil, &director.Error{
			Kind: director.KindInternal, Op: "bundle.archive", Msg: "cannot read " + b.dir, Err: err,
		}
	}
	a.append(part{bytes: make([]byte, 1024)}) // the end of a tar file
	return a, nil
}

// names returns the files of the bundle in the order of its archive.
func (b *Bundle) names() ([]string, error) {
	first := []string{DocumentName}
	if _, err := os.Lstat(filepath.Join(b.dir, SignatureName)); err == nil {
		first = append(first, SignatureName)
	}
	var rest []string
	err := fs.WalkDir(os.DirFS(b.dir), ".", func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !slices.Contains(first, name) {
			rest = append(rest, name)
		}
		return err
	})
	slices.Sort(rest)
	return append(first, rest...), err
}

func (a *Archive) add(name string) error {
	info, err := os.Lstat(filepath.Join(a.dir, filepath.FromSlash(name)))
	if err != nil {
		return err
	}
	mode := int64(0o644)
	if info.Mode().Perm()&0o111 != 0 && !inLayout(name) {
		mode = 0o755
	}
	var header bytes.Buffer
	err = tar.NewWriter(&header).WriteHeader(&tar.Header{
		Typeflag: tar.TypeReg, Name: name, Size: info.Size(), Mode: mode, ModTime: time.Unix(0, 0),
		Format: tar.FormatPAX,
	})
	if err != nil {
		return err
	}
	a.append(part{bytes: header.Bytes()})
	a.append(part{name: name, size: info.Size()})
	a.append(part{bytes: make([]byte, -info.Size()&511)}) // files fill whole blocks
	return nil
}

func (a *Archive) append(p part) {
	if p.name == "" {
		p.size = int64(len(p.bytes))
	}
	p.at = a.size
	a.size += p.size
	a.parts = append(a.parts, p)
}

// Size returns how many bytes the archive has.
func (a *Archive) Size() int64 { return a.size }

// ReadAt implements io.ReaderAt. A file that has become shorter is an error.
func (a *Archive) ReadAt(p []byte, off int64) (n int, err error) {
	first := sort.Search(len(a.parts), func(i int) bool { return a.parts[i].at+a.parts[i].size > off })
	for _, part := range a.parts[first:] {
		if n == len(p) {
			return n, nil
		}
		from := off + int64(n) - part.at
		want := min(int64(len(p)-n), part.size-from)
		if part.name == "" {
			n += copy(p[n:], part.bytes[from:from+want])
			continue
		}
		got, err := a.readFile(part.name, p[n:n+int(want)], from)
		n += got
		if err != nil {
			return n, err
		}
	}
	if n < len(p) {
		return n, io.EOF
	}
	return n, nil
}

func (a *Archive) readFile(name string, p []byte, from int64) (int, error) {
	f, err := os.Open(filepath.Join(a.dir, filepath.FromSlash(name)))
	if err != nil {
		return 0, err
	}
	defer f.Close()
	n, err := f.ReadAt(p, from)
	if n == len(p) {
		return n, nil // also at the end of the file
	}
	return n, fmt.Errorf("%s has changed while it was read: %w", name, err)
}

// Trust is asked by Unpack for the release and its signature before anything else is written. signature is nil if there
// is none.
type Trust func(r Release, text, signature []byte) error

// slack is what the index of an image layout may have in addition to the contents that release.yaml lists, in bytes.
const slack = 64 << 20

// mostSignature is how many bytes a signature may have.
const mostSignature = 4096

var blobPattern = regexp.MustCompile(`^` + ImagesDir + `/blobs/sha256/[0-9a-f]{64}$`)

// Unpack writes the archive into dir, which must be empty, and returns the bundle as Verify found it. It asks trust
// first and writes only what release.yaml lists, in the sizes that it lists. What was written stays when it fails: the
// caller removes dir. Errors: invalid if the archive is not a bundle or is damaged, what trust returns, exhausted if
// the disk is full.
func Unpack(ctx context.Context, r io.Reader, dir string, trust Trust) (*Bundle, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	defer root.Close()
	u := &unpacking{root: root, tar: tar.NewReader(contextReader{ctx, r}), seen: map[string]bool{}}
	if err := u.head(trust); err != nil {
		return nil, err
	}
	for {
		h, err := u.next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = u.file(h)
		}
		if err != nil {
			return nil, err
		}
	}
	b, err := Open(dir)
	if err != nil {
		return nil, err
	}
	return b, b.Verify(ctx)
}

// unpacking is the state of Unpack.
type unpacking struct {
	root   *os.Root
	tar    *tar.Reader
	ahead  *tar.Header // read, and not handled yet
	listed map[string]File
	seen   map[string]bool
	left   int64 // how many bytes of images may still come
}

func damaged(format string, args ...any) error {
	return director.Errorf(director.KindInvalid, "bundle.unpack", format, args...).
		WithHint("make the archive again: directorctl release pack DIR FILE")
}

func (u *unpacking) next() (*tar.Header, error) {
	if h := u.ahead; h != nil {
		u.ahead = nil
		return h, nil
	}
	h, err := u.tar.Next()
	if err != nil && !errors.Is(err, io.EOF) {
		return nil, damaged("the archive cannot be read: %w", err)
	}
	return h, err
}

// head reads release.yaml and its signature, and asks whether they are trusted.
func (u *unpacking) head(trust Trust) error {
	h, err := u.next()
	if err != nil || h.Name != DocumentName {
		return damaged("this is not an archive of a release bundle: it does not begin with %s", DocumentName)
	}
	text, err := u.small(h, MostDocument)
	if err != nil {
		return err
	}
	release, err := parse(text)
	if err != nil {
		return &director.Error{
			Kind: director.KindInvalid, Op: "bundle.unpack", Msg: DocumentName + " is not valid", Fields: fieldsOf(err),
			Err: causeOf(err), Hint: "copy the bundle again from where it was built",
		}
	}
	var signature []byte
	if h, err = u.next(); err == nil && h.Name == SignatureName {
		if signature, err = u.small(h, mostSignature); err != nil {
			return err
		}
	} else {
		u.ahead = h
	}
	if err := trust(release, text, signature); err != nil {
		return err
	}
	u.listed = make(map[string]File, len(release.Files))
	for _, f := range release.Files {
		u.listed[f.Path] = f
	}
	u.left = slack
	for _, i := range release.Images {
		u.left += i.Size
	}
	if err := u.write(DocumentName, 0o644, bytes.NewReader(text), int64(len(text)), ""); err != nil {
		return err
	}
	if signature == nil {
		return nil
	}
	return u.write(SignatureName, 0o644, bytes.NewReader(signature), int64(len(signature)), "")
}

func (u *unpacking) small(h *tar.Header, most int64) ([]byte, error) {
	if h.Typeflag != tar.TypeReg || h.Size > most {
		return nil, damaged("%s in the archive is not a file of at most %d bytes", h.Name, most)
	}
	text, err := io.ReadAll(u.tar)
	if err != nil {
		return nil, damaged("the archive ends in %s: %w", h.Name, err)
	}
	return text, nil
}

// file writes one file, if release.yaml lets it in.
func (u *unpacking) file(h *tar.Header) error {
	switch f, listed := u.listed[h.Name]; {
	case h.Typeflag != tar.TypeReg:
		return damaged("%.200q in the archive is not a regular file", h.Name)
	case u.seen[h.Name]:
		return damaged("%.200q is in the archive twice", h.Name)
	case listed && h.Size != f.Size:
		return damaged("%s has %d bytes in the archive, and %s says %d", h.Name, h.Size, DocumentName, f.Size)
	case listed:
		return u.write(h.Name, f.Mode.Perm()&0o755|0o600, u.tar, h.Size, f.SHA256)
	case !inLayout(h.Name):
		return damaged("%.200q in the archive is not listed in %s", h.Name, DocumentName)
	case h.Size > u.left:
		return damaged("the images in the archive are larger than %s says", DocumentName)
	default:
		u.left -= h.Size
		digest, _ := strings.CutPrefix(h.Name, ImagesDir+"/blobs/sha256/")
		if digest == h.Name {
			digest = ""
		}
		return u.write(h.Name, 0o644, u.tar, h.Size, digest)
	}
}

// inLayout tells whether a file belongs to an OCI image layout.
func inLayout(name string) bool {
	return name == ImagesDir+"/oci-layout" || name == ImagesDir+"/index.json" || blobPattern.MatchString(name)
}

// write makes a file of size bytes that has the SHA-256, unless that is empty, and syncs it.
func (u *unpacking) write(name string, mode fs.FileMode, r io.Reader, size int64, sum string) (err error) {
	u.seen[name] = true
	if dir := filepath.Dir(name); dir != "." {
		if err := u.root.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	f, err := u.root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	h := sha256.New()
	from := &reading{r: r}
	n, err := io.CopyBuffer(io.MultiWriter(f, h), from, make([]byte, 1<<20))
	switch {
	case from.err != nil:
		return damaged("the archive ends in %s: %w", name, from.err)
	case err != nil:
		return err
	case n != size:
		return damaged("the archive ends in %s after %d of %d bytes", name, n, size)
	case sum != "" && hex.EncodeToString(h.Sum(nil)) != sum:
		return damaged("%s in the archive has other contents than %s says", name, DocumentName)
	}
	return f.Sync()
}

// reading remembers whether reading failed, and not writing.
type reading struct {
	r   io.Reader
	err error
}

// Read reads on.
func (r *reading) Read(p []byte) (int, error) {
	n, err := r.r.Read(p)
	if err != nil && !errors.Is(err, io.EOF) {
		r.err = err
	}
	return n, err
}
