package bundle

import (
	"bytes"
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"go.yaml.in/yaml/v3"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/whole"
)

// Seal writes release.yaml for the files and images in dir; Files and Images of r are ignored. The result depends on
// the contents of dir and on r alone. It replaces a release.yaml that is there. Errors: invalid if dir cannot be a
// bundle.
func Seal(ctx context.Context, dir string, r Release) error {
	const op = "bundle.seal"
	doc := document{
		APIVersion: apiVersion, Kind: kind, Metadata: metadata{Name: r.Name},
		Spec: spec{Kubernetes: r.Kubernetes, Arch: r.Arch, Components: r.Components},
	}
	err := fs.WalkDir(os.DirFS(dir), ".", func(path string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case d.IsDir() && path == ImagesDir:
			return fs.SkipDir
		case d.IsDir() || path == DocumentName || path == SignatureName:
			return nil
		case !d.Type().IsRegular():
			return fmt.Errorf("%s is not a regular file: links and devices have no place in a bundle", path)
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		sum, size, err := sumFile(ctx, filepath.Join(dir, filepath.FromSlash(path)))
		if err != nil {
			return err
		}
		doc.Spec.Files = append(doc.Spec.Files, fileEntry{
			Path: path, SHA256: sum, Size: size, Mode: fmt.Sprintf("%04o", info.Mode().Perm()),
		})
		return nil
	})
	if err == nil {
		doc.Spec.Images, err = listImages(filepath.Join(dir, ImagesDir))
	}
	if err != nil {
		return &director.Error{
			Kind: director.KindInvalid, Op: op, Msg: dir + " cannot be made a release bundle", Err: err,
		}
	}
	var text bytes.Buffer
	encoder := yaml.NewEncoder(&text)
	encoder.SetIndent(2)
	if err := encoder.Encode(doc); err != nil {
		return &director.Error{Kind: director.KindInternal, Op: op, Msg: "cannot write " + DocumentName, Err: err}
	}
	if _, err := parse(text.Bytes()); err != nil {
		return &director.Error{
			Kind: director.KindInvalid, Op: op, Msg: dir + " cannot be made a release bundle", Fields: fieldsOf(err),
			Err: causeOf(err),
		}
	}
	name := filepath.Join(dir, DocumentName)
	if err := whole.Write(name, text.Bytes(), 0o644); err != nil {
		return &director.Error{Kind: director.KindInternal, Op: op, Msg: "cannot write " + DocumentName, Err: err}
	}
	return nil
}

// listImages returns the images of a layout, sorted by name and tag.
func listImages(dir string) ([]imageEntry, error) {
	p, err := layout.FromPath(dir)
	if err != nil {
		return nil, fmt.Errorf("%s is not an OCI image layout: %w", dir, err)
	}
	index, err := indexed(p)
	if err != nil {
		return nil, err
	}
	var images []imageEntry
	for ref, d := range index {
		raw, err := p.Bytes(d.Digest)
		if err != nil {
			return nil, err
		}
		manifest, err := v1.ParseManifest(bytes.NewReader(raw))
		if err != nil {
			return nil, fmt.Errorf("image %s: %w", ref, err)
		}
		size := int64(len(raw)) + manifest.Config.Size
		for _, l := range manifest.Layers {
			size += l.Size
		}
		name, tag, _ := strings.Cut(ref, ":")
		images = append(images, imageEntry{Name: name, Tag: tag, Digest: d.Digest.String(), Size: size})
	}
	slices.SortFunc(images, func(a, b imageEntry) int { return strings.Compare(a.Name+":"+a.Tag, b.Name+":"+b.Tag) })
	return images, nil
}
