package vsphere

import (
	"context"
	"errors"

	"github.com/vmware/govmomi/find"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// portGroup is a network that adapters are connected to.
type portGroup struct {
	ref     types.ManagedObjectReference
	name    string
	backing types.BaseVirtualDeviceBackingInfo
}

// network returns the port group with that name or inventory path. Errors: not_found.
func (b *center) network(ctx context.Context, op string, p *place, name string) (*portGroup, error) {
	p.mu.Lock()
	known := p.networks[name]
	p.mu.Unlock()
	if known != nil {
		return known, nil
	}
	n, err := p.finder.Network(ctx, name)
	if _, missing := errors.AsType[*find.NotFoundError](err); missing {
		return nil, director.Errorf(director.KindNotFound, op, "vCenter has no port group %s", name).
			WithHint("make it, or correct spec.portGroup of the Network; govc find / -type n lists them all")
	}
	if _, many := errors.AsType[*find.MultipleFoundError](err); many {
		return nil, director.Errorf(director.KindNotFound, op, "several port groups are named %s", name).
			WithHint("write the whole inventory path in spec.portGroup of the Network")
	}
	if err != nil {
		return nil, b.translate(ctx, op, "port group "+name, err)
	}
	if kind := n.Reference().Type; kind == "DistributedVirtualSwitch" || kind == "VmwareDistributedVirtualSwitch" {
		return nil, director.Errorf(director.KindInvalid, op, "%s is a distributed switch and no port group", name).
			WithHint("name one of its port groups in spec.portGroup of the Network")
	}
	backing, err := n.EthernetCardBackingInfo(ctx)
	if err != nil {
		return nil, b.translate(ctx, op, "port group "+name, err)
	}
	g := &portGroup{n.Reference(), name, backing}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.networks[name] = g
	return g, nil
}

// EnsureNetwork implements hypervisor.Networking. Port groups are made by vCenter's administrators; here the one that
// the Network names is looked for, on every host that VMs may go to.
func (b *Backend) EnsureNetwork(ctx context.Context, s hypervisor.NetworkSpec) error {
	const op = "vsphere.ensure_network"
	if err := s.Validate(op); err != nil {
		return err
	}
	if s.Mode != hypervisor.ModePortGroup {
		return director.Errorf(director.KindInvalid, op, "a network of mode %s cannot be made on vSphere", s.Mode).
			WithHint("set mode: portgroup, and portGroup to the inventory path of a port group")
	}
	p, err := b.place(ctx, op)
	if err != nil {
		return err
	}
	g, err := b.network(ctx, op, p, s.PortGroup)
	if err != nil {
		return err
	}
	hosts, err := b.hosts(ctx, op, p)
	if err != nil {
		return err
	}
	for _, h := range hosts {
		if !h.networks[g.ref] && h.state == "" {
			return director.Errorf(director.KindNotFound, op, "host %s has no port group %s", h.name, s.PortGroup).
				WithHint("add it to the host, or name the hosts that have it in spec.vsphere.hosts of the Provider")
		}
	}
	if s.VLAN == 0 {
		return nil
	}
	return b.wantVLAN(ctx, op, p, g, hosts, s)
}

// wantVLAN returns conflict if the port group has another VLAN than the network is to be in. Where the account may not
// see it, nothing is said.
func (b *Backend) wantVLAN(
	ctx context.Context, op string, p *place, g *portGroup, hosts []*esx, s hypervisor.NetworkSpec,
) error {
	has, where, err := vlanOf(ctx, p, g, hosts)
	if err != nil {
		return b.translate(ctx, op, "port group "+s.PortGroup, b.forget(err))
	}
	for i, id := range has {
		if id != s.VLAN {
			return director.Errorf(
				director.KindConflict, op, "the port group %s%s has VLAN %d and not %d", s.PortGroup, where[i], id,
				s.VLAN,
			).
				WithHint("correct spec.vlan or spec.portGroup of the Network, or the port group in vCenter")
		}
	}
	return nil
}

// vlanOf returns the VLANs of the port group: one of a distributed one, and one of each host of a standard one. Trunks
// and private VLANs have none to compare.
func vlanOf(ctx context.Context, p *place, g *portGroup, hosts []*esx) (ids []int, where []string, err error) {
	properties := func(ref types.ManagedObjectReference, path string) (any, error) {
		found, err := retrieve(ctx, p.vim, types.PropertyFilterSpec{
			ObjectSet: []types.ObjectSpec{{Obj: ref}},
			PropSet:   []types.PropertySpec{{Type: ref.Type, PathSet: []string{path}}},
		})
		if err != nil || len(found) == 0 || len(found[0].PropSet) == 0 {
			return nil, err
		}
		return found[0].PropSet[0].Val, nil
	}
	switch g.ref.Type {
	case "DistributedVirtualPortgroup":
		v, err := properties(g.ref, "config.defaultPortConfig")
		if err != nil {
			return nil, nil, err
		}
		if setting, ok := v.(types.VMwareDVSPortSetting); ok {
			if vlan, ok := setting.Vlan.(*types.VmwareDistributedVirtualSwitchVlanIdSpec); ok {
				return []int{int(vlan.VlanId)}, []string{""}, nil
			}
		}
	case "Network":
		name, err := properties(g.ref, "name")
		if err != nil {
			return nil, nil, err
		}
		for _, h := range hosts {
			v, err := properties(h.ref, "config.network.portgroup")
			if err != nil {
				return nil, nil, err
			}
			groups, _ := v.(types.ArrayOfHostPortGroup)
			for _, group := range groups.HostPortGroup {
				if group.Spec.Name == name {
					ids, where = append(ids, int(group.Spec.VlanId)), append(where, " of host "+h.name)
				}
			}
		}
	}
	return ids, where, nil
}

// DeleteNetwork implements hypervisor.Networking. Port groups stay: they were there before.
func (b *Backend) DeleteNetwork(context.Context, string, director.Stamp) error { return nil }
