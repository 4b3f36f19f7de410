package libvirt

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director/hypervisor"
)

// An adapter on a network with a bridge of the host's is on that network, also in the description of a domain that
// runs: the audit took it for one that somebody had moved.
func TestAdaptersOfADomainThatRuns(t *testing.T) {
	t.Parallel()
	const text = `<domain type='kvm'><name>m</name><devices>
  <interface type='bridge'>
    <mac address='52:54:00:00:00:01'/>
    <source network='demo' portid='7205659b-62a2-4dba-ac72-76ef68787269' bridge='br0'/>
    <target dev='vnet0'/>
  </interface>
  <interface type='network'><mac address='52:54:00:00:00:02'/><source network='nat' bridge='virbr0'/></interface>
  <interface type='network'><mac address='52:54:00:00:00:03'/><source network='off'/></interface>
  <interface type='bridge'><mac address='52:54:00:00:00:04'/><source bridge='br1'/></interface>
  <interface type='user'><mac address='52:54:00:00:00:05'/></interface>
</devices></domain>`
	got, err := adaptersOf(text)
	want := []hypervisor.Adapter{
		{MAC: "52:54:00:00:00:01", Network: "demo"},
		{MAC: "52:54:00:00:00:02", Network: "nat"},
		{MAC: "52:54:00:00:00:03", Network: "off"},
		{MAC: "52:54:00:00:00:04", Network: "br1"},
		{MAC: "52:54:00:00:00:05"},
	}
	if diff := cmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
	if got, err := adaptersOf("<domain/>"); len(got) > 0 || err != nil {
		t.Errorf("a domain without devices has %v: %v", got, err)
	}
}
