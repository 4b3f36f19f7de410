package daemon

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
)

// appears waits until the file is there, or is not.
func appears(t *testing.T, path string, want bool) {
	t.Helper()
	limit := time.After(time.Minute)
	for tick := time.NewTicker(20 * time.Millisecond); ; <-tick.C {
		if _, err := os.Stat(path); (err == nil) == want {
			return
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		select {
		case <-limit:
			t.Fatalf("%s: there is %t after a minute", path, !want)
		default:
		}
	}
}

// A plan holds the images that it pushes. A week after the cluster and the document of its release were deleted, the
// registry of a director has none of them.
func TestImagesOfADeletedReleaseGo(t *testing.T) {
	t.Parallel()
	c := simulating(t, demoDocuments)
	d, api := created(t, c)
	n, err := d.stock.needed(t.Context())
	if err != nil || len(n.Releases) != 1 || n.Releases[0].Name != "k8s" || len(n.Releases[0].Images) == 0 {
		t.Fatalf("needed: %+v, %v", n, err)
	}
	in := func(parts ...string) string {
		return filepath.Join(append([]string{c.StateDir, "registry/docker"}, parts...)...)
	}
	release := n.Releases[0]
	image := release.Images[0]
	tag := in("registry/v2/repositories", image.Repository, "_manifests/tags", image.Tag, "current/link")
	note := in("director/releases", release.Bundle, release.Name)
	mark := in("director/gone-releases", release.Bundle, release.Name)
	appears(t, tag, true)
	appears(t, note, true)
	ref := model.Ref{Kind: model.KindRelease, Name: "k8s"}
	if err := api.DeleteDocument(t.Context(), ref); director.KindOf(err) != director.KindConflict {
		t.Errorf("a release that a cluster runs: %v", err)
	}
	run(t, api, plan.ClusterDelete)
	if err := api.DeleteDocument(t.Context(), ref); err != nil {
		t.Fatal(err)
	}
	restart := func() {
		t.Helper()
		if err := d.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		c.Simulation.Documents = nil // they would be there again
		if d, err = start(t, c, io.Discard); err != nil {
			t.Fatal(err)
		}
	}
	restart()
	appears(t, mark, true)
	appears(t, tag, true)
	d.held.Store(true)
	if _, err := d.stock.needed(t.Context()); director.KindOf(err) != director.KindUnavailable ||
		!strings.Contains(err.Error(), "held") {
		t.Errorf("a held director: %v", err)
	}
	eightDaysAgo := time.Now().Add(-8 * 24 * time.Hour)
	if err := os.Chtimes(mark, eightDaysAgo, eightDaysAgo); err != nil {
		t.Fatal(err)
	}
	restart()
	appears(t, note, false)
	appears(t, tag, false)
}
