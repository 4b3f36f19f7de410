package sim_test

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/hypervisortest"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
)

var ranges atomic.Int64

func newNetwork(*testing.T) hypervisor.NetworkSpec {
	n := ranges.Add(1)
	return hypervisor.NetworkSpec{
		Name: hypervisortest.RandomID("net-"), Mode: "nat",
		CIDR:    netip.MustParsePrefix(fmt.Sprintf("10.%d.0.0/24", n)),
		Gateway: netip.MustParseAddr(fmt.Sprintf("10.%d.0.1", n)),
	}
}

func newImage(t *testing.T) hypervisor.ImageSpec {
	t.Helper()
	path := filepath.Join(t.TempDir(), "image.qcow2")
	text := []byte(hypervisortest.RandomID("content "))
	if err := os.WriteFile(path, text, 0o600); err != nil {
		t.Fatal(err)
	}
	sum := sha256.Sum256(text)
	return hypervisor.ImageSpec{
		Name: hypervisortest.RandomID("img-"), Path: path, SHA256: hex.EncodeToString(sum[:]), Format: "qcow2",
	}
}

// subject is a world of its own with an image and a network.
func subject(t *testing.T) (hypervisortest.Subject, *sim.World) {
	t.Helper()
	s, w := subjectOn(
		t,
		sim.NewWorld(sim.Host{
			Name: "sim", CPUs: 64, Memory: 256 << 30, Disk: 4 << 40,
		}, sim.Host{Name: "sim2", CPUs: 64, Memory: 64 << 30, Disk: 1 << 40}),
	)
	s.Elsewhere = "sim2"
	return s, w
}

func subjectOn(t *testing.T, w *sim.World) (hypervisortest.Subject, *sim.World) {
	t.Helper()
	b := sim.Open(w)
	image, network := newImage(t), newNetwork(t)
	network.Owner = director.Stamp{Director: "setup", Machine: "net"}
	if err := errors.Join(b.EnsureImage(t.Context(), image, nil), b.EnsureNetwork(t.Context(), network)); err != nil {
		t.Fatal(err)
	}
	director := hypervisortest.RandomID("d")
	crash := func(name string, f sim.Fault) hypervisortest.Crash {
		f.Verb = sim.VerbEnsure
		return hypervisortest.Crash{Name: name, Arm: func(*testing.T, hypervisor.Backend) { w.Inject(f) }}
	}
	return hypervisortest.Subject{
		Open:     func(*testing.T) hypervisor.Backend { return sim.Open(w) },
		Director: director, Image: image.Name, Network: network.Name,
		Stranger: func(_ *testing.T, name string) hypervisor.ID { return w.AddStranger(name) },
		Attach: func(_ *testing.T, vm hypervisor.VM) func() bool {
			name := hypervisortest.RandomID("pv-")
			w.AttachForeign(vm.ID, name, 1<<20)
			return func() bool { return w.HasForeign(name) }
		},
		Crashes: []hypervisortest.Crash{
			crash("before", sim.Fault{When: sim.Before}),
			crash("midway", sim.Fault{When: sim.Midway}),
			crash("after", sim.Fault{When: sim.After}),
		},
		HasSeed: func(_ *testing.T, v hypervisor.VM) bool { return w.HasSeed(v.ID) },
		SeedCrashes: []hypervisortest.Crash{
			{
				Name: "midway",
				Arm: func(*testing.T, hypervisor.Backend) {
					w.Inject(sim.Fault{Verb: sim.VerbRemoveSeed, When: sim.Midway})
				},
			},
			{
				Name: "after",
				Arm: func(*testing.T, hypervisor.Backend) {
					w.Inject(sim.Fault{Verb: sim.VerbRemoveSeed, When: sim.After})
				},
			},
		},
		DiskCrashes: []hypervisortest.Crash{{Name: "midway", Arm: func(*testing.T, hypervisor.Backend) {
			w.ClearFaults() // of the call that was not made
			w.Inject(sim.Fault{Verb: sim.VerbCopyDisk, When: sim.Midway})
			w.Inject(sim.Fault{Verb: sim.VerbRestoreDisk, When: sim.Midway})
		}}},
		WriteDisk: func(_ *testing.T, d hypervisor.VolumeInfo, text string) { w.WriteDisk(d.Stamp, d.Serial, text) },
		ReadDisk: func(_ *testing.T, d hypervisor.VolumeInfo) string {
			text, _ := w.ReadDisk(d.Stamp, d.Serial)
			return text
		},
		Remains:  func(*testing.T) []string { return w.Inventory(director) },
		NewImage: newImage,
		PartImage: func(t *testing.T, s hypervisor.ImageSpec) {
			w.Inject(sim.Fault{Verb: sim.VerbEnsureImage, Key: s.Name, When: sim.Midway})
			if err := b.EnsureImage(t.Context(), s, nil); err == nil {
				t.Fatal("the fault did not strike")
			}
		},
		NewNetwork: newNetwork,
	}, w
}

var update = flag.Bool("update", false, "write this back end's column of docs/reference/backends.md")

func TestConformance(t *testing.T) {
	t.Parallel()
	hypervisortest.ExerciseColumn(t, "sim", *update, func(t *testing.T) hypervisortest.Subject {
		s, _ := subject(t)
		return s
	})
}

// TestConformanceSlow lets every VM take three calls of Ensure.
func TestConformanceSlow(t *testing.T) {
	t.Parallel()
	hypervisortest.Exercise(t, func(t *testing.T) hypervisortest.Subject {
		s, w := subject(t)
		w.SetAttempts(3)
		return s
	})
}

func TestFaults(t *testing.T) {
	t.Parallel()
	w := sim.NewWorld()
	b := sim.Open(w)
	boom := director.Errorf(director.KindExhausted, "test", "boom")
	w.Inject(sim.Fault{Verb: sim.VerbCapacity, Skip: 1, Times: 2, Err: boom})
	var got []bool
	for range 5 {
		_, err := b.Capacity(t.Context())
		if err != nil && !errors.Is(err, boom) {
			t.Errorf("got %v", err)
		}
		got = append(got, err == nil)
	}
	if diff := cmp.Diff([]bool{true, false, false, true, true}, got); diff != "" {
		t.Errorf("which calls pass (-want +got):\n%s", diff)
	}
	if n := w.Calls(sim.VerbCapacity); n != 5 {
		t.Errorf("counted %d calls, want 5", n)
	}
	w.Inject(sim.Fault{Times: -1})
	w.ClearFaults()
	if _, err := b.Capacity(t.Context()); err != nil {
		t.Errorf("after ClearFaults: %v", err)
	}
	w.SetReachable("sim", false)
	if _, err := b.Capacity(t.Context()); director.KindOf(err) != director.KindUnavailable {
		t.Errorf("host down: %v", err)
	}
}

func TestLatency(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := sim.NewWorld()
		w.SetLatency(sim.VerbCapacity, 3*time.Second)
		start := time.Now()
		if _, err := sim.Open(w).Capacity(t.Context()); err != nil {
			t.Error(err)
		}
		if d := time.Since(start); d != 3*time.Second {
			t.Errorf("took %s, want 3s", d)
		}
	})
}

func TestClone(t *testing.T) {
	t.Parallel()
	s, w := subject(t)
	before := w.Inventory("")
	c := w.Clone()
	if diff := cmp.Diff(before, c.Inventory("")); diff != "" {
		t.Errorf("clone differs (-want +got):\n%s", diff)
	}
	_, err := sim.Open(c).Ensure(t.Context(), hypervisor.Spec{
		Key: director.Stamp{Director: s.Director, Machine: "m1"}, Name: "m1", CPUs: 1, Memory: 1 << 30, Image: s.Image,
		RootDisk: 1 << 30, Seed: hypervisor.Seed{UserData: []byte("#cloud-config\n")},
	})
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(before, w.Inventory("")); diff != "" {
		t.Errorf("the clone's VM is in the original (-want +got):\n%s", diff)
	}
}
