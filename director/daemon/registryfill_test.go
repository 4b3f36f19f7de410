package daemon

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/director-kaas/kaas/director/bundle"
	"github.com/director-kaas/kaas/director/registry"
)

// A director that has lost its registry, as a restored one has, fills it once it finds the bundle of what its clusters
// run.
func TestALostRegistryIsFilled(t *testing.T) {
	t.Parallel()
	c := simulating(t, demoDocuments)
	d, _ := created(t, c)
	needed, err := d.stock.needed(t.Context())
	if err != nil || len(needed.Releases) != 1 {
		t.Fatalf("needed: %+v, %v", needed, err)
	}
	release := needed.Releases[0]
	if err := d.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := os.RemoveAll(filepath.Join(c.StateDir, "registry")); err != nil {
		t.Fatal(err)
	}
	c.Simulation.Documents = nil
	if d, err = start(t, c, io.Discard); err != nil {
		t.Fatal(err)
	}
	pushes := 0
	push := func(ctx context.Context, name string, b *bundle.Bundle, unsigned string) error {
		pushes++
		return d.services.env.PushRelease(ctx, name, b, unsigned)
	}
	fill := d.stock.fill(push, d.log)
	check := func(lacks bool, want int) {
		t.Helper()
		if err := fill.pass(t.Context()); err != nil {
			t.Fatal(err)
		}
		is, err := registry.Lacks(t.Context(), d.stock.registry, release)
		if err != nil || is != lacks || pushes != want {
			t.Errorf("images are missing: %t, %v after %d pushes; want %t after %d", is, err, pushes, lacks, want)
		}
	}
	running, err := fill.releases.Running(t.Context())
	if err != nil || len(running) != 1 {
		t.Fatalf("running: %+v, %v", running, err)
	}
	dir := running[0].Release.Bundle
	if err := os.Rename(dir, dir+".away"); err != nil {
		t.Fatal(err)
	}
	check(true, 0)
	if err := os.Rename(dir+".away", dir); err != nil {
		t.Fatal(err)
	}
	check(false, 1)
	check(false, 1)
	fill = d.stock.fill(push, d.log) // of a director that starts
	check(false, 1)
	api := release.Images[0]
	tags := filepath.Join(
		c.StateDir, "registry/docker/registry/v2/repositories", api.Repository, "_manifests/tags",
	)
	if err := os.Remove(filepath.Join(tags, api.Tag, "current/link")); err != nil {
		t.Fatal(err)
	}
	fill = d.stock.fill(push, d.log)
	check(false, 2)
}
