package documents

import (
	"strings"
	"testing"
	"time"

	"github.com/director-kaas/kaas/director"
)

// A host with a VM that was given up may be taken off its provider when it never comes back, and leads nowhere else
// before.
func TestGivenUpVMsAndTheirHost(t *testing.T) {
	t.Parallel()
	l := openStanding(t)
	apply := func(e edit) error {
		text := strings.Replace(standingDocs, e.old, e.replacement, 1)
		if text == standingDocs {
			t.Fatalf("%+v changes nothing", e)
		}
		_, err := l.Apply(t.Context(), "admin", []byte(text), "", true)
		return err
	}
	for _, id := range []string{"m1", "m2"} {
		if err := l.Store.LoseMachine(t.Context(), id, time.Now()); err != nil {
			t.Fatal(err)
		}
	}
	disk := director.KeptDisk{
		ID: "m1.kaas-data", Provider: "virt", Host: "h1", Machine: "m1", Serial: "kaas-data", Cluster: "runs",
		Kept: time.Now(), Holder: "m1",
	}
	if err := l.Store.KeepDisks(t.Context(), []director.KeptDisk{disk}); err != nil {
		t.Fatal(err)
	}
	if err := apply(
		refusedEdits["Provider spec.libvirt.hosts[].uri"],
	); err == nil || !strings.Contains(err.Error(), "runs-m1") {
		t.Errorf("the lost host leads elsewhere: %v", err)
	}
	if err := apply(refusedEdits["Provider spec.libvirt.hosts[]"]); err != nil {
		t.Errorf("the lost host goes for good: %v", err)
	}
}
