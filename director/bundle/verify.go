package bundle

import (
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

	v1 "github.com/google/go-containerregistry/pkg/v1"

	"github.com/director-kaas/kaas/director"
)

// Verify reads every file and every image of the bundle and compares them with release.yaml: SHA-256, size, the owner's
// executable bit, digests of manifests, configurations and layers, and nothing that is not listed. It changes nothing.
// Errors: invalid with every wrong place; the error of ctx when that ends first.
func (b *Bundle) Verify(ctx context.Context) error {
	const op = "bundle.verify"
	var fields []director.Field
	listed := map[string]bool{DocumentName: true, SignatureName: true}
	for _, f := range b.release.Files {
		listed[f.Path] = true
		if err := ctx.Err(); err != nil {
			return &director.Error{Kind: director.KindUnavailable, Op: op, Msg: "interrupted", Err: err}
		}
		if msg := b.verifyFile(ctx, f); msg != "" {
			fields = append(fields, director.Field{Path: f.Path, Msg: msg})
		}
	}
	extra, err := b.unlisted(listed)
	if err != nil {
		return &director.Error{Kind: director.KindInternal, Op: op, Msg: "cannot read " + b.dir, Err: err}
	}
	fields = append(fields, extra...)
	index, err := b.compareIndex()
	if err != nil {
		return &director.Error{Kind: director.KindInvalid, Op: op, Msg: "cannot read the index of the images", Err: err}
	}
	fields = append(fields, index...)
	done := map[v1.Hash]bool{}
	for _, i := range b.release.Images {
		size, err := b.verifyImage(ctx, i, done)
		if err == nil && size != i.Size {
			err = fmt.Errorf("it has %d bytes, not %d", size, i.Size)
		}
		if ctx.Err() == nil && err != nil {
			fields = append(fields, director.Field{Path: ImagesDir + "/" + i.Ref(), Msg: err.Error()})
		}
	}
	if err := ctx.Err(); err != nil {
		return &director.Error{Kind: director.KindUnavailable, Op: op, Msg: "interrupted", Err: err}
	}
	return b.damage(op, fields)
}

// Complete looks whether all files and all blobs of images are there, with their sizes and executable bits. It reads
// only the manifests of images: Verify reads all. Errors: invalid with every wrong place.
func (b *Bundle) Complete() error {
	var fields []director.Field
	for _, f := range b.release.Files {
		if msg := b.statFile(f); msg != "" {
			fields = append(fields, director.Field{Path: f.Path, Msg: msg})
		}
	}
	for _, i := range b.release.Images {
		_, err := b.eachBlob(i, func(d v1.Descriptor, name string) error {
			info, err := os.Lstat(name)
			if err == nil && info.Size() != d.Size {
				err = fmt.Errorf("blob %s has %d bytes, not %d", d.Digest, info.Size(), d.Size)
			}
			return err
		})
		if err != nil {
			fields = append(fields, director.Field{Path: ImagesDir + "/" + i.Ref(), Msg: err.Error()})
		}
	}
	return b.damage("bundle.complete", fields)
}

// damage is the error for a bundle with wrong places; nil if there are none.
func (b *Bundle) damage(op string, fields []director.Field) error {
	if len(fields) == 0 {
		return nil
	}
	return &director.Error{
		Kind: director.KindInvalid, Op: op, Fields: fields,
		Msg:  fmt.Sprintf("release %s in %s is damaged or was changed", b.release.Name, b.dir),
		Hint: "copy the bundle again from where it was built, or delete it and build it again",
	}
}

// statFile returns what is wrong with f as far as its content is not read, or nothing.
func (b *Bundle) statFile(f File) string {
	info, err := os.Lstat(filepath.Join(b.dir, filepath.FromSlash(f.Path)))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "is missing"
	case err != nil:
		return err.Error()
	case !info.Mode().IsRegular():
		return "is not a regular file"
	case info.Size() != f.Size:
		return fmt.Sprintf("has %d bytes, not %d", info.Size(), f.Size)
	case info.Mode().Perm()&0o100 != f.Mode&0o100: // a director closes its files to other users
		return fmt.Sprintf("has the mode %04o, not %04o", info.Mode().Perm(), f.Mode)
	}
	return ""
}

// verifyFile returns what is wrong with f, or nothing.
func (b *Bundle) verifyFile(ctx context.Context, f File) string {
	if msg := b.statFile(f); msg != "" {
		return msg
	}
	sum, _, err := sumFile(ctx, filepath.Join(b.dir, filepath.FromSlash(f.Path)))
	switch {
	case err != nil:
		return err.Error()
	case sum != f.SHA256:
		return fmt.Sprintf("has the SHA-256 %s, not %s", sum, f.SHA256)
	}
	return ""
}

// unlisted returns the files outside the image layout that release.yaml does not list.
func (b *Bundle) unlisted(listed map[string]bool) ([]director.Field, error) {
	var fields []director.Field
	err := fs.WalkDir(os.DirFS(b.dir), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path == ImagesDir:
			return fs.SkipDir
		case !d.IsDir() && !listed[path]:
			fields = append(fields, director.Field{Path: path, Msg: "is not listed in " + DocumentName})
		}
		return nil
	})
	return fields, err
}

// verifyImage reads every blob of i that is not in done, adds it there, and returns the size of the image.
func (b *Bundle) verifyImage(ctx context.Context, i Image, done map[v1.Hash]bool) (int64, error) {
	return b.eachBlob(i, func(d v1.Descriptor, name string) error {
		if done[d.Digest] {
			return nil
		}
		sum, n, err := sumFile(ctx, name)
		if err == nil && (n != d.Size || d.Digest.Algorithm != "sha256" || sum != d.Digest.Hex) {
			err = fmt.Errorf("blob %s has other contents", d.Digest)
		}
		done[d.Digest] = err == nil
		return err
	})
}

// eachBlob reads the manifest of i, calls look with the configuration and the layers and their files until one is
// wrong, and returns the size of all together.
func (b *Bundle) eachBlob(i Image, look func(d v1.Descriptor, name string) error) (int64, error) {
	raw, err := b.layout.Bytes(i.Digest)
	if err != nil {
		return 0, fmt.Errorf("its manifest %s is missing", i.Digest)
	}
	if sum := sha256.Sum256(raw); hex.EncodeToString(sum[:]) != i.Digest.Hex {
		return 0, fmt.Errorf("its manifest is not %s", i.Digest)
	}
	manifest, err := v1.ParseManifest(bytes.NewReader(raw))
	if err != nil {
		return 0, fmt.Errorf("its manifest %s cannot be read: %w", i.Digest, err)
	}
	size := int64(len(raw))
	for _, d := range append([]v1.Descriptor{manifest.Config}, manifest.Layers...) {
		size += d.Size
		err := look(d, filepath.Join(string(b.layout), "blobs", d.Digest.Algorithm, d.Digest.Hex))
		if errors.Is(err, fs.ErrNotExist) {
			return 0, fmt.Errorf("blob %s is missing", d.Digest)
		}
		if err != nil {
			return 0, err
		}
	}
	return size, nil
}

// sumFile returns the SHA-256 and the size of a file; it stops when ctx ends.
func sumFile(ctx context.Context, name string) (string, int64, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", 0, err
	}
	defer func() { _ = f.Close() }()
	h := sha256.New()
	n, err := io.CopyBuffer(h, contextReader{ctx, f}, make([]byte, 1<<20))
	if err != nil {
		return "", 0, err
	}
	return hex.EncodeToString(h.Sum(nil)), n, nil
}

// contextReader is a reader that ends with its context.
type contextReader struct {
	ctx context.Context
	r   io.Reader
}

// Read reads from the reader below unless the context has ended.
func (c contextReader) Read(p []byte) (int, error) {
	if err := c.ctx.Err(); err != nil {
		return 0, err
	}
	return c.r.Read(p)
}
