package operations

import (
	"log/slog"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/servicetest"
	"github.com/director-kaas/kaas/director/snapshot"
)

// lab is the operations of a director in a lab.
type lab struct {
	*servicetest.Lab
	*Operations
}

func openLab(t *testing.T, clusters, workers int) *lab {
	t.Helper()
	l := servicetest.Open(t, clusters, workers)
	reader := snapshot.New(snapshot.Config{
		Store: l.Store, Backends: l.Env.Backends, Clusters: l.Env, Director: l.Director,
		Bundles: snapshot.Bundles{Dirs: confine.Dirs{"/"}, Gate: l.Env.Gate},
	})
	o := New(Config{
		Reader: reader,
		Store:  l.Store, Director: l.Director, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Confine: confine.Rules{Images: confine.Dirs{"/"}, Bundles: confine.Dirs{"/"}}, Env: l.Env,
	})
	return &lab{l, o}
}
