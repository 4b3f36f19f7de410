package sim

import (
	"cmp"
	"context"
	"slices"

	"github.com/director-kaas/kaas/director/hypervisor"
)

var _ hypervisor.AddressTeller = (*Backend)(nil)

// UsedAddresses implements hypervisor.AddressTeller: the addresses that VMs were made with, of those that are on.
func (b *Backend) UsedAddresses(ctx context.Context) ([]hypervisor.UsedAddress, error) {
	var out []hypervisor.UsedAddress
	err := b.do(ctx, VerbList, nil, func(string, When) error {
		out = nil
		for _, v := range b.w.vms {
			if v.Power != hypervisor.PowerOn || b.lost[v.Host] {
				continue
			}
			for _, n := range v.spec.NICs {
				for _, a := range n.Addresses {
					out = append(out, hypervisor.UsedAddress{
						VM: v.Name, Host: v.Host, Stamp: v.Stamp, Network: n.Network, MAC: n.MAC, Address: a.Addr(),
					})
				}
			}
		}
		return nil
	})
	slices.SortFunc(out, func(x, y hypervisor.UsedAddress) int {
		return cmp.Or(x.Address.Compare(y.Address), cmp.Compare(x.VM, y.VM))
	})
	return out, err
}
