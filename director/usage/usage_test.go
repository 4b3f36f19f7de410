package usage

import (
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
)

// A provider stays for a kept disk on it, unless a machine has taken the disk over.
func TestKeptDisksKeepProviders(t *testing.T) {
	t.Parallel()
	u := New()
	u.addDisks([]director.KeptDisk{
		{ID: "d1", Provider: "other", Node: "c-w-2", Cluster: "c"}, {ID: "d2", Provider: "gone", Holder: "m9"},
	})
	if err := u.MayGo(model.Ref{
		Kind: model.KindProvider, Name: "other",
	}); director.KindOf(err) != director.KindConflict {
		t.Errorf("a provider with a kept disk: %v", err)
	}
	if err := u.MayGo(model.Ref{Kind: model.KindProvider, Name: "gone"}); err != nil {
		t.Errorf("a disk that a node took over: %v", err)
	}
}
