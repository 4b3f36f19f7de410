package operations

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/journal"
	"github.com/director-kaas/kaas/director/plan"
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
	o.Plans = journal.New(journal.Config{Store: l.Store, Archives: archived{o}, Now: time.Now})
	return &lab{l, o}
}

// archived is the archives of operations, which tests set late.
type archived struct{ o *Operations }

func (a archived) Plan(ctx context.Context, id string) (plan.View, error) {
	return a.o.Archives.Plan(ctx, id)
}
