package libvirt

import (
	"testing"

	"github.com/director-kaas/kaas/director/hypervisor/hypervisortest"
)

// TestConformance holds the back end to the contract on libvirt's own test driver, which keeps all objects in this process.
func TestConformance(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "test:///default", "default-pool")
	t.Run("upload", func(t *testing.T) {
		t.Skip("not on this hypervisor: libvirt's test driver has no volume upload; seeds and images are read and dropped")
	})
	hypervisortest.Exercise(t, f.subject)
}

// TestLabConformance holds the back end to the contract on a real hypervisor.
func TestLabConformance(t *testing.T) {
	t.Parallel()
	hypervisortest.Exercise(t, newFixture(t, labURI(t), "default").subject)
}
