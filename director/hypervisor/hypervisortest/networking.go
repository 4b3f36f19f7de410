package hypervisortest

import (
	"context"
	"net/netip"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// newNetwork returns a network that is removed after the case.
func (b bundle) newNetwork() (hypervisor.Networking, hypervisor.NetworkSpec) {
	b.Helper()
	networking := capability[hypervisor.Networking](b)
	if b.NewNetwork == nil {
		b.Skip("the subject has no network to make")
	}
	s := b.NewNetwork(b.T)
	s.Owner = director.Stamp{Director: b.Director, Machine: RandomID("n")}
	b.Cleanup(func() {
		x := b.Open(b.T)
		defer x.Close()
		networking, _ := hypervisor.Capability[hypervisor.Networking](x)
		if err := networking.DeleteNetwork(context.WithoutCancel(b.ctx), s.Name, s.Owner); err != nil {
			b.Errorf("DeleteNetwork while tidying up: %v", err)
		}
	})
	return networking, s
}

// madeNetwork is newNetwork on the hypervisor.
func (b bundle) madeNetwork() (hypervisor.Networking, hypervisor.NetworkSpec) {
	b.Helper()
	networking, s := b.newNetwork()
	if err := networking.EnsureNetwork(b.ctx, s); err != nil {
		b.Fatalf("EnsureNetwork: %v", err)
	}
	return networking, s
}

func networksIdempotent(b bundle) {
	networking, s := b.newNetwork()
	for range 2 {
		if err := networking.EnsureNetwork(b.ctx, s); err != nil {
			b.Fatalf("EnsureNetwork: %v", err)
		}
	}
	changed := s
	changed.Mode = "isolated"
	if s.Mode == "isolated" {
		changed.Mode = "nat"
	}
	b.wantKind(networking.EnsureNetwork(b.ctx, changed), director.KindConflict, "EnsureNetwork with another mode")
	for range 2 {
		if err := networking.DeleteNetwork(b.ctx, s.Name, s.Owner); err != nil {
			b.Errorf("DeleteNetwork: %v", err)
		}
		b.remains("after DeleteNetwork")
	}
}

func networksForeign(b bundle) {
	networking, s := b.madeNetwork()
	other := s
	other.Owner = director.Stamp{Director: RandomID("d"), Machine: s.Owner.Machine}
	b.wantKind(networking.EnsureNetwork(b.ctx, other), director.KindConflict, "EnsureNetwork of another director")
	b.wantKind(
		networking.DeleteNetwork(b.ctx, s.Name, other.Owner), director.KindConflict,
		"DeleteNetwork by another director",
	)
	if b.ForeignNetwork == nil {
		return
	}
	by := b.ForeignNetwork(b.T)
	by.Owner = s.Owner
	b.wantKind(networking.EnsureNetwork(b.ctx, by), director.KindConflict, "EnsureNetwork of a network made by hand")
	b.wantKind(
		networking.DeleteNetwork(b.ctx, by.Name, s.Owner), director.KindConflict,
		"DeleteNetwork of a network made by hand",
	)
}

func networksOverlap(b bundle) {
	networking, s := b.madeNetwork()
	other := s
	other.Owner.Machine = RandomID("n")
	other.Name = RandomID("overlap-")
	other.CIDR = netip.PrefixFrom(s.CIDR.Addr(), s.CIDR.Bits()+1)
	other.Gateway = s.CIDR.Addr().Next()
	b.wantKind(networking.EnsureNetwork(b.ctx, other), director.KindConflict, "EnsureNetwork with an overlap")
	if err := networking.DeleteNetwork(b.ctx, other.Name, other.Owner); err != nil {
		b.Errorf("DeleteNetwork of a refused network: %v", err)
	}
}

func networksInUse(b bundle) {
	networking, s := b.madeNetwork()
	vm := b.spec("network")
	vm.NICs[0].Network = s.Name
	v := b.ready(b.b, vm)
	b.wantKind(networking.DeleteNetwork(b.ctx, s.Name, s.Owner), director.KindConflict, "DeleteNetwork in use")
	b.delete(v.ID, hypervisor.DeleteOptions{Owner: vm.Key})
	if err := networking.DeleteNetwork(b.ctx, s.Name, s.Owner); err != nil {
		b.Errorf("DeleteNetwork: %v", err)
	}
}

func networksInvalid(b bundle) {
	networking, s := b.newNetwork()
	for name, change := range map[string]func(*hypervisor.NetworkSpec){
		"mode":              func(s *hypervisor.NetworkSpec) { s.Mode = "magic" },
		"gateway elsewhere": func(s *hypervisor.NetworkSpec) { s.Gateway = netip.MustParseAddr("203.0.113.1") },
		"no bridge":         func(s *hypervisor.NetworkSpec) { s.Mode, s.Bridge = "bridge", "" },
		"long bridge":       func(s *hypervisor.NetworkSpec) { s.Bridge = "a-bridge-with-a-long-name" },
		"no owner":          func(s *hypervisor.NetworkSpec) { s.Owner = director.Stamp{} },
	} {
		x := s
		change(&x)
		b.wantKind(networking.EnsureNetwork(b.ctx, x), director.KindInvalid, name)
	}
	b.remains("after refused calls")
}

// networksVLAN asks for a VLAN where there can be none: the bridge is the director's own.
func networksVLAN(b bundle) {
	networking, s := b.newNetwork()
	for _, change := range []func(*hypervisor.NetworkSpec){
		func(s *hypervisor.NetworkSpec) { s.VLAN = 4095 },
		func(s *hypervisor.NetworkSpec) { s.Mode, s.PortGroup, s.VLAN = "isolated", "", 7 },
		func(s *hypervisor.NetworkSpec) { s.Mode, s.PortGroup, s.OpenVSwitch = "nat", "", true },
	} {
		wrong := s
		if wrong.CIDR == (netip.Prefix{}) {
			wrong.CIDR, wrong.Gateway = netip.MustParsePrefix("192.0.2.0/24"), netip.MustParseAddr("192.0.2.1")
		}
		change(&wrong)
		b.wantKind(networking.EnsureNetwork(b.ctx, wrong), director.KindInvalid, "EnsureNetwork with a VLAN")
	}
}
