package vsphere

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/vmware/govmomi/simulator"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// What vCenter sees of a guest that does not come up is said with what to do.
func TestDiagnose(t *testing.T) {
	t.Parallel()
	f := newFixture(t).withImage(t)
	b := f.open(t)
	defer b.Close()
	v, err := b.Ensure(t.Context(), f.spec())
	if err != nil {
		t.Fatal(err)
	}
	vm, props, _ := f.look(t, "/DC0/vm/"+v.Name)
	change := func(fn func(*simulator.VirtualMachine)) {
		ctx := f.Model.Service.Context
		x := ctx.Map.Get(vm.Reference()).(*simulator.VirtualMachine)
		ctx.WithLock(x, func() { fn(x) })
	}
	diagnose := func() (wrong []string) {
		t.Helper()
		probes, err := b.Diagnose(t.Context(), v.ID)
		if err != nil {
			t.Fatal(err)
		}
		for _, p := range probes {
			if p.Err == nil {
				continue
			}
			if director.HintOf(p.Err) == "" || !strings.Contains(p.Err.Error(), v.Name) {
				t.Errorf("%s: %v", p.What, p.Err)
			}
			wrong = append(wrong, p.What)
		}
		return wrong
	}
	change(func(x *simulator.VirtualMachine) {
		x.Guest.ToolsRunningStatus = string(types.VirtualMachineToolsRunningStatusGuestToolsRunning)
	})
	if wrong := diagnose(); len(wrong) != 0 {
		t.Errorf("of a guest that is well: %v", wrong)
	}
	change(func(x *simulator.VirtualMachine) {
		x.Guest.ToolsRunningStatus = string(types.VirtualMachineToolsRunningStatusGuestToolsNotRunning)
		x.Guest.ToolsVersionStatus2 = string(types.VirtualMachineToolsVersionStatusGuestToolsNotInstalled)
		x.Runtime.Question = &types.VirtualMachineQuestionInfo{Id: "1", Text: "Did you move it or copy it?"}
		for _, d := range x.Config.Hardware.Device {
			if card, ok := d.(types.BaseVirtualEthernetCard); ok {
				card.GetVirtualEthernetCard().Connectable = &types.VirtualDeviceConnectInfo{}
			}
		}
	})
	mac := "adapter " + f.macOf(t, props.Config.Hardware.Device)
	if diff := cmp.Diff([]string{"question", mac, "VMware tools"}, diagnose()); diff != "" {
		t.Error(diff)
	}
	if got, err := b.Get(t.Context(), v.ID); err != nil || len(got.Adapters) != 1 || got.Adapters[0].Network != "" {
		t.Errorf("an adapter that was unplugged is on %+v, %v", got.Adapters, err)
	}
	if err := b.SetPower(t.Context(), v.ID, hypervisor.PowerOff); err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff([]string{"power", "question"}, diagnose()); diff != "" {
		t.Error(diff)
	}
	if _, err := b.Diagnose(
		t.Context(), "1c1e5d4a-0000-0000-0000-000000000000",
	); director.KindOf(err) != director.KindNotFound {
		t.Errorf("of no VM: %v", err)
	}
}

func (f *fixture) macOf(t *testing.T, devices []types.BaseVirtualDevice) string {
	t.Helper()
	for _, d := range devices {
		if card, ok := d.(types.BaseVirtualEthernetCard); ok {
			return card.GetVirtualEthernetCard().MacAddress
		}
	}
	t.Fatal("there is no adapter")
	return ""
}

// An adapter on another port group than the one it was put on is called by that group's name, for the audit.
func TestAdaptersThatMoved(t *testing.T) {
	t.Parallel()
	f := newFixture(t).withImage(t)
	b := f.open(t)
	defer b.Close()
	s := f.spec()
	s.NICs[0].Network, s.NICs[0].PortGroup = "nodes", "/DC0/network/DC0_DVPG0"
	v, err := b.Ensure(t.Context(), s)
	if diff := cmp.Diff(
		[]hypervisor.Adapter{{Network: "nodes", MAC: s.NICs[0].MAC}}, v.Adapters,
	); diff != "" || err != nil {
		t.Fatal(diff, err)
	}
	vm, props, _ := f.look(t, "/DC0/vm/"+v.Name)
	other, err := f.finder(t).Network(t.Context(), "DC0_DVPG1")
	if err != nil {
		t.Fatal(err)
	}
	backing, err := other.EthernetCardBackingInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range props.Config.Hardware.Device {
		if card, ok := d.(types.BaseVirtualEthernetCard); ok {
			card.GetVirtualEthernetCard().Backing = backing
			if err := vm.EditDevice(t.Context(), d); err != nil {
				t.Fatal(err)
			}
		}
	}
	all, err := b.List(t.Context(), hypervisor.Filter{Director: s.Key.Director})
	if err != nil || len(all) != 1 {
		t.Fatal(all, err)
	}
	if diff := cmp.Diff([]hypervisor.Adapter{{Network: "DC0_DVPG1", MAC: s.NICs[0].MAC}}, all[0].Adapters); diff != "" {
		t.Error(diff)
	}
}
