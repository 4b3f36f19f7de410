package vsphere

import (
	"strings"
	"testing"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// A network that says its VLAN is refused on a port group of another one.
func TestVLAN(t *testing.T) {
	t.Parallel()
	f := newFixture(t)
	b := f.open(t)
	defer b.Close()
	ctx := t.Context()
	const path = "/DC0/network/DC0_DVPG0"
	n, err := find.NewFinder(f.Admin.Client).Network(ctx, path)
	if err != nil {
		t.Fatal(err)
	}
	group := n.(*object.DistributedVirtualPortgroup)
	var before mo.DistributedVirtualPortgroup
	if err := group.Properties(ctx, group.Reference(), []string{"config"}, &before); err != nil {
		t.Fatal(err)
	}
	task, err := group.Reconfigure(ctx, types.DVPortgroupConfigSpec{
		ConfigVersion: before.Config.ConfigVersion, Name: before.Config.Name,
		DefaultPortConfig: &types.VMwareDVSPortSetting{
			Vlan: &types.VmwareDistributedVirtualSwitchVlanIdSpec{VlanId: 7},
		},
	})
	if err == nil {
		err = task.Wait(ctx)
	}
	if err != nil {
		t.Fatal(err)
	}
	s := hypervisor.NetworkSpec{
		Owner: director.Stamp{Director: "d", Machine: "n"}, Name: "n", Mode: hypervisor.ModePortGroup, PortGroup: path,
	}
	for vlan, want := range map[int]director.Kind{0: "", 7: "", 8: director.KindConflict} {
		s.VLAN = vlan
		err := b.EnsureNetwork(ctx, s)
		if want == "" && err != nil ||
			want != "" &&
				(director.KindOf(err) != want || !strings.Contains(err.Error(), "VLAN 7 and not 8") ||
					director.HintOf(err) == "") {
			t.Errorf("VLAN %d: %v", vlan, err)
		}
	}
}
