package vsphere

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director/hypervisor"
)

var _ hypervisor.AddressTeller = (*Backend)(nil)

// UsedAddresses implements hypervisor.AddressTeller: what the guests' tools have told vCenter, of every VM of the
// datacenter that the account may see.
func (b *Backend) UsedAddresses(ctx context.Context) ([]hypervisor.UsedAddress, error) {
	const op = "vsphere.used_addresses"
	p, err := b.place(ctx, op)
	if err != nil {
		return nil, err
	}
	found, err := below(ctx, p.vim, p.root)
	if err != nil {
		return nil, b.translate(ctx, op, "the VMs of datacenter "+b.cfg.Datacenter, b.forget(err))
	}
	byRef := map[types.ManagedObjectReference]*machine{}
	spec := types.PropertyFilterSpec{
		PropSet:                       []types.PropertySpec{{Type: "VirtualMachine", PathSet: []string{"guest.net"}}},
		ReportMissingObjectsInResults: types.NewBool(true),
	}
	for _, m := range found {
		if m.on && !m.template {
			byRef[m.ref] = m
			spec.ObjectSet = append(spec.ObjectSet, types.ObjectSpec{Obj: m.ref})
		}
	}
	if len(byRef) == 0 {
		return nil, nil
	}
	guests, err := retrieve(ctx, p.vim, spec)
	if err != nil {
		return nil, b.translate(ctx, op, "the guests of datacenter "+b.cfg.Datacenter, b.forget(err))
	}
	var all []hypervisor.UsedAddress
	for _, o := range guests {
		m := byRef[o.Obj]
		vm, err := b.vm(ctx, p, m)
		if err != nil {
			return nil, b.translate(ctx, op, "VM "+m.name, b.forget(err))
		}
		for _, prop := range o.PropSet {
			nics, _ := prop.Val.(types.ArrayOfGuestNicInfo)
			for _, n := range nics.GuestNicInfo {
				for _, text := range n.IpAddress {
					if a, err := netip.ParseAddr(text); err == nil {
						// The guest's network is named without its path, which no Network need do: it is not compared.
						all = append(all, hypervisor.UsedAddress{
							VM: vm.Name, Host: vm.Host, Stamp: vm.Stamp, MAC: strings.ToLower(n.MacAddress), Address: a,
						})
					}
				}
			}
		}
	}
	slices.SortFunc(all, func(x, y hypervisor.UsedAddress) int {
		return cmp.Or(x.Address.Compare(y.Address), cmp.Compare(x.VM, y.VM))
	})
	return all, nil
}
