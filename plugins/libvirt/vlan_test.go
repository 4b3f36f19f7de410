package libvirt

import (
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/hypervisortest"
)

// A network on an existing bridge is tagged by the bridge, and keeps its VLAN.
func TestVLAN(t *testing.T) {
	t.Parallel()
	f := newFixture(t, "test:///default", "default-pool")
	b := f.open(t)
	t.Cleanup(func() { b.Close() })
	s := hypervisor.NetworkSpec{
		Owner: director.Stamp{Director: hypervisortest.RandomID("d"), Machine: "n1"},
		Name:  hypervisortest.RandomID("net-"), Mode: "bridge", Bridge: "br0", VLAN: 77, OpenVSwitch: true,
	}
	for range 2 {
		if err := b.EnsureNetwork(t.Context(), s); err != nil {
			t.Fatal(err)
		}
	}
	n, err := f.keep.LookupNetworkByName(s.Name)
	if err != nil {
		t.Fatal(err)
	}
	text, err := n.GetXMLDesc(0)
	_ = n.Free()
	for _, part := range []string{"<tag id='77'/>", "<virtualport type='openvswitch'", "<bridge name='br0'/>"} {
		if err != nil || !strings.Contains(text, part) {
			t.Errorf("%s is not in %s, %v", part, text, err)
		}
	}
	other := s
	other.VLAN = 78
	wantError(t, b.EnsureNetwork(t.Context(), other), director.KindConflict, "vlan 77", "vlan 78")
	if err := b.DeleteNetwork(t.Context(), s.Name, s.Owner); err != nil {
		t.Error(err)
	}
}
