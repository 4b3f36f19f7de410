package api_test

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/wire"
)

// The wire has every kind that back ends tell of.
func TestDiscoveredKinds(t *testing.T) {
	t.Parallel()
	var kinds []string
	for _, k := range hypervisor.DiscoveredKinds() {
		kinds = append(kinds, string(k))
	}
	if diff := cmp.Diff(kinds, wire.DiscoveredKinds()); diff != "" {
		t.Error(diff)
	}
}
