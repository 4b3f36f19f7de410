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
	return &lab{l, New(Config{
		Store: l.Store, Director: l.Director, Now: time.Now, Log: slog.New(slog.DiscardHandler),
		Confine: confine.Rules{Images: confine.Dirs{"/"}, Bundles: confine.Dirs{"/"}}, Env: l.Env,
	})}
}

// found audits, and returns the kinds and names of what was found.
func (l *lab) found(t *testing.T) []string {
	t.Helper()
	r, err := l.Audit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range r.Findings {
		out = append(out, string(f.Kind)+" "+f.Name)
	}
	return out
}
