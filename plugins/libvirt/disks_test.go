package libvirt

import (
	"errors"
	"testing"

	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/hypervisortest"
)

// A deletion that is cut off at any line is finished by the next call, and neither loses the data disk nor a disk that
// others have attached.
func TestDisksOutliveACutDeletion(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "test:///default", "default-pool")
	label := hypervisor.DiskLabel{Cluster: "demo", Pool: "worker", Node: "demo-worker-1"}
	for _, point := range []string{"unmade", "labelled", "removed"} {
		b := f.open(t)
		t.Cleanup(func() { _ = b.Close() })
		s := f.spec(t, b)
		s.Key.Director = hypervisortest.RandomID("d")
		vm, err := b.Ensure(t.Context(), s)
		if err != nil {
			t.Fatal(err)
		}
		exists := f.attach(t, vm)
		b.at = func(p string) error {
			if p == point {
				return errors.New("cut off")
			}
			return nil
		}
		o := hypervisor.DeleteOptions{Owner: s.Key, Label: label}
		if err := b.Delete(t.Context(), vm.ID, o); err == nil {
			t.Fatalf("Delete was not cut off at %s", point)
		}
		again := f.open(t)
		for range 2 {
			if err := again.Delete(t.Context(), vm.ID, o); err != nil {
				t.Fatalf("after a cut at %s: %v", point, err)
			}
		}
		got, err := again.ListVolumes(t.Context(), s.Key.Director)
		if err != nil || len(got) != 1 || got[0].Label != label || got[0].VM != "" || !exists() {
			t.Errorf("after a cut at %s: %+v, %v; the foreign disk exists: %t", point, got, err, exists())
		}
		if err := errors.Join(again.DeleteVolume(t.Context(), s.Key, "kaas-data"), again.Close()); err != nil {
			t.Error(err)
		}
		if left := f.remains(t, s.Key.Director); len(left) > 0 {
			t.Errorf("after a cut at %s, left behind: %q", point, left)
		}
	}
}
