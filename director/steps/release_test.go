package steps

import (
	"context"
	"io"
	"log"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-containerregistry/pkg/registry"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/bundle"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/provenance"
	"github.com/director-kaas/kaas/director/signature"
	"github.com/director-kaas/kaas/director/simulate"
	"github.com/director-kaas/kaas/director/step"
)

// release is a bundle with a manifest of Calico.
func release(t *testing.T, manifest string) *bundle.Bundle {
	t.Helper()
	dir, err := simulate.Bundle(t.Context(), t.TempDir(), "k8s-1.37.1", "v1.37.1")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.MkdirAll(filepath.Join(dir, "manifests"), 0o700); err != nil {
		t.Fatal(err)
	}
	fill(t, filepath.Join(dir, calicoManifest), manifest)
	if err := bundle.Seal(t.Context(), dir, bundle.Release{
		Name: "k8s-1.37.1", Kubernetes: "v1.37.1", Arch: "amd64",
	}); err != nil {
		t.Fatal(err)
	}
	b, err := bundle.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func fill(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

// Plays read the manifest that the plan was made for, from where only the director writes, and never one that took its
// place since.
func TestPlaysReadWhatWasChecked(t *testing.T) {
	t.Parallel()
	b := release(t, "kind: DaemonSet\n")
	env := Env{Registry: Registry{Artifacts: t.TempDir()}}
	facts := step.Facts{Bundle: b.Dir(), Digest: b.Digest()}
	fill(t, filepath.Join(b.Dir(), calicoManifest), "kind: EvilThing\n")
	if _, err := env.plays().checked(
		t.Context(), facts,
	); director.KindOf(err) != director.KindInvalid || !strings.Contains(err.Error(), "SHA-256") {
		t.Errorf("a manifest that was replaced: %v", err)
	}
	fill(t, filepath.Join(b.Dir(), calicoManifest), "kind: DaemonSet\n")
	if _, err := env.plays().checked(t.Context(), facts); err != nil {
		t.Fatal(err)
	}
	fill(t, filepath.Join(b.Dir(), calicoManifest), "kind: EvilThing\n")
	dir, err := env.plays().checked(t.Context(), facts)
	if err != nil || !strings.HasPrefix(dir, env.Artifacts) {
		t.Fatalf("%s, %v", dir, err)
	}
	if text, err := os.ReadFile(filepath.Join(dir, calicoManifest)); err != nil || string(text) != "kind: DaemonSet\n" {
		t.Errorf("%s, %v", text, err)
	}
	if _, err := env.plays().checked(t.Context(), step.Facts{
		Bundle: release(t, "kind: EvilThing\n").Dir(), Digest: b.Digest(),
	}); director.KindOf(err) != director.KindConflict {
		t.Errorf("another bundle: %v", err)
	}
}

// The step looks at the signature again, and at the digest that the plan was made for: an older release that is signed
// just as well does not take its place.
func TestReleasePushLooksAtTheSignature(t *testing.T) {
	t.Parallel()
	key, err := signature.Generate()
	if err != nil {
		t.Fatal(err)
	}
	keys, _ := signature.ReadKeys("", []string{key.Public()})
	server := httptest.NewServer(registry.New(registry.Logger(log.New(io.Discard, "", 0))))
	t.Cleanup(server.Close)
	env := Env{
		Sources:  Sources{Gate: &provenance.Gate{Keys: keys}},
		Registry: Registry{PushHost: server.Listener.Addr().String(), Artifacts: t.TempDir()},
	}
	env.Push.PlainHTTP = true
	b := release(t, "kind: DaemonSet\n")
	push := func(p step.ReleaseParams) error {
		return env.releases().releasePush(t.Context(), plan.Run{Note: func(context.Context, string) {}}, p)
	}
	params := step.ReleaseParams{Bundle: b.Dir(), Digest: b.Digest()}
	if err := push(
		params,
	); director.KindOf(err) != director.KindInvalid || !strings.Contains(err.Error(), "has no signature") {
		t.Errorf("unsigned: %v", err)
	}
	sign := func(b *bundle.Bundle) {
		sig, err := key.Sign(b.Text(), signature.Subject{
			Kind: signature.KindRelease, Name: "k8s-1.37.1", Kubernetes: "v1.37.1", Arch: "amd64",
		})
		if err != nil {
			t.Fatal(err)
		}
		fill(t, filepath.Join(b.Dir(), bundle.SignatureName), string(sig))
	}
	sign(b)
	if err := push(params); err != nil {
		t.Errorf("signed: %v", err)
	}
	older := release(t, "kind: OlderThing\n")
	sign(older)
	if err := push(step.ReleaseParams{
		Bundle: older.Dir(), Digest: b.Digest(),
	}); director.KindOf(err) != director.KindConflict {
		t.Errorf("an older release: %v", err)
	}
	if err := push(step.ReleaseParams{
		Bundle: release(t, "kind: DaemonSet\n").Dir(), Digest: b.Digest(), Unsigned: "made on my own machine",
	}); err != nil {
		t.Errorf("in words: %v", err)
	}
}

// The step looks at the signature of the image before it brings it anywhere.
func TestImageEnsureLooksAtTheSignature(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path := filepath.Join(dir, "node.qcow2")
	fill(t, path, "an image")
	env := Env{
		Sources:  Sources{Gate: &provenance.Gate{Images: confine.Dirs{dir}}},
		Machines: Machines{Backends: oneBackend{sim.Open(sim.NewWorld())}},
	}
	err := env.sources().imageEnsure(t.Context(), plan.Run{}, step.ImageParams{
		Image: model.Image{Source: path, SHA256: strings.Repeat("ab", 32), Kubernetes: "v1.37.1"},
	})
	if director.KindOf(err) != director.KindInvalid || !strings.Contains(err.Error(), "has no signature") {
		t.Errorf("got %v", err)
	}
}
