package libvirt

import (
	"cmp"
	"context"
	"net/netip"
	"slices"
	"strings"

	virt "libvirt.org/go/libvirt"

	"github.com/director-kaas/kaas/director/hypervisor"
)

var _ hypervisor.AddressTeller = (*Backend)(nil)

// UsedAddresses implements hypervisor.AddressTeller: what leases of libvirt's networks and the hosts' neighbour tables
// say of the VMs that run. Guest agents are not asked, because one that hangs is waited for.
func (b *Backend) UsedAddresses(ctx context.Context) ([]hypervisor.UsedAddress, error) {
	const op = "libvirt.used_addresses"
	all, err := ofDomains(
		ctx, b.fleet, op, virt.CONNECT_LIST_DOMAINS_ACTIVE,
		func(h *host, d *domain) []hypervisor.UsedAddress { return d.addresses(h) },
	)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(x, y hypervisor.UsedAddress) int {
		return cmp.Or(x.Address.Compare(y.Address), cmp.Compare(x.Host, y.Host), cmp.Compare(x.VM, y.VM))
	})
	return slices.Compact(all), nil
}

// addresses asks every source that does not need the guest. Drivers that do not have one of them say so, and that is no
// answer either.
func (d *domain) addresses(h *host) []hypervisor.UsedAddress {
	var out []hypervisor.UsedAddress
	for _, source := range []virt.DomainInterfaceAddressesSource{
		virt.DOMAIN_INTERFACE_ADDRESSES_SRC_LEASE, virt.DOMAIN_INTERFACE_ADDRESSES_SRC_ARP,
	} {
		nics, err := d.ListAllInterfaceAddresses(source)
		if err != nil {
			continue
		}
		for _, n := range nics {
			u := hypervisor.UsedAddress{VM: d.name, Host: h.Name, Stamp: d.mark.stamp(), MAC: strings.ToLower(n.Hwaddr)}
			for _, a := range d.nics {
				if strings.EqualFold(a.MAC, n.Hwaddr) {
					u.Network = a.Network
				}
			}
			for _, a := range n.Addrs {
				if addr, err := netip.ParseAddr(a.Addr); err == nil {
					u.Address = addr
					out = append(out, u)
				}
			}
		}
	}
	return out
}
