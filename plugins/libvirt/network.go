package libvirt

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"

	virt "libvirt.org/go/libvirt"
	virtxml "libvirt.org/go/libvirtxml"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// networkIsUp returns not_found if the host has no such network, and unavailable if it is not started.
func networkIsUp(op string, h *host, c *virt.Connect, name string) error {
	n, err := c.LookupNetworkByName(name)
	if is(err, virt.ERR_NO_NETWORK) {
		return director.Errorf(director.KindNotFound, op, "host %s has no network %q", h.Name, name).
			WithHint("make the network first; these exist: virsh -c %s net-list --all", h.URI)
	}
	if err != nil {
		return err
	}
	defer func() { _ = n.Free() }()
	active, err := n.IsActive()
	if err == nil && !active {
		return director.Errorf(director.KindUnavailable, op, "the network %q of host %s is not started", name, h.Name).
			WithHint("start it: virsh -c %s net-start %s", h.URI, name)
	}
	return err
}

// network is a network with what we know of it.
type network struct {
	*virt.Network
	def  virtxml.Network
	mark mark
}

func inspectNetwork(n *virt.Network) (*network, error) {
	text, err := n.GetXMLDesc(0)
	if err != nil {
		_ = n.Free()
		if is(err, virt.ERR_NO_NETWORK) {
			return nil, nil
		}
		return nil, err
	}
	x := &network{Network: n}
	if err := x.def.Unmarshal(text); err != nil {
		_ = n.Free()
		return nil, err
	}
	if x.def.Metadata != nil {
		x.mark, _ = parseMark("network", x.def.Metadata.XML)
	}
	return x, nil
}

func findNetwork(c *virt.Connect, name string) (*network, error) {
	n, err := c.LookupNetworkByName(name)
	if is(err, virt.ERR_NO_NETWORK) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return inspectNetwork(n)
}

// EnsureNetwork implements hypervisor.Networking. The network is made on every host of the provider, and starts with
// it. Nothing answers DHCP or DNS on it.
func (b *Backend) EnsureNetwork(ctx context.Context, s hypervisor.NetworkSpec) error {
	const op = "libvirt.ensure_network"
	if err := s.Validate(op); err != nil {
		return err
	}
	if s.Mode == hypervisor.ModePortGroup {
		return director.Errorf(
			director.KindInvalid, op, "libvirt has no port groups, which the network %q asks for", s.Name,
		).
			WithHint("choose another mode for the Network: open, nat, isolated or bridge")
	}
	return b.alone(ctx, op, "networks", func(work context.Context) error {
		return b.onEach(work, op, func(h *host, c *virt.Connect) error { return h.ensureNetwork(op, c, s) })
	})
}

func (h *host) ensureNetwork(op string, c *virt.Connect, s hypervisor.NetworkSpec) error {
	n, err := findNetwork(c, s.Name)
	if err != nil {
		return err
	}
	if n == nil {
		if err := errors.Join(h.overlap(op, c, s), h.tags(op, c, s)); err != nil {
			return err
		}
		text, err := networkXML(s)
		if err != nil {
			return err
		}
		defined, err := c.NetworkDefineXML(text)
		if err != nil {
			if n, again := findNetwork(c, s.Name); again == nil && n != nil { // since we looked
				_ = n.Free()
				return director.Errorf(
					director.KindConflict, op, "a network named %q appeared on host %s", s.Name, h.Name,
				)
			}
			return err
		}
		if n, err = inspectNetwork(defined); err != nil {
			return err
		}
		if n == nil {
			return director.Errorf(director.KindUnavailable, op, "the network %q vanished while it was made", s.Name)
		}
	}
	defer func() { _ = n.Free() }()
	if n.mark.stamp() != s.Owner {
		return director.Errorf(
			director.KindConflict, op, "a network named %q exists on host %s and is not this one", s.Name, h.Name,
		).
			WithHint("choose another name, or remove that network by hand; it was left as it is")
	}
	if n.mark.Settings != settings(s) {
		return director.Errorf(director.KindConflict, op, "the network %q of host %s exists with other settings "+
			"(%s, not %s)",
			s.Name, h.Name, n.mark.Settings, settings(s)).
			WithHint("delete the network first; it cannot be changed under its VMs")
	}
	if active, err := n.IsActive(); err != nil {
		return err
	} else if !active {
		if err := n.Create(); err != nil {
			if active, again := n.IsActive(); again != nil || !active {
				// A network that cannot start is not left to block its name and range.
				if strings.Contains(message(err), "already in use") {
					_ = n.Undefine()
				}
				return err
			}
		}
	}
	return n.SetAutostart(true)
}

// vlanBridges is the first libvirt that tags on the bridges of Linux itself, by their VLAN filtering.
const vlanBridges = 11_000_000

// tags returns invalid if the host's libvirt cannot tag on the bridge: an older one takes the definition, and then
// starts no VM.
func (h *host) tags(op string, c *virt.Connect, s hypervisor.NetworkSpec) error {
	if s.VLAN == 0 || s.OpenVSwitch || strings.HasPrefix(h.URI, "test:") {
		return nil
	}
	version, err := c.GetLibVersion()
	if err != nil || version >= vlanBridges {
		return err
	}
	return director.Errorf(
		director.KindInvalid, op, "libvirt %s on host %s cannot tag VLAN %d on the bridge %s: it can from %s on",
		dotted(version), h.Name, s.VLAN, s.Bridge, dotted(vlanBridges),
	).
		WithHint(
			"leave spec.vlan out and name a bridge over a VLAN interface of the host, such as one over eth0.%d; or "+
				"use Open vSwitch (switch: openvswitch)",
			s.VLAN,
		)
}

// settings is what a network is made from, in one line.
func settings(s hypervisor.NetworkSpec) string {
	if s.Mode == "bridge" {
		text := "bridge " + s.Bridge
		if s.OpenVSwitch {
			text += " openvswitch"
		}
		if s.VLAN != 0 {
			text += fmt.Sprintf(" vlan %d", s.VLAN)
		}
		return text
	}
	return fmt.Sprintf("%s %s %s %s", s.Mode, s.CIDR.Masked(), s.Gateway, bridgeName(s))
}

// bridgeName is computed from the owner, 14 characters of the 15 that Linux takes.
func bridgeName(s hypervisor.NetworkSpec) string {
	sum := sha256.Sum256([]byte(s.Owner.Director + "/" + s.Owner.Machine))
	return cmp.Or(s.Bridge, "kaas"+hex.EncodeToString(sum[:5]))
}

func networkXML(s hypervisor.NetworkSpec) (string, error) {
	m := mark{Director: s.Owner.Director, ID: s.Owner.Machine, Settings: settings(s)}
	def := virtxml.Network{
		Name:     s.Name,
		UUID:     stampUUID("network", s.Owner),
		Metadata: &virtxml.NetworkMetadata{XML: m.element("network", true)},
		Bridge:   &virtxml.NetworkBridge{Name: bridgeName(s)},
	}
	if s.Mode != "isolated" {
		def.Forward = &virtxml.NetworkForward{Mode: s.Mode}
	}
	if s.OpenVSwitch {
		def.VirtualPort = &virtxml.NetworkVirtualPort{
			Params: &virtxml.NetworkVirtualPortParams{OpenVSwitch: &virtxml.NetworkVirtualPortParamsOpenVSwitch{}},
		}
	}
	if s.VLAN != 0 {
		def.VLAN = &virtxml.NetworkVLAN{Tags: []virtxml.NetworkVLANTag{{ID: uint(s.VLAN)}}}
	}
	if s.Mode != "bridge" {
		def.Bridge.STP, def.Bridge.Delay = "on", "0"
		def.DNS = &virtxml.NetworkDNS{Enable: "no"} // and so no dnsmasq
		family := "ipv4"
		if s.Gateway.Is6() {
			family = "ipv6"
		}
		def.IPs = []virtxml.NetworkIP{{Family: family, Address: s.Gateway.String(), Prefix: uint(s.CIDR.Bits())}}
	}
	return def.Marshal()
}

// overlap returns conflict if another network of the host, started or not, has part of the range.
func (h *host) overlap(op string, c *virt.Connect, s hypervisor.NetworkSpec) error {
	if s.Mode == "bridge" {
		return nil
	}
	all, err := c.ListAllNetworks(0)
	if err != nil {
		return err
	}
	var conflict error
	for i := range all {
		n, err := inspectNetwork(&all[i])
		if err != nil || n == nil {
			continue // gone, or not for us to read
		}
		for _, r := range ranges(n.def) {
			if r.Overlaps(s.CIDR) {
				conflict = director.Errorf(
					director.KindConflict, op, "%s overlaps %s of the network %q on host %s", s.CIDR, r, n.def.Name,
					h.Name,
				).
					WithHint("choose another cidr")
			}
		}
		if n.def.Bridge != nil && n.def.Bridge.Name == bridgeName(s) && conflict == nil {
			conflict = director.Errorf(
				director.KindConflict, op, "the bridge %s belongs to the network %q on host %s", bridgeName(s),
				n.def.Name, h.Name,
			)
		}
		_ = n.Free()
	}
	return conflict
}

// ranges returns the ranges that a network has on its bridge and routes to it.
func ranges(def virtxml.Network) []netip.Prefix {
	var all []netip.Prefix
	add := func(address, netmask string, prefix uint) {
		a, err := netip.ParseAddr(address)
		if err != nil {
			return
		}
		bits := int(prefix)
		if m := net.ParseIP(netmask).To4(); m != nil {
			bits, _ = net.IPMask(m).Size()
		}
		if bits == 0 && a.Is4() { // libvirt's default: by class
			bits, _ = net.IP(a.AsSlice()).DefaultMask().Size()
		}
		if p, err := a.Prefix(bits); err == nil {
			all = append(all, p)
		}
	}
	for _, ip := range def.IPs {
		add(ip.Address, ip.Netmask, ip.Prefix)
	}
	for _, r := range def.Routes {
		add(r.Address, r.Netmask, r.Prefix)
	}
	return all
}

// DeleteNetwork implements hypervisor.Networking.
func (b *Backend) DeleteNetwork(ctx context.Context, name string, owner director.Stamp) error {
	const op = "libvirt.delete_network"
	return b.alone(ctx, op, "networks", func(work context.Context) error {
		return b.onEach(work, op, func(h *host, c *virt.Connect) error { return h.deleteNetwork(op, c, name, owner) })
	})
}

func (h *host) deleteNetwork(op string, c *virt.Connect, name string, owner director.Stamp) error {
	n, err := findNetwork(c, name)
	if n == nil || err != nil {
		return err
	}
	defer func() { _ = n.Free() }()
	if n.mark.stamp() != owner || owner == (director.Stamp{}) {
		return director.Errorf(director.KindConflict, op, "the network %q on host %s has another owner", name, h.Name).
			WithHint("it is left as it is; remove it by hand if it is yours")
	}
	users, err := networkUsers(c, name)
	if err != nil {
		return err
	}
	if len(users) > 0 {
		return director.Errorf(
			director.KindConflict, op, "VMs on host %s use the network %q: %s", h.Name, name, strings.Join(users, ", "),
		).
			WithHint("delete them first")
	}
	if active, err := n.IsActive(); err != nil {
		return err
	} else if active {
		if err := n.Destroy(); err != nil && !is(err, virt.ERR_NO_NETWORK, virt.ERR_OPERATION_INVALID) {
			return err
		}
	}
	if err := n.Undefine(); err != nil && !is(err, virt.ERR_NO_NETWORK) {
		return err
	}
	return nil
}

// networkUsers returns the names of the domains with an adapter in the network.
func networkUsers(c *virt.Connect, name string) ([]string, error) {
	domains, err := c.ListAllDomains(0)
	if err != nil {
		return nil, err
	}
	var users []string
	for i := range domains {
		called, err := domains[i].GetName()
		var nics []hypervisor.Adapter
		if err == nil {
			nics, err = (&domain{Domain: &domains[i]}).adapters()
		}
		_ = domains[i].Free()
		if err != nil && !is(err, virt.ERR_NO_DOMAIN) {
			return nil, err
		}
		if slices.ContainsFunc(nics, func(n hypervisor.Adapter) bool { return n.Network == name }) {
			users = append(users, called)
		}
	}
	slices.Sort(users)
	return slices.Compact(users), nil
}
