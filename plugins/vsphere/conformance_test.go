package vsphere

import (
	"flag"
	"testing"

	"github.com/director-kaas/kaas/director/hypervisor/hypervisortest"
)

var update = flag.Bool("update", false, "write this back end's column of docs/reference/backends.md")

// TestConformance holds the back end to the contract on vCenter's simulator, which keeps all objects in this process.
func TestConformance(t *testing.T) {
	t.Parallel()
	hypervisortest.ExerciseColumn(t, "vsphere", *update, newFixture(t).withImage(t).subject)
}
