package bundle

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"go.yaml.in/yaml/v3"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
)

const (
	// DocumentName is the file of a bundle that describes the others.
	DocumentName = "release.yaml"
	// SignatureName is the file of a bundle with the signature of DocumentName, in minisign's format. A bundle need not
	// have one.
	SignatureName = DocumentName + ".minisig"
	// ImagesDir is the directory of a bundle that holds the OCI image layout.
	ImagesDir = "images"
	// AnnotationRefName is the annotation of a manifest in the layout's index that holds "name:tag".
	AnnotationRefName = "org.opencontainers.image.ref.name"

	// Arch is the CPU that nodes have, as Go names it.
	Arch = "amd64"

	// MostDocument is how many bytes the file that describes the others may have.
	MostDocument = 4 << 20

	apiVersion = "kaas/v1"
	kind       = "Release"
)

// Release says what a bundle holds.
type Release struct {
	Name       string            // unique, such as k8s-1.37.1
	Kubernetes string            // with the leading v
	Arch       string            // as Go names it: amd64
	Components map[string]string // versions of the other parts by name, such as etcd: v3.7.3
	Files      []File            // everything but release.yaml and the images, sorted by path
	Images     []Image           // sorted by name and tag
}

// File is one file of a bundle.
type File struct {
	Path   string      // relative, with slashes
	SHA256 string      // lower-case hexadecimal
	Size   int64       // in bytes
	Mode   fs.FileMode // permission bits
}

// Image is one container image of a bundle.
type Image struct {
	Name   string  // without registry and prefix, such as kube-apiserver
	Tag    string  // such as v1.37.1
	Digest v1.Hash // of its manifest
	Size   int64   // of its manifest, configuration and layers together
}

// Ref returns "name:tag".
func (i Image) Ref() string { return i.Name + ":" + i.Tag }

// Bundle is an opened bundle. It is safe for concurrent use; the directory must not change below it.
type Bundle struct {
	dir     string
	text    []byte
	release Release
	layout  layout.Path
}

// Open reads release.yaml and the index of the images in dir. It compares the two with each other and does not read the
// files: Verify does. Errors: not_found if dir holds no bundle, invalid with every wrong place if release.yaml is
// wrong.
func Open(dir string) (*Bundle, error) {
	const op = "bundle.open"
	name := filepath.Join(dir, DocumentName)
	text, err := confine.Read(name, MostDocument)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, &director.Error{
			Kind: director.KindNotFound, Op: op, Msg: fmt.Sprintf("there is no release bundle in %s", dir),
			Hint: "a bundle is a directory with a " + DocumentName + "; images/release/build.sh makes one", Err: err,
		}
	}
	if err != nil {
		return nil, &director.Error{Kind: director.KindInternal, Op: op, Msg: "cannot read " + name, Err: err}
	}
	if err := plainFiles(dir); err != nil {
		return nil, err
	}
	release, err := parse(text)
	if err != nil {
		return nil, &director.Error{
			Kind: director.KindInvalid, Op: op, Msg: name + " is not valid", Fields: fieldsOf(err), Err: causeOf(err),
			Hint: "copy the bundle again from where it was built",
		}
	}
	images := filepath.Join(dir, ImagesDir)
	path, err := layout.FromPath(images)
	if err != nil {
		return nil, &director.Error{
			Kind: director.KindInvalid, Op: op, Msg: images + " is not an OCI image layout",
			Hint: "copy the bundle again from where it was built", Err: err,
		}
	}
	b := &Bundle{dir: dir, text: text, release: release, layout: path}
	fields, err := b.compareIndex()
	if err != nil {
		return nil, &director.Error{
			Kind: director.KindInvalid, Op: op, Msg: "cannot read the index of " + images, Err: err,
		}
	}
	if len(fields) > 0 {
		e := &director.Error{
			Kind: director.KindInvalid, Op: op,
			Msg:    fmt.Sprintf("the images of %s are not the ones that %s lists", dir, DocumentName),
			Fields: fields, Hint: "copy the bundle again from where it was built",
		}
		return nil, e
	}
	return b, nil
}

// plainFiles refuses bundles that hold anything but files and directories: a link leads out of the bundle, and a FIFO
// never ends.
func plainFiles(dir string) error {
	var fields []director.Field
	err := filepath.WalkDir(dir, func(name string, d fs.DirEntry, err error) error {
		if err == nil && !d.IsDir() && !d.Type().IsRegular() {
			rel, _ := filepath.Rel(dir, name)
			fields = append(fields, director.Field{Path: filepath.ToSlash(rel), Msg: "is not a regular file"})
		}
		return err
	})
	if err != nil {
		return &director.Error{Kind: director.KindInternal, Op: "bundle.open", Msg: "cannot read " + dir, Err: err}
	}
	if len(fields) == 0 {
		return nil
	}
	return &director.Error{
		Kind: director.KindInvalid, Op: "bundle.open", Msg: dir + " holds what no release bundle has", Fields: fields,
		Hint: "copy the bundle again from where it was built",
	}
}

// Dir returns the directory of the bundle.
func (b *Bundle) Dir() string { return b.dir }

// Text returns release.yaml as Open read it, which pins everything in the bundle.
func (b *Bundle) Text() []byte { return slices.Clone(b.text) }

// Digest returns the SHA-256 of Text, in hexadecimal.
func (b *Bundle) Digest() string {
	sum := sha256.Sum256(b.text)
	return hex.EncodeToString(sum[:])
}

// Release returns what release.yaml says.
func (b *Bundle) Release() Release {
	r := b.release
	r.Components = make(map[string]string, len(b.release.Components))
	for k, v := range b.release.Components {
		r.Components[k] = v
	}
	r.Files, r.Images = slices.Clone(r.Files), slices.Clone(r.Images)
	return r
}

// Images returns the images, sorted by name and tag.
func (b *Bundle) Images() []Image { return slices.Clone(b.release.Images) }

// Image returns the image with the name. Errors: not_found.
func (b *Bundle) Image(name string) (Image, error) {
	for _, i := range b.release.Images {
		if i.Name == name {
			return i, nil
		}
	}
	return Image{}, director.Errorf(
		director.KindNotFound, "bundle.image", "release %s has no image %q", b.release.Name, name,
	)
}

// Layout returns the OCI image layout.
func (b *Bundle) Layout() layout.Path { return b.layout }

// Path returns where a file of the bundle is, by its path in release.yaml. Errors: not_found if it is not listed.
func (b *Bundle) Path(name string) (string, error) {
	for _, f := range b.release.Files {
		if f.Path == name {
			return filepath.Join(b.dir, filepath.FromSlash(name)), nil
		}
	}
	return "", director.Errorf(director.KindNotFound, "bundle.path", "release %s has no file %q", b.release.Name, name)
}

// compareIndex returns what differs between release.yaml and the index of the layout.
func (b *Bundle) compareIndex() ([]director.Field, error) {
	there, err := indexed(b.layout)
	if err != nil {
		return nil, err
	}
	var fields []director.Field
	for n, i := range b.release.Images {
		at := fmt.Sprintf("spec.images[%d]", n)
		d, ok := there[i.Ref()]
		switch {
		case !ok:
			fields = append(fields, director.Field{Path: at, Msg: fmt.Sprintf("image %s is missing", i.Ref())})
		case d.Digest != i.Digest:
			fields = append(fields, director.Field{
				Path: at + ".digest", Msg: fmt.Sprintf("image %s is %s, not %s", i.Ref(), d.Digest, i.Digest),
			})
		}
		delete(there, i.Ref())
	}
	for _, ref := range sortedKeys(there) {
		fields = append(fields, director.Field{
			Path: ImagesDir + "/index.json", Msg: fmt.Sprintf("image %s is not listed", ref),
		})
	}
	return fields, nil
}

// indexed returns the manifests of the layout by "name:tag".
func indexed(p layout.Path) (map[string]v1.Descriptor, error) {
	index, err := p.ImageIndex()
	if err != nil {
		return nil, err
	}
	manifest, err := index.IndexManifest()
	if err != nil {
		return nil, err
	}
	all := make(map[string]v1.Descriptor, len(manifest.Manifests))
	for _, d := range manifest.Manifests {
		ref := d.Annotations[AnnotationRefName]
		switch {
		case !refPattern.MatchString(ref):
			return nil, fmt.Errorf(
				"manifest %s has %q where its name and tag should be (annotation %s)", d.Digest, ref, AnnotationRefName,
			)
		case !d.MediaType.IsImage():
			return nil, fmt.Errorf(
				"%s has the media type %s: a bundle holds the image of one architecture", ref, d.MediaType,
			)
		case all[ref].Digest != v1.Hash{}:
			return nil, fmt.Errorf("there are two images %s", ref)
		}
		all[ref] = d
	}
	return all, nil
}

// document is release.yaml.
type document struct {
	APIVersion string   `yaml:"apiVersion"`
	Kind       string   `yaml:"kind"`
	Metadata   metadata `yaml:"metadata"`
	Spec       spec     `yaml:"spec"`
}

type metadata struct {
	Name string `yaml:"name"`
}

type spec struct {
	Kubernetes string            `yaml:"kubernetes"`
	Arch       string            `yaml:"arch"`
	Components map[string]string `yaml:"components"`
	Files      []fileEntry       `yaml:"files"`
	Images     []imageEntry      `yaml:"images"`
}

type fileEntry struct {
	Path   string `yaml:"path"`
	SHA256 string `yaml:"sha256"`
	Size   int64  `yaml:"size"`
	Mode   string `yaml:"mode"`
}

type imageEntry struct {
	Name   string `yaml:"name"`
	Tag    string `yaml:"tag"`
	Digest string `yaml:"digest"`
	Size   int64  `yaml:"size"`
}

var (
	namePattern    = regexp.MustCompile(`^[a-z0-9]([a-z0-9.-]{0,61}[a-z0-9])?$`)
	versionPattern = regexp.MustCompile(`^v\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`)
	hexPattern     = regexp.MustCompile(`^[0-9a-f]{64}$`)
	imagePattern   = regexp.MustCompile(`^[a-z0-9]+([._-]+[a-z0-9]+)*$`)
	tagPattern     = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
	refPattern     = regexp.MustCompile(`^[a-z0-9]+([._-]+[a-z0-9]+)*:[A-Za-z0-9_][A-Za-z0-9._-]{0,127}$`)
	modePattern    = regexp.MustCompile(`^0[0-7]{3}$`)
)

// wrong is a list of wrong places.
type wrong []director.Field

// Error makes wrong an error.
func (w wrong) Error() string { return fmt.Sprintf("%d wrong places", len(w)) }

func fieldsOf(err error) []director.Field {
	if w, ok := errors.AsType[wrong](err); ok {
		return w
	}
	return []director.Field{{Msg: err.Error()}}
}

func causeOf(err error) error {
	if _, ok := errors.AsType[wrong](err); ok {
		return nil
	}
	return err
}

// parse reads release.yaml strictly. Its error is of type wrong when the text is YAML of the right form.
func parse(text []byte) (Release, error) {
	var doc document
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	decoder.KnownFields(true)
	if err := decoder.Decode(&doc); err != nil {
		if errors.Is(err, io.EOF) {
			err = errors.New("the file is empty")
		}
		return Release{}, err
	}
	if err := decoder.Decode(new(yaml.Node)); !errors.Is(err, io.EOF) {
		return Release{}, errors.New("there is more than one document in the file")
	}

	var bad wrong
	release := bad.release(doc)
	release.Files = bad.files(doc)
	release.Images = bad.images(doc)
	if len(bad) > 0 {
		return Release{}, bad
	}
	return release, nil
}

// check adds a field unless ok.
func (w *wrong) check(ok bool, path, format string, args ...any) {
	if !ok {
		*w = append(*w, director.Field{Path: path, Msg: fmt.Sprintf(format, args...)})
	}
}

// release checks everything but the lists of files and images.
func (w *wrong) release(doc document) Release {
	w.check(doc.APIVersion == apiVersion, "apiVersion", "is %q, not %s", doc.APIVersion, apiVersion)
	w.check(doc.Kind == kind, "kind", "is %q, not %s", doc.Kind, kind)
	w.check(namePattern.MatchString(doc.Metadata.Name), "metadata.name", "%q is not a name", doc.Metadata.Name)
	w.check(
		versionPattern.MatchString(doc.Spec.Kubernetes), "spec.kubernetes", "%q is not a version such as v1.37.1",
		doc.Spec.Kubernetes,
	)
	w.check(doc.Spec.Arch == Arch, "spec.arch", "is %q, and the only one that nodes have is %s", doc.Spec.Arch, Arch)
	for _, name := range sortedKeys(doc.Spec.Components) {
		w.check(doc.Spec.Components[name] != "", "spec.components."+name, "has no version")
	}
	return Release{
		Name: doc.Metadata.Name, Kubernetes: doc.Spec.Kubernetes, Arch: doc.Spec.Arch, Components: doc.Spec.Components,
	}
}

// files returns the files, sorted by path.
func (w *wrong) files(doc document) []File {
	var files []File
	seen := map[string]bool{}
	for n, f := range doc.Spec.Files {
		at := fmt.Sprintf("spec.files[%d]", n)
		w.check(validPath(f.Path), at+".path", "%q is not a relative path below the bundle", f.Path)
		w.check(!seen[f.Path], at+".path", "%s is listed twice", f.Path)
		w.check(hexPattern.MatchString(f.SHA256), at+".sha256", "%q is not a SHA-256 in hexadecimal", f.SHA256)
		w.check(f.Size >= 0, at+".size", "is negative")
		w.check(modePattern.MatchString(f.Mode), at+".mode", "%q is not a mode such as \"0755\"", f.Mode)
		seen[f.Path] = true
		mode, _ := strconv.ParseUint(f.Mode, 8, 32)
		files = append(files, File{Path: f.Path, SHA256: f.SHA256, Size: f.Size, Mode: fs.FileMode(mode)})
	}
	slices.SortFunc(files, func(a, b File) int { return strings.Compare(a.Path, b.Path) })
	return files
}

// images returns the images, sorted by reference.
func (w *wrong) images(doc document) []Image {
	var images []Image
	seen := map[string]bool{}
	for n, i := range doc.Spec.Images {
		at := fmt.Sprintf("spec.images[%d]", n)
		digest, err := v1.NewHash(i.Digest)
		image := Image{Name: i.Name, Tag: i.Tag, Digest: digest, Size: i.Size}
		w.check(imagePattern.MatchString(i.Name), at+".name", "%q is not the name of an image", i.Name)
		w.check(tagPattern.MatchString(i.Tag), at+".tag", "%q is not a tag", i.Tag)
		w.check(
			err == nil && digest.Algorithm == "sha256" && hexPattern.MatchString(digest.Hex), at+".digest",
			"%q is not a digest such as sha256:...", i.Digest,
		)
		w.check(!seen[image.Ref()], at, "image %s is listed twice", image.Ref())
		seen[image.Ref()] = true
		images = append(images, image)
	}
	slices.SortFunc(images, func(a, b Image) int { return strings.Compare(a.Ref(), b.Ref()) })
	return images
}

// validPath reports whether name is a clean relative path outside the image layout.
func validPath(name string) bool {
	return fs.ValidPath(name) && name != "." && path.Clean(name) == name && name != DocumentName &&
		name != SignatureName &&
		name != ImagesDir && !strings.HasPrefix(name, ImagesDir+"/")
}

func sortedKeys[V any](m map[string]V) []string {
	keys := make([]string, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}
