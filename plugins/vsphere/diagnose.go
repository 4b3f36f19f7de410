package vsphere

import (
	"context"

	"github.com/vmware/govmomi/vim25/mo"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

var _ hypervisor.Diagnoser = (*Backend)(nil)

// Diagnose implements hypervisor.Diagnoser: power, a question that vCenter waits for an answer to, adapters that are on
// no network, and VMware's tools, without which a guest never reads its settings.
func (b *Backend) Diagnose(ctx context.Context, id hypervisor.ID) ([]hypervisor.Probe, error) {
	const op = "vsphere.diagnose"
	p, m, err := b.get(ctx, op, id)
	if err != nil {
		return nil, err
	}
	found, err := retrieve(ctx, p.vim, types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{Obj: m.ref}},
		PropSet: []types.PropertySpec{{Type: "VirtualMachine", PathSet: []string{
			"runtime.question", "guest.toolsRunningStatus", "guest.toolsVersionStatus2", "guest.hostName",
		}}},
	})
	var vm mo.VirtualMachine
	if err == nil {
		err = mo.LoadObjectContent(found, &vm)
	}
	if err != nil {
		return nil, b.translate(ctx, op, "VM "+m.name, b.forget(err))
	}
	x := &probing{b: b.center, op: op}
	var problem error
	if !m.on {
		problem = director.Errorf(director.KindUnavailable, op, "the VM %s is powered off", m.name).
			WithHint("its events in vCenter say why")
	}
	x.add("", "power", "on", problem)
	if q := vm.Runtime.Question; q != nil {
		x.add(
			"", "question", "",
			director.Errorf(
				director.KindConflict, op, "vCenter waits for an answer about the VM %s: %s", m.name, q.Text,
			).
				WithHint("answer it in vCenter"),
		)
	}
	for _, n := range m.nics {
		var problem error
		if n.network.Value == "" {
			problem = director.Errorf(
				director.KindConflict, op, "the adapter %s of the VM %s is not connected", n.mac, m.name,
			).
				WithHint("connect it in vCenter")
		}
		x.add("", "adapter "+n.mac, "connected", problem)
	}
	if m.on && vm.Guest != nil {
		x.add("", "VMware tools", "they run in "+vm.Guest.HostName, tools(op, m.name, vm.Guest))
	}
	return x.all, nil
}

// tools says what is wrong with the guest's tools.
func tools(op, name string, g *types.GuestInfo) error {
	switch {
	case g.ToolsRunningStatus == string(types.VirtualMachineToolsRunningStatusGuestToolsRunning):
		return nil
	case g.ToolsVersionStatus2 == string(types.VirtualMachineToolsVersionStatusGuestToolsNotInstalled):
		return director.Errorf(director.KindInvalid, op, "the guest of the VM %s has no VMware tools", name).
			WithHint(
				"install open-vm-tools in the image, and cloud-init with the data source VMware: without them the " +
					"guest reads no settings from vCenter",
			)
	default:
		return director.Errorf(
			director.KindUnavailable, op, "VMware's tools do not run in the guest of the VM %s", name,
		).
			WithHint(
				"look at its console: it has not booted yet, or hangs; if it has, enable open-vm-tools in the image",
			)
	}
}
