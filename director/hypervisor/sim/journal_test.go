package sim_test

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/hypervisortest"
	"github.com/director-kaas/kaas/director/hypervisor/sim"
)

func openWorld(t *testing.T, path string) *sim.World {
	t.Helper()
	w, err := sim.OpenWorld(path)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func spec(image, network string, n int) hypervisor.Spec {
	return hypervisor.Spec{
		Key: director.Stamp{Director: "d1", Machine: fmt.Sprintf("m%d", n)}, Name: fmt.Sprintf("vm-%d", n), CPUs: 1,
		Memory: 1 << 26, Image: image,
		RootDisk: 1 << 30, DataDisks: []hypervisor.Disk{{Serial: "data", Size: 1 << 30}},
		NICs: []hypervisor.NIC{{
			Network: network, MAC: fmt.Sprintf("52:54:00:00:%02x:%02x", n/256, n%256),
			Addresses: []netip.Prefix{netip.PrefixFrom(netip.AddrFrom4([4]byte{10, 200, byte(n / 256), byte(n)}), 16)},
		}},
		Seed: hypervisor.Seed{UserData: []byte("nobody boots from it")},
	}
}

// fill makes an image, a network and VMs, and deletes every third one.
func fill(t *testing.T, w *sim.World, vms int) {
	t.Helper()
	b := sim.Open(w)
	image, network := newImage(t), newNetwork(t)
	network.Owner = director.Stamp{Director: "d1", Machine: "net"}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	must(b.EnsureImage(t.Context(), image, nil))
	must(b.EnsureNetwork(t.Context(), network))
	for n := range vms {
		s := spec(image.Name, network.Name, n)
		vm, err := b.Ensure(t.Context(), s)
		must(err)
		if n%3 == 0 {
			must(b.Delete(t.Context(), vm.ID, hypervisor.DeleteOptions{Owner: s.Key, DataDisks: n%2 == 0}))
		}
	}
}

// A world that was not closed is found as it was, as after kill -9 of its director.
func TestWorldOutlivesItsProcess(t *testing.T) {
	t.Parallel()
	for name, vms := range map[string]int{"few": 7, "so many that the file is written again": 900} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			path := filepath.Join(t.TempDir(), "world.jsonl")
			w := openWorld(t, path)
			fill(t, w, vms)
			want := w.Inventory("")
			for round := range 3 {
				again := openWorld(t, path)
				if diff := cmp.Diff(want, again.Inventory("")); diff != "" {
					t.Fatalf("round %d (-want +got):\n%s", round, diff)
				}
				capacity, err := sim.Open(again).Capacity(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				before, err := sim.Open(w).Capacity(t.Context())
				if diff := cmp.Diff(before, capacity); diff != "" || err != nil {
					t.Errorf("capacity (-want +got):\n%s%v", diff, err)
				}
				if twins := again.Twins(); len(twins) > 0 {
					t.Errorf("twins: %v", twins)
				}
			}
		})
	}
}

func TestTornLineWasNeverWritten(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "world.jsonl")
	w := openWorld(t, path)
	fill(t, w, 4)
	want := w.Inventory("")
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(`{"vm":{"VM":{"ID":"sim-00`); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); err != nil {
		t.Fatal(err)
	}
	again := openWorld(t, path)
	if diff := cmp.Diff(want, again.Inventory("")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	fill(t, again, 1)
	if diff := cmp.Diff(again.Inventory(""), openWorld(t, path).Inventory("")); diff != "" {
		t.Errorf("what came after the torn line is lost (-want +got):\n%s", diff)
	}
}

// Two processes on one file are two directors on one hypervisor: what both are told to make is made once, each sees at
// once what the other has done, and nobody minds that a third one writes the file anew.
func TestProcessesShareAWorld(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "world.jsonl")
	worlds := []*sim.World{openWorld(t, path), openWorld(t, path)}
	image, network := newImage(t), newNetwork(t)
	network.Owner = director.Stamp{Director: "d1", Machine: "net"}
	if err := errors.Join(
		sim.Open(worlds[0]).EnsureImage(t.Context(), image, nil),
		sim.Open(worlds[1]).EnsureNetwork(t.Context(), network),
	); err != nil {
		t.Fatal(err)
	}
	const vms, rounds = 20, 20 // enough lines for the file to be written again
	for range rounds {
		var all sync.WaitGroup
		for _, w := range worlds {
			all.Go(func() {
				b := sim.Open(w)
				for n := range vms {
					if _, err := b.Ensure(t.Context(), spec(image.Name, network.Name, n)); err != nil {
						t.Error(err)
					}
				}
			})
		}
		all.Wait()
		for i, w := range worlds {
			if w.Count() != vms || len(w.Twins()) > 0 {
				t.Fatalf("process %d sees %d VMs, twins %v", i, w.Count(), w.Twins())
			}
		}
		if diff := cmp.Diff(worlds[0].Inventory(""), openWorld(t, path).Inventory("")); diff != "" {
			t.Fatalf("a third process sees something else (-first +third):\n%s", diff)
		}
		for n := range vms {
			key := director.Stamp{Director: "d1", Machine: fmt.Sprintf("m%d", n)}
			found, err := sim.Open(
				worlds[n%2],
			).List(t.Context(), hypervisor.Filter{Director: key.Director, Machine: key.Machine})
			if err != nil || len(found) != 1 {
				t.Fatalf("%v, %v", found, err)
			}
			if err := sim.Open(
				worlds[1-n%2],
			).Delete(t.Context(), found[0].ID, hypervisor.DeleteOptions{Owner: key, DataDisks: true}); err != nil {
				t.Fatal(err)
			}
		}
		if a, b := worlds[0].Count(), worlds[1].Count(); a+b != 0 {
			t.Fatalf("%d and %d VMs are left", a, b)
		}
	}
	if lines, err := os.ReadFile(path); err != nil || bytes.Count(lines, []byte("\n")) > 4*rounds*vms {
		t.Errorf("the file was never written again: %d lines, %v", bytes.Count(lines, []byte("\n")), err)
	}
}

func TestConformanceOfAWorldInAFile(t *testing.T) {
	t.Parallel()
	hypervisortest.Exercise(t, func(t *testing.T) hypervisortest.Subject {
		s, _ := subjectOn(t, openWorld(t, filepath.Join(t.TempDir(), "world.jsonl")))
		return s
	})
}

func TestWeather(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := sim.NewWorld()
		w.SetWeather(1, map[sim.Verb]sim.Timing{
			sim.VerbCapacity: {Latency: time.Second, Jitter: time.Second}, sim.VerbList: {Faults: 0.5},
		})
		b := sim.Open(w)
		failed := 0
		for range 200 {
			start := time.Now()
			if _, err := b.Capacity(t.Context()); err != nil {
				t.Error(err)
			}
			if d := time.Since(start); d < time.Second || d >= 2*time.Second {
				t.Errorf("took %s", d)
			}
			if _, err := b.List(t.Context(), hypervisor.Filter{Director: "d1"}); err != nil {
				failed++
			}
		}
		if failed < 70 || failed > 130 {
			t.Errorf("%d of 200 calls failed, want about half", failed)
		}
	})
}

// An act whose caller dies during the second half of the latency is done.
func TestActIsDoneBeforeTheAnswer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := sim.NewWorld()
		b := sim.Open(w)
		n := newNetwork(t)
		n.Owner = director.Stamp{Director: "d1", Machine: "net"}
		w.SetWeather(1, map[sim.Verb]sim.Timing{sim.VerbEnsureNetwork: {Latency: 10 * time.Second}})
		done := make(chan error, 1)
		go func() { done <- b.EnsureNetwork(t.Context(), n) }()
		time.Sleep(6 * time.Second) // synctest's clock
		if got := w.Inventory("d1"); len(got) != 1 {
			t.Errorf("after half of the time there is %v", got)
		}
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
