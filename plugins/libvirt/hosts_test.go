package libvirt

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	virt "libvirt.org/go/libvirt"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// A host that is gone fails what asks all hosts, and nothing that leaves it out.
func TestLostHost(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "test:///default", "default-pool")
	s := f.spec(t, f.open(t)) // which tidies up: all of its hosts answer
	f.cfg.Hosts = append(f.cfg.Hosts, HostConfig{
		Name: "h2", URI: "qemu+unix:///system?socket=/nonexistent/sock", Pool: "default-pool",
	})
	b := f.open(t)
	t.Cleanup(func() { b.Close() })
	states, err := b.HostStates(t.Context())
	if err != nil || len(states) != 2 || states[0].Host != "h1" || states[0].Err != nil ||
		director.KindOf(states[1].Err) != director.KindUnavailable {
		t.Fatalf("the hosts are %+v, %v", states, err)
	}
	s.Host = "h1"
	if _, err := b.List(t.Context(), hypervisor.Filter{
		Director: s.Key.Director,
	}); director.KindOf(err) != director.KindUnavailable {
		t.Errorf("a list with a hole: %v", err)
	}
	rest := b.Without("h2")
	vm, err := rest.Ensure(t.Context(), s)
	if err != nil || vm.Host != "h1" {
		t.Fatalf("without the lost host: %+v, %v", vm, err)
	}
	if all, err := rest.List(t.Context(), hypervisor.Filter{Director: s.Key.Director}); err != nil || len(all) != 1 {
		t.Errorf("without the lost host: %+v, %v", all, err)
	}
	s.Host = "h2"
	s.Key.Machine += "x"
	if _, err := rest.Ensure(t.Context(), s); director.KindOf(err) != director.KindConflict {
		t.Errorf("a VM on the lost host: %v", err)
	}
	if err := rest.Delete(t.Context(), vm.ID, hypervisor.DeleteOptions{Owner: vm.Stamp, DataDisks: true}); err != nil {
		t.Error(err)
	}
}

// A host that takes connections and never says a word is told apart from those that answer, whatever time the caller
// has. It keeps nobody from the other hosts, nor the back end from being closed.
func TestSilentHost(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "test:///default", "default-pool")
	s := f.spec(t, f.open(t))
	f.cfg.Hosts = append(f.cfg.Hosts, HostConfig{
		Name: "h2", URI: "qemu+unix:///system?socket=" + silentSocket(t), Pool: "default-pool",
	})
	b := f.open(t)
	b.patience = patience{
		state: 200 * time.Millisecond, list: 200 * time.Millisecond, discover: 200 * time.Millisecond,
	}
	filter := hypervisor.Filter{Director: s.Key.Director}
	for range 2 { // the second question finds the first one waiting
		_, listed := b.List(t.Context(), filter)
		_, counted := b.Capacity(t.Context())
		for _, err := range []error{listed, counted} {
			if director.KindOf(err) != director.KindUnavailable || !strings.Contains(err.Error(), "h2") {
				t.Errorf("got %v, want that h2 does not answer", err)
			}
		}
		states, err := b.HostStates(t.Context())
		if err != nil || states[0].Err != nil || director.KindOf(states[1].Err) != director.KindUnavailable {
			t.Errorf("the hosts are %+v, %v", states, err)
		}
		silent, err := b.Discover(t.Context())
		if err != nil || len(silent.Items) == 0 || len(silent.Unseen) != 1 || silent.Unseen[0].Host != "h2" ||
			director.KindOf(silent.Unseen[0].Err) != director.KindUnavailable {
			t.Errorf("discovered %+v, %v", silent, err)
		}
		alone, ok := hypervisor.Capability[hypervisor.Discoverer](b.Without("h1"))
		if !ok {
			t.Fatal("a view discovers nothing")
		}
		_, err = alone.Discover(t.Context())
		if director.KindOf(err) != director.KindUnavailable || !strings.Contains(err.Error(), "h2") {
			t.Errorf("got %v, want that h2 does not answer", err)
		}
	}
	if _, err := b.Without("h2").List(t.Context(), filter); err != nil {
		t.Error(err)
	}
	if err := b.Close(); err != nil {
		t.Error(err)
	}
}

// silentSocket listens until the test ends.
func silentSocket(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/run", "silent-") // where doors may lead, and short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "sock")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = l.Close() // which ends what waits for it
		_ = os.RemoveAll(dir)
	})
	return path
}

// libvirt starts a fenced VM no more when its host boots.
func TestFenceEndsAutostart(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "test:///default", "default-pool")
	f.cfg.Autostart = true
	b, _, vm := f.running(t)
	autostart := func() bool {
		dom, err := f.keep.LookupDomainByUUIDString(string(vm.ID))
		if err != nil {
			t.Fatal(err)
		}
		defer func(d *virt.Domain) { _ = d.Free() }(dom)
		on, err := dom.GetAutostart()
		if err != nil {
			t.Fatal(err)
		}
		return on
	}
	if !autostart() {
		t.Fatal("the VM does not start with its host")
	}
	start := time.Now()
	if err := b.Fence(t.Context(), vm.ID, vm.Stamp); err != nil {
		t.Fatal(err)
	}
	now, err := b.Get(t.Context(), vm.ID)
	if err != nil || now.Power != hypervisor.PowerOff || autostart() {
		t.Errorf("after %s the VM is %+v, %v, autostart %t", time.Since(start), now, err, autostart())
	}
}
