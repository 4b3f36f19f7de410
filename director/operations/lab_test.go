package operations

import (
	"log/slog"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/servicetest"
)

// lab is the operations of a director in a lab.
type lab struct {
	*servicetest.Lab
	*Operations
}

func openLab(t *testing.T, clusters, workers int) *lab {
	t.Helper()
	l := servicetest.Open(t, clusters, workers)
	o := New(Config{
		Store: l.Store, Director: l.Director, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Confine: confine.Rules{Images: confine.Dirs{"/"}, Bundles: confine.Dirs{"/"}}, Env: l.Env,
	})
	return &lab{l, o}
}
