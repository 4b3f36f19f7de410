package vsphere

import (
	"testing"

	"github.com/director-kaas/kaas/director/hypervisor/hypervisortest"
)

// TestConformance holds the back end to the contract on vCenter's simulator, which keeps all objects in this process.
func TestConformance(t *testing.T) {
	t.Parallel()
	hypervisortest.Exercise(t, newFixture(t).withImage(t).subject)
}
