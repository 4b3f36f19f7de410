package vsphere

import (
	"strings"
	"testing"

	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// connection sets how vCenter sees the host.
func (f *fixture) connection(t *testing.T, host string, state types.HostSystemConnectionState) {
	t.Helper()
	for _, e := range f.Model.Service.Context.Map.All("HostSystem") {
		if h := e.(*simulator.HostSystem); h.Name == host {
			f.Model.Service.Context.WithLock(h, func() { h.Runtime.ConnectionState = state })
			return
		}
	}
	t.Fatalf("there is no host %s", host)
}

// A VM whose host is gone keeps its place in vCenter. Its successor takes the name, is told apart, and the old one is
// powered off by its identity when the host is back.
func TestDisconnectedHost(t *testing.T) {
	t.Parallel()
	f := newFixture(t).withImage(t)
	b := f.open(t)
	defer b.Close()
	s := f.spec()
	s.Host, s.Group = "DC0_C0_H1", "demo"
	lost, err := b.Ensure(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	f.connection(t, lost.Host, types.HostSystemConnectionStateNotResponding)
	states, err := b.HostStates(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, st := range states {
		if (st.Err != nil) != (st.Host == lost.Host) {
			t.Errorf("%s: %v", st.Host, st.Err)
		}
	}
	rest := b.Without(lost.Host)
	next := f.spec()
	next.Key.Director, next.Name, next.Group = s.Key.Director, s.Name, "demo"
	if _, err := b.Ensure(t.Context(), next); director.KindOf(err) != director.KindConflict {
		t.Errorf("while the host counts its VM has its name: %v", err)
	}
	vm, err := rest.Ensure(t.Context(), next)
	if err != nil || vm.Host == lost.Host || vm.Name != s.Name {
		t.Fatalf("the successor is %+v, %v", vm, err)
	}
	f.connection(t, lost.Host, types.HostSystemConnectionStateConnected)
	now, err := b.Get(t.Context(), lost.ID)
	if err != nil || now.Stamp != s.Key || !strings.Contains(now.Name, "lost") {
		t.Fatalf("the host is back with %+v, %v", now, err)
	}
	if err := b.Fence(t.Context(), lost.ID, lost.Stamp); err != nil {
		t.Fatal(err)
	}
	if now, err = b.Get(t.Context(), lost.ID); err != nil || now.Power != hypervisor.PowerOff {
		t.Errorf("the old VM is %+v, %v", now, err)
	}
	if now, err = b.Get(t.Context(), vm.ID); err != nil || now.Power != hypervisor.PowerOn {
		t.Errorf("the successor is %+v, %v", now, err)
	}
}
