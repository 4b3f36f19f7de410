package snapshot

import (
	"crypto/sha256"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/servicetest"
)

// The cluster still believes in nodes whose VMs are off or gone; the director does not, and what was removed long ago
// takes nobody's name away.
func TestTheHypervisorKnowsWhoIsDead(t *testing.T) {
	t.Parallel()
	b := sim.Open(sim.NewWorld(sim.Host{Name: "host1", CPUs: 64, Memory: 1 << 40, Disk: 1 << 40}))
	reader := New(Config{Backends: servicetest.Backend{B: b}})
	w := reader.Of(planner.World{Director: planner.Director{ID: "director"}, Seen: map[string]planner.Seen{}})
	w.Provider = model.Stored{Document: model.Document{Kind: model.KindProvider, Metadata: model.Metadata{Name: "lab"}}}
	file := filepath.Join(t.TempDir(), "image.qcow2")
	content := []byte("a disk")
	images, _ := hypervisor.Capability[hypervisor.Imaging](b)
	image := hypervisor.ImageSpec{
		Name: "image", Path: file, SHA256: fmt.Sprintf("%x", sha256.Sum256(content)), Format: "qcow2",
	}
	if err := os.WriteFile(file, content, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := images.EnsureImage(t.Context(), image, nil); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"on", "off", "gone"} {
		id := "m-" + name
		w.Machines = append(w.Machines,
			director.Machine{ID: id, Name: name, Kubernetes: "v1.37.2"},
			director.Machine{ID: "old-" + id, Name: name, Kubernetes: "v1.36.1", Deleted: time.Unix(1, 0)})
		w.Seen[name] = planner.Seen{Ready: true, Etcd: true}
		if name == "gone" {
			continue
		}
		spec := hypervisor.Spec{
			Key: director.Stamp{Director: w.Director.ID, Machine: id}, Name: name, CPUs: 1, Memory: 1 << 30,
			Image: "image", RootDisk: 1 << 30, Seed: hypervisor.Seed{UserData: []byte("#cloud-config\n")},
		}
		vm, err := b.Ensure(t.Context(), spec)
		for err == nil && !vm.Ready {
			vm, err = b.Ensure(t.Context(), spec)
		}
		if err == nil && name == "off" {
			err = b.SetPower(t.Context(), vm.ID, hypervisor.PowerOff)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := w.unseeDead(t.Context()); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"on"}, slices.Sorted(maps.Keys(w.Seen))); diff != "" {
		t.Error(diff)
	}
}
