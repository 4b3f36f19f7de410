package libvirt

import (
	"testing"

	"github.com/director-kaas/kaas/director/hypervisor/hypervisortest"
)

// TestConformance holds the back end to the contract on libvirt's own test driver, which keeps all objects in this
// process.
func TestConformance(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "test:///default", "default-pool")
	t.Run("upload", func(t *testing.T) {
		t.Skip(
			"not on this hypervisor: libvirt's test driver has no volume upload; seeds and images are read and dropped",
		)
	})
	hypervisortest.ExerciseColumn(t, "libvirt-test", *update, f.subject)
}

// TestLabConformance holds the back end to the contract on a real hypervisor. With -update it writes the column of
// docs/reference/backends.md.
func TestLabConformance(t *testing.T) {
	t.Parallel()
	f := newFixture(t, labURI(t), "default")
	if *update {
		hypervisortest.ExerciseColumn(t, "libvirt", true, f.subject)
		return
	}
	hypervisortest.Exercise(t, f.subject)
}
