package bundle_test

import (
	"context"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-containerregistry/pkg/name"
	"github.com/google/go-containerregistry/pkg/registry"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/bundle"
)

var meta = bundle.Release{
	Name: "k8s-1.37.1", Kubernetes: "v1.37.1", Arch: "amd64",
	Components: map[string]string{"etcd": "v3.7.3", "pause": "3.10.2"},
}

func write(t *testing.T, name, text string, mode os.FileMode) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text), mode); err != nil {
		t.Fatal(err)
	}
}

// unsealed makes a small bundle without its release.yaml.
func unsealed(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	write(t, filepath.Join(dir, "bin", "kubelet"), "a kubelet", 0o755)
	write(t, filepath.Join(dir, "manifests", "calico.yaml"), "kind: DaemonSet\n", 0o644)
	p, err := layout.Write(filepath.Join(dir, bundle.ImagesDir), empty.Index)
	if err != nil {
		t.Fatal(err)
	}
	for _, ref := range []string{"pause:3.10.2", "kube-apiserver:v1.37.1", "etcd:v3.7.3"} {
		addImage(t, p, ref)
	}
	return dir
}

func addImage(t *testing.T, p layout.Path, ref string) {
	t.Helper()
	image, err := random.Image(512, 2)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.AppendImage(
		image, layout.WithAnnotations(map[string]string{bundle.AnnotationRefName: ref}),
	); err != nil {
		t.Fatal(err)
	}
}

// sealed makes a small whole bundle.
func sealed(t *testing.T) string {
	t.Helper()
	dir := unsealed(t)
	if err := bundle.Seal(t.Context(), dir, meta); err != nil {
		t.Fatal(err)
	}
	return dir
}

func open(t *testing.T, dir string) *bundle.Bundle {
	t.Helper()
	b, err := bundle.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func TestOpenAndVerify(t *testing.T) {
	t.Parallel()
	dir := sealed(t)
	b := open(t, dir)
	if err := b.Verify(t.Context()); err != nil {
		t.Fatal(err)
	}
	var refs []string
	for _, i := range b.Images() {
		refs = append(refs, i.Ref())
	}
	if diff := cmp.Diff([]string{"etcd:v3.7.3", "kube-apiserver:v1.37.1", "pause:3.10.2"}, refs); diff != "" {
		t.Errorf("images (-want +got):\n%s", diff)
	}
	r := b.Release()
	if diff := cmp.Diff(
		meta.Components, r.Components,
	); diff != "" || r.Name != meta.Name || r.Kubernetes != meta.Kubernetes || r.Arch != meta.Arch {
		t.Errorf("release is %+v", r)
	}
	name, err := b.Path("bin/kubelet")
	if err != nil || name != filepath.Join(dir, "bin", "kubelet") {
		t.Errorf("Path = %q, %v", name, err)
	}
	if _, err := b.Path("bin/other"); director.KindOf(err) != director.KindNotFound {
		t.Errorf("Path of a file that is not listed: %v", err)
	}
	if i, err := b.Image("etcd"); err != nil || i.Tag != "v3.7.3" || i.Size == 0 {
		t.Errorf("Image = %+v, %v", i, err)
	}
	if _, err := b.Image("flannel"); director.KindOf(err) != director.KindNotFound {
		t.Errorf("Image of a name that is not there: %v", err)
	}
}

func TestCopyFiles(t *testing.T) {
	t.Parallel()
	dir, to := sealed(t), t.TempDir()
	b := open(t, dir)
	for range 2 { // the second time finds them
		if err := b.CopyFiles(t.Context(), to, b.Release().Files); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(filepath.Join(to, "bin", "kubelet"))
	if err != nil || string(got) != "a kubelet" {
		t.Errorf("copied %q, %v", got, err)
	}

	write(t, filepath.Join(dir, "bin", "kubelet"), "A kubelet", 0o755)
	fresh := t.TempDir()
	if err := b.CopyFiles(
		t.Context(), fresh, b.Release().Files,
	); director.KindOf(err) != director.KindInvalid || director.HintOf(err) == "" {
		t.Errorf("a damaged file: %v", err)
	}
	left, err := filepath.Glob(filepath.Join(fresh, "bin", "*kubelet*"))
	if parts, _ := filepath.Glob(filepath.Join(fresh, "bin", ".part*")); err != nil || len(left)+len(parts) > 0 {
		t.Errorf("a damaged file leaves %v %v, %v", left, parts, err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.CopyFiles(ended, t.TempDir(), b.Release().Files); !errors.Is(err, context.Canceled) {
		t.Errorf("after its context has ended: %v", err)
	}
}

func TestSealIsDeterministic(t *testing.T) {
	t.Parallel()
	dir := sealed(t)
	name := filepath.Join(dir, bundle.DocumentName)
	first, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := bundle.Seal(t.Context(), dir, meta); err != nil {
		t.Fatal(err)
	}
	second, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(string(first), string(second)); diff != "" {
		t.Errorf("sealing again changed release.yaml:\n%s", diff)
	}
}

func TestSealRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		break_ func(t *testing.T, dir string)
		meta   bundle.Release
		want   string
	}{
		"link": {
			break_: func(t *testing.T, dir string) {
				if err := os.Symlink("kubelet", filepath.Join(dir, "bin", "link")); err != nil {
					t.Fatal(err)
				}
			},
			meta: meta, want: "bin/link is not a regular file",
		},
		"no images": {
			break_: func(t *testing.T, dir string) { removeAll(t, filepath.Join(dir, "images")) }, meta: meta,
			want: "not an OCI image layout",
		},
		"no version": {meta: bundle.Release{Name: "x", Arch: "amd64"}, want: "spec.kubernetes"},
		"another CPU": {
			meta: bundle.Release{Name: "x", Kubernetes: "v1.37.1", Arch: "arm64"}, want: `spec.arch: is "arm64"`,
		},
		"image without a name": {
			break_: func(t *testing.T, dir string) { addImage(t, layout.Path(filepath.Join(dir, "images")), "") },
			meta:   meta, want: "where its name and tag should be",
		},
		"image twice": {
			break_: func(t *testing.T, dir string) {
				addImage(t, layout.Path(filepath.Join(dir, "images")), "pause:3.10.2")
			},
			meta: meta, want: "two images pause:3.10.2",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := unsealed(t)
			if c.break_ != nil {
				c.break_(t, dir)
			}
			err := bundle.Seal(t.Context(), dir, c.meta)
			if director.KindOf(err) != director.KindInvalid || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error = %v, want an invalid one with %q", err, c.want)
			}
		})
	}
}

func removeAll(t *testing.T, name string) {
	t.Helper()
	if err := os.RemoveAll(name); err != nil {
		t.Fatal(err)
	}
}

// edit replaces text in release.yaml.
func edit(from, to string) func(t *testing.T, dir string) {
	return func(t *testing.T, dir string) {
		t.Helper()
		name := filepath.Join(dir, bundle.DocumentName)
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if !strings.Contains(string(text), from) {
			t.Fatalf("release.yaml has no %q", from)
		}
		write(t, name, strings.Replace(string(text), from, to, 1), 0o644)
	}
}

func TestOpenRefuses(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		break_ func(t *testing.T, dir string)
		kind   director.Kind
		want   string
	}{
		"nothing there": {
			func(t *testing.T, dir string) { removeAll(t, filepath.Join(dir, bundle.DocumentName)) },
			director.KindNotFound, "no release bundle",
		},
		"empty file": {
			func(t *testing.T, dir string) { write(t, filepath.Join(dir, bundle.DocumentName), "", 0o644) },
			director.KindInvalid, "empty",
		},
		"unknown field": {
			edit("  arch:", "  colour: blue\n  arch:"), director.KindInvalid, "field colour not found",
		},
		"wrong type":    {edit("size: 9", "size: nine"), director.KindInvalid, "nine"},
		"two documents": {edit("apiVersion:", "a: 1\n---\napiVersion:"), director.KindInvalid, "field a not found"},
		"other kind":    {edit("kind: Release", "kind: Lease"), director.KindInvalid, "kind: is \"Lease\""},
		"other version": {edit("apiVersion: kaas/v1", "apiVersion: kaas/v9"), director.KindInvalid, "kaas/v9"},
		"no leading v":  {edit("kubernetes: v1", "kubernetes: 1"), director.KindInvalid, "spec.kubernetes"},
		"path upwards": {
			edit("path: bin/kubelet", "path: ../bin/kubelet"), director.KindInvalid, "spec.files[0].path",
		},
		"path into images": {
			edit("path: bin/kubelet", "path: images/index.json"), director.KindInvalid, "spec.files[0].path",
		},
		"its signature": {
			edit("path: manifests/calico.yaml", "path: release.yaml.minisig"), director.KindInvalid,
			"is not a relative path",
		},
		"path twice": {
			edit("path: manifests/calico.yaml", "path: bin/kubelet"), director.KindInvalid, "listed twice",
		},
		"short sum":    {edit("sha256: ", "sha256: 0"), director.KindInvalid, "spec.files[0].sha256"},
		"bad digest":   {edit("digest: sha256:", "digest: md5:"), director.KindInvalid, "spec.images[0].digest"},
		"no component": {edit("etcd: v3.7.3", "etcd: \"\""), director.KindInvalid, "spec.components.etcd"},
		"no layout": {
			func(t *testing.T, dir string) { removeAll(t, filepath.Join(dir, "images", "index.json")) },
			director.KindInvalid, "not an OCI image layout",
		},
		"image missing": {
			edit("name: etcd", "name: etcetera"), director.KindInvalid, "image etcetera:v3.7.3 is missing",
		},
		"image not listed": {
			func(t *testing.T, dir string) { addImage(t, layout.Path(filepath.Join(dir, "images")), "more:v1") },
			director.KindInvalid, "image more:v1 is not listed",
		},
		"two wrong places": {
			edit("kind: Release\nmetadata:\n  name: k8s", "kind: Lease\nmetadata:\n  name: -k8s"), director.KindInvalid,
			"metadata.name",
		},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := sealed(t)
			c.break_(t, dir)
			_, err := bundle.Open(dir)
			if director.KindOf(err) != c.kind || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error = %v, want kind %s with %q", err, c.kind, c.want)
			}
			if director.HintOf(err) == "" {
				t.Error("the error has no hint")
			}
		})
	}
}

// someBlob returns a layer of the bundle.
func someBlob(t *testing.T, dir string) string {
	t.Helper()
	b := open(t, dir)
	image, err := b.Layout().Image(b.Images()[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	digest, err := layers[1].Digest()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "images", "blobs", digest.Algorithm, digest.Hex)
}

func TestVerifyFinds(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		break_ func(t *testing.T, dir string)
		want   string
	}{
		"file changed": {
			func(t *testing.T, dir string) { write(t, filepath.Join(dir, "bin", "kubelet"), "A kubelet", 0o755) },
			"bin/kubelet: has the SHA-256",
		},
		"file longer": {
			func(t *testing.T, dir string) { write(t, filepath.Join(dir, "bin", "kubelet"), "a kubelet!", 0o755) },
			"has 10 bytes, not 9",
		},
		"file missing": {
			func(t *testing.T, dir string) { removeAll(t, filepath.Join(dir, "bin", "kubelet")) },
			"bin/kubelet: is missing",
		},
		"file added": {
			func(t *testing.T, dir string) { write(t, filepath.Join(dir, "bin", "x"), "x", 0o755) },
			"bin/x: is not listed",
		},
		"mode changed": {
			func(t *testing.T, dir string) { chmod(t, filepath.Join(dir, "bin", "kubelet"), 0o644) },
			"has the mode 0644, not 0755",
		},
		"closed to other users": {break_: func(t *testing.T, dir string) {
			chmod(t, filepath.Join(dir, "bin", "kubelet"), 0o700)
			chmod(t, filepath.Join(dir, "manifests", "calico.yaml"), 0o600)
		}},
		"layer changed": {
			func(t *testing.T, dir string) { write(t, someBlob(t, dir), "other", 0o644) }, "images/etcd:v3.7.3: blob",
		},
		"layer missing": {func(t *testing.T, dir string) { removeAll(t, someBlob(t, dir)) }, "is missing"},
		"became a folder": {func(t *testing.T, dir string) {
			removeAll(t, filepath.Join(dir, "bin", "kubelet"))
			write(t, filepath.Join(dir, "bin", "kubelet", "x"), "x", 0o644)
		}, "is not a regular file"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := sealed(t)
			c.break_(t, dir)
			opened := open(t, dir)
			unread := strings.Contains(c.want, "has the SHA-256") || strings.Contains(c.want, "is not listed")
			if err := opened.Complete(); (err == nil) != (c.want == "" || unread) ||
				err != nil && director.KindOf(err) != director.KindInvalid {
				t.Errorf("without reading the files: %v", err)
			}
			err := opened.Verify(t.Context())
			if c.want == "" {
				if err != nil {
					t.Errorf("error = %v, want none", err)
				}
				return
			}
			if director.KindOf(err) != director.KindInvalid || err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("error = %v, want an invalid one with %q", err, c.want)
			}
		})
	}
}

func chmod(t *testing.T, name string, mode os.FileMode) {
	t.Helper()
	if err := os.Chmod(name, mode); err != nil {
		t.Fatal(err)
	}
}

func TestVerifyEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := open(t, sealed(t))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := b.Verify(ctx); !errors.Is(err, context.Canceled) {
		t.Errorf("error = %v, want the context's", err)
	}
}

// guarded starts a registry with TLS that wants a password and counts writes.
func guarded(t *testing.T) (host string, roots *x509.CertPool, writes func() int) {
	t.Helper()
	inner := registry.New(registry.Logger(log.New(io.Discard, "", 0)))
	counted := make(chan struct{}, 1000)
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		user, password, ok := r.BasicAuth()
		if !ok || user != "pusher" || password != "s3cret" {
			w.Header().Set("WWW-Authenticate", `Basic realm="registry"`)
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		if r.Method == http.MethodPut || r.Method == http.MethodPost || r.Method == http.MethodPatch {
			counted <- struct{}{}
		}
		inner.ServeHTTP(w, r)
	}))
	t.Cleanup(server.Close)
	return server.Listener.Addr().String(), x509roots(server), func() int { return len(counted) }
}

func x509roots(server *httptest.Server) *x509.CertPool {
	pool := x509.NewCertPool()
	pool.AddCert(server.Certificate())
	return pool
}

func TestPush(t *testing.T) {
	t.Parallel()
	b := open(t, sealed(t))
	host, roots, writes := guarded(t)
	var events []bundle.PushEvent
	opts := bundle.PushOptions{
		RootCAs: roots, Username: "pusher", Password: "s3cret",
		Progress: func(e bundle.PushEvent) { events = append(events, e) },
	}
	result, err := b.Push(t.Context(), host, "kaas", opts)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(bundle.PushResult{Pushed: 3}, result); diff != "" {
		t.Errorf("first push (-want +got):\n%s", diff)
	}
	if len(events) != 6 || !events[5].Done || events[5].Index != 2 || events[5].Total != 3 {
		t.Errorf("events: %+v", events)
	}
	before := writes()
	result, err = b.Push(t.Context(), host, "kaas", opts)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(bundle.PushResult{Skipped: 3}, result); diff != "" || writes() != before {
		t.Errorf("second push wrote %d times (-want +got):\n%s", writes()-before, diff)
	}
}

// A manifest that was replaced under its digest is not pushed: the digest in release.yaml is what was signed.
func TestPushRefusesAnotherManifest(t *testing.T) {
	t.Parallel()
	dir := sealed(t)
	b := open(t, dir)
	blob := func(ref int) string {
		return filepath.Join(dir, "images", "blobs", "sha256", b.Images()[ref].Digest.Hex)
	}
	evil, err := os.ReadFile(blob(1))
	if err != nil {
		t.Fatal(err)
	}
	write(t, blob(0), string(evil), 0o644)
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	result, err := b.Push(t.Context(), server.Listener.Addr().String(), "kaas", bundle.PushOptions{PlainHTTP: true})
	if director.KindOf(err) != director.KindInvalid || !strings.Contains(err.Error(), "release.yaml says sha256:") ||
		result.Pushed != 0 {
		t.Errorf("%+v, %v", result, err)
	}
}

// The signature lies in the bundle, and is not part of what it signs.
func TestSignatureIsNotListed(t *testing.T) {
	t.Parallel()
	dir := sealed(t)
	before := open(t, dir)
	write(t, filepath.Join(dir, bundle.SignatureName), "a signature\n", 0o644)
	if err := bundle.Seal(t.Context(), dir, meta); err != nil {
		t.Fatal(err)
	}
	b := open(t, dir)
	if err := b.Verify(t.Context()); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff(
		string(before.Text()), string(b.Text()),
	); diff != "" || b.Digest() != before.Digest() || len(b.Digest()) != 64 {
		t.Errorf("the signature changed release.yaml:\n%s", diff)
	}
}

func TestPushedImageHasTheDigest(t *testing.T) {
	t.Parallel()
	b := open(t, sealed(t))
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	host := server.Listener.Addr().String()
	if _, err := b.Push(t.Context(), host, "", bundle.PushOptions{PlainHTTP: true}); err != nil {
		t.Fatal(err)
	}
	got := map[string]v1.Hash{}
	want := map[string]v1.Hash{}
	for _, i := range b.Images() {
		ref, err := name.ParseReference(host+"/"+i.Ref(), name.Insecure)
		if err != nil {
			t.Fatal(err)
		}
		d, err := remote.Head(ref, remote.WithContext(t.Context()))
		if err != nil {
			t.Fatal(err)
		}
		got[i.Ref()], want[i.Ref()] = d.Digest, i.Digest
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("digests (-want +got):\n%s", diff)
	}
}

func TestPushRefused(t *testing.T) {
	t.Parallel()
	b := open(t, sealed(t))
	host, roots, _ := guarded(t)
	gone := httptest.NewServer(http.NotFoundHandler())
	gone.Close()
	cases := map[string]struct {
		host, prefix string
		opts         bundle.PushOptions
		kind         director.Kind
	}{
		"wrong password": {
			host, "kaas",
			bundle.PushOptions{RootCAs: roots, Username: "pusher", Password: "wrong"},
			director.KindUnauthenticated,
		},
		"no password": {host, "kaas", bundle.PushOptions{RootCAs: roots}, director.KindUnauthenticated},
		"unknown CA": {
			host, "kaas",
			bundle.PushOptions{RootCAs: x509.NewCertPool(), Username: "pusher", Password: "s3cret"},
			director.KindUnavailable,
		},
		"nobody listening": {
			gone.Listener.Addr().String(), "kaas", bundle.PushOptions{PlainHTTP: true}, director.KindUnavailable,
		},
		"no host":    {"not a host", "kaas", bundle.PushOptions{}, director.KindInvalid},
		"bad prefix": {host, "KAAS!", bundle.PushOptions{RootCAs: roots}, director.KindInvalid},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, err := b.Push(t.Context(), c.host, c.prefix, c.opts)
			if err == nil || director.KindOf(err) != c.kind {
				t.Fatalf("error = %v, want kind %s", err, c.kind)
			}
			if strings.Contains(err.Error(), "s3cret") {
				t.Errorf("the error tells the password: %v", err)
			}
		})
	}
}
