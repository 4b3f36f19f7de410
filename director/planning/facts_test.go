package planning

import (
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/servicetest"
	"github.com/director-kaas/kaas/director/store"
)

// Whoever wants the inventory of a cluster whose bundle cannot be read is told of the bundle, and not of what is
// missing of it.
func TestFactsWithoutTheBundle(t *testing.T) {
	t.Parallel()
	l := openLab(t, 1, 1)
	if err := l.Store.Update(t.Context(), func(tx *store.Tx) error {
		return tx.IntendMachine(l.Made["c000-w-1"], time.Now())
	}); err != nil {
		t.Fatal(err)
	}
	_, err := l.Facts(t.Context(), "c000")
	servicetest.WantKind(t, err, director.KindNotFound, "/nowhere")
}
