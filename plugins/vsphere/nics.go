package vsphere

import (
	"context"
	"slices"
	"strings"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director/hypervisor"
)

// nic is a network adapter as vCenter has it.
type nic struct {
	mac     string
	network types.ManagedObjectReference // where it is connected; zero if it is connected to none
}

// nicsOf returns the network adapters among the devices. One that was unplugged from a running VM is on no network.
func nicsOf(devices []types.BaseVirtualDevice, on bool) []nic {
	var out []nic
	for _, d := range devices {
		card, ok := d.(types.BaseVirtualEthernetCard)
		if !ok {
			continue
		}
		c := card.GetVirtualEthernetCard()
		n := nic{mac: strings.ToLower(c.MacAddress)}
		if plugged := c.Connectable == nil || !on || c.Connectable.Connected; plugged {
			n.network = networkOf(c.Backing)
		}
		out = append(out, n)
	}
	return out
}

// networkOf is the network that an adapter's backing is part of.
func networkOf(b types.BaseVirtualDeviceBackingInfo) types.ManagedObjectReference {
	switch b := b.(type) {
	case *types.VirtualEthernetCardNetworkBackingInfo:
		if b.Network != nil {
			return *b.Network
		}
	case *types.VirtualEthernetCardDistributedVirtualPortBackingInfo:
		return types.ManagedObjectReference{Type: "DistributedVirtualPortgroup", Value: b.Port.PortgroupKey}
	}
	return types.ManagedObjectReference{}
}

// keyNICs is written into a VM's settings when it is made: a line for each adapter with its MAC, the port group's
// reference, and the name of the Network that the director knows it by. vCenter alone could only tell the port group.
const keyNICs = "kaas.nics"

func nicLines(s hypervisor.Spec, groups []*portGroup) string {
	var b strings.Builder
	for i, n := range s.NICs {
		b.WriteString(strings.ToLower(n.MAC) + " " + groups[i].ref.Value + " " + n.Network + "\n")
	}
	return b.String()
}

// adapters tells on which of the director's networks the machine's adapters are; on another one it is called by the
// port group's name. It is nil if the machine's settings do not say how they are to be: it was made by others.
func (b *center) adapters(ctx context.Context, p *place, m *machine) ([]hypervisor.Adapter, error) {
	made := m.extra[keyNICs]
	if made == "" || m.nics == nil {
		return nil, nil
	}
	var out []hypervisor.Adapter
	for _, n := range m.nics {
		a := hypervisor.Adapter{MAC: n.mac}
		for line := range strings.Lines(made) {
			if f := strings.SplitN(strings.TrimSpace(line), " ", 3); len(f) == 3 && f[1] == n.network.Value {
				a.Network = f[2]
				if f[0] == n.mac {
					break // two adapters may be on one port group by two names
				}
			}
		}
		if a.Network == "" && n.network.Value != "" {
			name, err := b.nameOf(ctx, p, n.network)
			if err != nil {
				return nil, err
			}
			a.Network = name
		}
		out = append(out, a)
	}
	return out, nil
}

// readDevices fills in the adapters of machines that were read without their devices, in one call, and returns those
// that are there still.
func readDevices(ctx context.Context, p *place, machines []*machine) ([]*machine, error) {
	byRef := map[types.ManagedObjectReference]*machine{}
	spec := types.PropertyFilterSpec{
		PropSet: []types.PropertySpec{{Type: "VirtualMachine", PathSet: []string{propDevices}}},
	}
	for _, m := range machines {
		if m.extra[keyNICs] != "" && m.nics == nil {
			byRef[m.ref] = m
			spec.ObjectSet = append(spec.ObjectSet, types.ObjectSpec{Obj: m.ref})
		}
	}
	if len(byRef) == 0 {
		return machines, nil
	}
	found, err := retrieve(ctx, p.vim, spec)
	// one of them went meanwhile, and vCenter does not tell of the others then
	if hasFault[types.ManagedObjectNotFound](err) {
		if len(machines) == 1 {
			return nil, nil
		}
		half := len(machines) / 2
		first, err := readDevices(ctx, p, machines[:half])
		if err != nil {
			return nil, err
		}
		second, err := readDevices(ctx, p, machines[half:])
		return append(slices.Clone(first), second...), err
	}
	if err != nil {
		return nil, err
	}
	for _, o := range found {
		m := byRef[o.Obj]
		for _, v := range o.PropSet {
			if list, ok := v.Val.(types.ArrayOfVirtualDevice); ok && m != nil {
				m.nics = nicsOf(list.VirtualDevice, m.on)
			}
		}
	}
	return machines, nil
}
