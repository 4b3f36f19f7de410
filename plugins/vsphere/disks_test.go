package vsphere

import (
	"testing"

	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/hypervisortest"
)

// A deletion in which the director dies at any call is finished by the next one, and neither loses the data disk nor a
// disk that others have attached.
func TestDisksOutliveACutDeletion(t *testing.T) {
	t.Parallel()
	f := newFixture(t).withImage(t)
	ctx := t.Context()
	label := hypervisor.DiskLabel{Cluster: "demo", Pool: "worker", Node: "demo-worker-1"}
	calls := int64(0)
	for whole := false; !whole; {
		calls++
		s := f.spec()
		s.Key.Director = hypervisortest.RandomID("d")
		watch := f.open(t)
		vm, err := watch.Ensure(ctx, s)
		if err != nil {
			t.Fatal(err)
		}
		exists := f.attach(t, vm)
		b := f.open(t)
		dying(b, calls, calls%2 == 0)
		o := hypervisor.DeleteOptions{Owner: s.Key, Label: label}
		whole = b.Delete(ctx, vm.ID, o) == nil
		_ = b.Close() // dead already
		for range 2 {
			if err := watch.Delete(ctx, vm.ID, o); err != nil {
				t.Fatalf("after a death at call %d: %v", calls, err)
			}
		}
		got, err := watch.ListVolumes(ctx, s.Key.Director)
		if err != nil || len(got) != 1 || got[0].Label != label || got[0].VM != "" || !exists() {
			t.Errorf("after a death at call %d: %+v, %v; the foreign disk exists: %t", calls, got, err, exists())
		}
		if err := watch.DeleteVolume(ctx, s.Key, "kaas-data"); err != nil {
			t.Error(err)
		}
		if left := f.remains(t, s.Key.Director); len(left) > 0 {
			t.Errorf("after a death at call %d, left behind: %q", calls, left)
		}
		if err := watch.Close(); err != nil {
			t.Error(err)
		}
	}
	t.Logf("a deletion is %d calls", calls-1)
}
