package planning

import (
	"log/slog"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/servicetest"
	"github.com/director-kaas/kaas/director/snapshot"
)

// lab is the planning of a director in a lab.
type lab struct {
	*servicetest.Lab
	*Service
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
		Store:  l.Store, Director: l.Director.ID, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Confine: confine.Rules{Images: confine.Dirs{"/"}, Bundles: confine.Dirs{"/"}},
		Site:    l.Env, Gate: l.Env.Gate,
	})
	return &lab{l, o}
}
