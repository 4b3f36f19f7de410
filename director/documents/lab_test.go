package documents

import (
	"context"
	"log/slog"
	"path/filepath"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/images"
	"github.com/director-kaas/kaas/director/imagestore"
	"github.com/director-kaas/kaas/director/servicetest"
)

// lab is the documents of a director in a lab.
type lab struct {
	*servicetest.Lab
	*Service
	images *images.Service
}

func openLab(t *testing.T, clusters, workers int) *lab {
	t.Helper()
	l := servicetest.Open(t, clusters, workers)
	files, err := imagestore.Open(imagestore.Config{
		Dir: filepath.Join(l.Dir, "images"), Log: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = files.Close(context.Background()) })
	im := images.New(images.Config{
		Store: l.Store, Files: files, Backends: l.Env.Backends, Gate: l.Env.Gate, Now: time.Now,
	})
	return &lab{l, New(Config{
		Store: l.Store, Images: im, Now: time.Now,
		Confine: confine.Rules{Images: confine.Dirs{"/"}, Bundles: confine.Dirs{"/"}},
	}), im}
}
