package main

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/types"

	"github.com/director-kaas/kaas/director/bundle"
)

// Which layer is below an image's own.
const (
	baseNone   = ""       // nothing: for a program that needs not even a user database
	baseStatic = "static" // users, name service and /tmp: for static programs
	baseDebian = "debian" // Debian's nft, iptables, ipset, conntrack and busybox
)

// image describes an image: its own layer is the files and directories.
type image struct {
	name  string
	tag   string
	base  string
	files []file
	dirs  []dir
	run   v1.Config
}

// file is one file of a layer, from a part or from a directory of ours.
type file struct {
	to   string // without the leading slash
	from string
	mode fs.FileMode
}

// dir is one empty directory of a layer.
type dir struct {
	path string
	mode fs.FileMode
	uid  int
}

const searchPath = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// images returns the table of all images of the bundle.
func (in input) images() ([]image, error) {
	p := &programs{in: in}
	all := append(p.kubernetes(), p.others()...)
	return append(all, p.calico()...), p.failed
}

var env = []string{searchPath}

// programs makes the table's files of programs, and keeps the first error.
type programs struct {
	in     input
	failed error
}

func (p *programs) file(part, name, to string) file {
	from, err := p.in.part(part, name)
	if err != nil && p.failed == nil {
		p.failed = err
	}
	return file{to: to, from: from, mode: 0o755}
}

func (p *programs) kubernetes() []image {
	var all []image
	for _, name := range []string{"kube-apiserver", "kube-controller-manager", "kube-scheduler"} {
		all = append(all, image{
			name: name, tag: p.in.release.Kubernetes, base: baseStatic,
			files: []file{p.file("kubernetes", name, "usr/local/bin/"+name)},
			run:   v1.Config{Env: env, Cmd: []string{name}},
		})
	}
	return append(all,
		image{
			name: "kube-proxy", tag: p.in.release.Kubernetes, base: baseDebian,
			files: []file{p.file("kubernetes", "kube-proxy", "usr/local/bin/kube-proxy")},
			run:   v1.Config{Env: env, Cmd: []string{"kube-proxy"}},
		},
	)
}

// others are etcd, CoreDNS, the pause container, the toolbox and the sync with Consul.
func (p *programs) others() []image {
	c := p.in.release.Components
	return []image{
		{
			name: "etcd", tag: c["etcd"], base: baseStatic,
			files: []file{p.file("etcd", "etcd", "usr/local/bin/etcd"), p.file("etcd", "etcdctl", "usr/local/bin/etcdctl")},
			run:   v1.Config{Env: env, Cmd: []string{"etcd"}},
		},
		{
			name: "coredns", tag: c["coredns"], base: baseStatic,
			files: []file{p.file("coredns", "coredns", "coredns")},
			run:   v1.Config{Env: env, Entrypoint: []string{"/coredns"}},
		},
		{
			name: "pause", tag: c["pause"], base: baseNone,
			files: []file{p.file("pause", "pause", "pause")},
			run:   v1.Config{Env: env, Entrypoint: []string{"/pause"}, User: "65535:65535"},
		},
		{
			name: "toolbox", tag: p.in.release.Kubernetes, base: baseDebian,
			files: []file{p.file("toolbox", "toolbox", "usr/local/bin/toolbox")},
			run:   v1.Config{Env: env, Cmd: []string{"toolbox", "serve", ":8080"}},
		},
		{
			name: "consul-sync", tag: p.in.release.Kubernetes, base: baseStatic,
			files: []file{p.file("consul-sync", "consul-sync", "consul-sync")},
			run:   v1.Config{Env: env, Entrypoint: []string{"/consul-sync"}, User: "65532:65532"},
		},
	}
}

func (p *programs) calico() []image {
	version := p.in.release.Components["calico"]
	return []image{
		{
			name: "calico-node", tag: version, base: baseDebian,
			files: []file{
				p.file("calico", "calico-node", "usr/bin/calico-node"),
				{to: "usr/local/bin/calico-run", from: filepath.Join(p.in.calicoNode, "calico-run"), mode: 0o755},
				{to: "etc/calico/felix.cfg", from: filepath.Join(p.in.calicoNode, "felix.cfg"), mode: 0o644},
			},
			run: v1.Config{Env: env, Cmd: []string{"calico-run"}},
		},
		{
			name: "calico-kube-controllers", tag: version, base: baseStatic,
			files: []file{
				p.file("calico", "kube-controllers", "usr/bin/kube-controllers"),
				p.file("calico", "check-status", "usr/bin/check-status"),
			},
			dirs: []dir{{"status", 0o755, 999}, {"profiles", 0o755, 999}},
			run:  v1.Config{Env: env, Entrypoint: []string{"/usr/bin/kube-controllers"}, User: "999"},
		},
	}
}

// writeImages writes an OCI image layout with every image to to.
func (in input) writeImages(to string) error {
	all, err := in.images()
	if err != nil {
		return err
	}
	w := &writer{blobs: filepath.Join(to, "blobs", "sha256")}
	if err := os.MkdirAll(w.blobs, 0o755); err != nil {
		return err
	}
	bases := map[string]v1.Descriptor{}
	if bases[baseStatic], err = w.layer(staticBase); err != nil {
		return err
	}
	rootfs, err := in.part("debian", "rootfs")
	if err != nil {
		return err
	}
	if bases[baseDebian], err = w.layer(func(t *tar.Writer) error { return addTree(t, rootfs) }); err != nil {
		return err
	}
	index := v1.IndexManifest{SchemaVersion: 2, MediaType: types.OCIImageIndex}
	for _, i := range all {
		d, err := w.image(i, in.release.Arch, bases)
		if err != nil {
			return fmt.Errorf("image %s: %w", i.name, err)
		}
		index.Manifests = append(index.Manifests, d)
	}
	slices.SortFunc(index.Manifests, func(a, b v1.Descriptor) int {
		return strings.Compare(a.Annotations[bundle.AnnotationRefName], b.Annotations[bundle.AnnotationRefName])
	})
	text, err := json.MarshalIndent(index, "", "  ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(to, "index.json"), append(text, '\n'), 0o644); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(to, "oci-layout"), []byte(`{"imageLayoutVersion":"1.0.0"}`+"\n"), 0o644)
}

// writer writes the blobs of a layout.
type writer struct{ blobs string }

// image writes an image and returns the descriptor of its manifest.
func (w *writer) image(i image, arch string, bases map[string]v1.Descriptor) (v1.Descriptor, error) {
	if i.tag == "" {
		return v1.Descriptor{}, fmt.Errorf("its version is not given")
	}
	var layers []v1.Descriptor
	if i.base != baseNone {
		layers = append(layers, bases[i.base])
	}
	own, err := w.layer(func(t *tar.Writer) error { return addFiles(t, i.files, i.dirs) })
	if err != nil {
		return v1.Descriptor{}, err
	}
	layers = append(layers, own)
	config := v1.ConfigFile{OS: "linux", Architecture: arch, Config: i.run, RootFS: v1.RootFS{Type: "layers"}}
	for _, l := range layers {
		config.RootFS.DiffIDs = append(config.RootFS.DiffIDs, l.Digest) // layers are not compressed
	}
	manifest := v1.Manifest{SchemaVersion: 2, MediaType: types.OCIManifestSchema1, Layers: layers}
	if manifest.Config, err = w.json(config, types.OCIConfigJSON); err != nil {
		return v1.Descriptor{}, err
	}
	d, err := w.json(manifest, types.OCIManifestSchema1)
	if err != nil {
		return v1.Descriptor{}, err
	}
	d.Platform = &v1.Platform{OS: "linux", Architecture: arch}
	d.Annotations = map[string]string{bundle.AnnotationRefName: i.name + ":" + i.tag}
	return d, nil
}

// json writes v as a blob.
func (w *writer) json(v any, mediaType types.MediaType) (v1.Descriptor, error) {
	text, err := json.Marshal(v)
	if err != nil {
		return v1.Descriptor{}, err
	}
	return w.blob(mediaType, func(out io.Writer) error {
		_, err := out.Write(text)
		return err
	})
}

// layer writes an uncompressed layer. Nodes unpack it faster than a compressed one, and the way to them is short.
func (w *writer) layer(fill func(*tar.Writer) error) (v1.Descriptor, error) {
	return w.blob(types.OCIUncompressedLayer, func(out io.Writer) error {
		t := tar.NewWriter(out)
		if err := fill(t); err != nil {
			return err
		}
		return t.Close()
	})
}

// blob writes what fill writes below its digest.
func (w *writer) blob(mediaType types.MediaType, fill func(io.Writer) error) (v1.Descriptor, error) {
	f, err := os.CreateTemp(w.blobs, ".new-*")
	if err != nil {
		return v1.Descriptor{}, err
	}
	defer func() { _ = os.Remove(f.Name()) }()
	h := sha256.New()
	if err := fill(io.MultiWriter(f, h)); err != nil {
		_ = f.Close()
		return v1.Descriptor{}, err
	}
	info, err := f.Stat()
	if err != nil {
		return v1.Descriptor{}, err
	}
	if err := f.Chmod(0o644); err != nil {
		return v1.Descriptor{}, err
	}
	if err := f.Close(); err != nil {
		return v1.Descriptor{}, err
	}
	sum := hex.EncodeToString(h.Sum(nil))
	if err := os.Rename(f.Name(), filepath.Join(w.blobs, sum)); err != nil {
		return v1.Descriptor{}, err
	}
	return v1.Descriptor{MediaType: mediaType, Size: info.Size(), Digest: v1.Hash{Algorithm: "sha256", Hex: sum}}, nil
}

// epoch is the time of every file in a layer: a layer depends on contents alone.
var epoch = time.Unix(0, 0).UTC()

// staticBase fills the layer below static programs.
func staticBase(t *tar.Writer) error {
	if err := addFiles(t, nil, []dir{{"etc", 0o755, 0}, {"tmp", 0o1777, 0}}); err != nil {
		return err
	}
	for _, f := range []struct{ name, text string }{
		{"etc/group", "root:x:0:\nnogroup:x:65534:\n"},
		{"etc/nsswitch.conf", "hosts: files dns\n"},
		{"etc/passwd", "root:x:0:0:root:/root:/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/sbin/nologin\n"},
	} {
		header := &tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: 0o644, Size: int64(len(f.text)), ModTime: epoch, Format: tar.FormatPAX}
		if err := t.WriteHeader(header); err != nil {
			return err
		}
		if _, err := io.WriteString(t, f.text); err != nil {
			return err
		}
	}
	return nil
}

// addFiles adds directories, then files in the order of their names, with the directories above them.
func addFiles(t *tar.Writer, files []file, dirs []dir) error {
	done := map[string]bool{".": true}
	mkdir := func(d dir) error {
		if done[d.path] {
			return nil
		}
		done[d.path] = true
		mode := int64(d.mode.Perm()) | int64(d.mode&0o1000)
		return t.WriteHeader(&tar.Header{
			Typeflag: tar.TypeDir, Name: d.path + "/", Mode: mode, Uid: d.uid, Gid: 0, ModTime: epoch, Format: tar.FormatPAX,
		})
	}
	for _, d := range dirs {
		if err := mkdir(d); err != nil {
			return err
		}
	}
	files = slices.Clone(files)
	slices.SortFunc(files, func(a, b file) int { return strings.Compare(a.to, b.to) })
	for _, f := range files {
		var above []string
		for d := path.Dir(f.to); d != "."; d = path.Dir(d) {
			above = append(above, d)
		}
		slices.Reverse(above)
		for _, d := range above {
			if err := mkdir(dir{d, 0o755, 0}); err != nil {
				return err
			}
		}
		if err := addFile(t, f); err != nil {
			return err
		}
	}
	return nil
}

// addFile adds one regular file that belongs to root.
func addFile(t *tar.Writer, f file) error {
	source, err := os.Open(f.from)
	if err != nil {
		return err
	}
	defer func() { _ = source.Close() }()
	info, err := source.Stat()
	if err != nil {
		return err
	}
	header := &tar.Header{Typeflag: tar.TypeReg, Name: f.to, Mode: int64(f.mode.Perm()), Size: info.Size(), ModTime: epoch, Format: tar.FormatPAX}
	if err := t.WriteHeader(header); err != nil {
		return err
	}
	_, err = io.Copy(t, source)
	return err
}

// addTree adds a directory tree in the order of its names. Everything belongs to root.
func addTree(t *tar.Writer, root string) error {
	return filepath.WalkDir(root, func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == root {
			return err
		}
		relative, err := filepath.Rel(root, name)
		if err != nil {
			return err
		}
		info, err := d.Info()
		if err != nil {
			return err
		}
		to := filepath.ToSlash(relative)
		header := &tar.Header{Name: to, Mode: int64(info.Mode().Perm()), ModTime: epoch, Format: tar.FormatPAX}
		if info.Mode()&fs.ModeSticky != 0 {
			header.Mode |= 0o1000
		}
		switch {
		case d.IsDir():
			header.Typeflag, header.Name = tar.TypeDir, to+"/"
			return t.WriteHeader(header)
		case info.Mode()&fs.ModeSymlink != 0:
			header.Typeflag, header.Mode = tar.TypeSymlink, 0o777
			if header.Linkname, err = os.Readlink(name); err != nil {
				return err
			}
			return t.WriteHeader(header)
		case info.Mode().IsRegular():
			return addFile(t, file{to: to, from: name, mode: info.Mode().Perm()})
		}
		return fmt.Errorf("%s is neither file, directory nor link", name)
	})
}
