package model

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// AddressRange is a closed range of addresses, written 10.88.0.10-10.88.0.99, as a prefix (10.88.0.128/26), or as one
// address.
type AddressRange struct{ From, To netip.Addr }

// String renders one address as itself, and a range with a dash.
func (r AddressRange) String() string {
	if r.From == r.To {
		return r.From.String()
	}
	return r.From.String() + "-" + r.To.String()
}

// MarshalText renders r as String does.
func (r AddressRange) MarshalText() ([]byte, error) { return []byte(r.String()), nil }

// UnmarshalText reads an address, a range with a dash, or a prefix, of which it takes every address.
func (r *AddressRange) UnmarshalText(b []byte) error {
	text := string(b)
	wrong := fmt.Errorf(
		"%q is no address and no range of them (10.88.0.11, 10.88.0.20-10.88.0.29, 10.88.0.32/28)", text,
	)
	if prefix, err := netip.ParsePrefix(text); err == nil {
		if !prefix.Addr().Is4() {
			return wrong
		}
		prefix = prefix.Masked()
		last := number(prefix.Addr()) | uint32(1<<(32-prefix.Bits())-1)
		*r = AddressRange{prefix.Addr(), address(last)}
		return nil
	}
	from, to, isRange := strings.Cut(text, "-")
	if !isRange {
		to = from
	}
	first, err1 := netip.ParseAddr(strings.TrimSpace(from))
	last, err2 := netip.ParseAddr(strings.TrimSpace(to))
	if err1 != nil || err2 != nil || !first.Is4() || !last.Is4() {
		return wrong
	}
	if last.Less(first) {
		return fmt.Errorf("%q ends before it begins", text)
	}
	*r = AddressRange{first, last}
	return nil
}

// Contains tells whether the address lies in the range.
func (r AddressRange) Contains(a netip.Addr) bool {
	return a.IsValid() && !a.Less(r.From) && !r.To.Less(a)
}

func number(a netip.Addr) uint32 {
	b := a.As4()
	return binary.BigEndian.Uint32(b[:])
}

func address(n uint32) netip.Addr {
	var b [4]byte
	binary.BigEndian.PutUint32(b[:], n)
	return netip.AddrFrom4(b)
}

// Spans returns the ranges of the pool: what from and to say is the first of them.
func (p AddressPool) Spans() []AddressRange {
	var out []AddressRange
	if p.From.IsValid() && p.To.IsValid() {
		out = append(out, AddressRange{p.From, p.To})
	}
	return append(out, p.Ranges...)
}

// segment is a closed range of addresses as numbers. They are wide enough to step over the last address.
type segment struct{ from, to int64 }

// segments returns what the pool gives away, ascending and without overlaps. A network's first and last address are
// never given away. Networks with an address that is not IPv4 have none.
func (n *Network) segments() []segment {
	var in, out []segment
	for _, r := range n.Pool.Spans() {
		if !r.From.Is4() || !r.To.Is4() {
			return nil
		}
		in = append(in, segment{int64(number(r.From)), int64(number(r.To))})
	}
	holes := slices.Clone(n.Pool.Exclude)
	if n.CIDR.IsValid() && n.CIDR.Addr().Is4() {
		first := n.CIDR.Masked().Addr()
		last := address(number(first) | uint32(1<<(32-n.CIDR.Bits())-1))
		holes = append(holes, AddressRange{first, first}, AddressRange{last, last})
	}
	slices.SortFunc(in, func(a, b segment) int { return cmp.Compare(a.from, b.from) })
	slices.SortFunc(holes, func(a, b AddressRange) int { return a.From.Compare(b.From) })
	next := int64(0) // nothing below it is given away again
	for _, s := range in {
		at := max(s.from, next)
		for _, h := range holes {
			if !h.From.Is4() || !h.To.Is4() {
				continue
			}
			from, to := int64(number(h.From)), int64(number(h.To))
			if to < at || from > s.to {
				continue
			}
			if at < from {
				out = append(out, segment{at, from - 1})
			}
			at = max(at, to+1)
		}
		if at <= s.to {
			out = append(out, segment{at, s.to})
		}
		next = max(next, s.to+1)
	}
	return out
}

// Addresses returns how many addresses the pool gives away.
func (n *Network) Addresses() int {
	count := int64(0)
	for _, s := range n.segments() {
		count += s.to - s.from + 1
	}
	return int(count)
}

// Free returns the first count addresses of the pool that used does not hold, or an error that says how many are left.
func (n *Network) Free(count int, used map[netip.Addr]bool) ([]netip.Addr, error) {
	var free []netip.Addr
	for _, s := range n.segments() {
		for i := s.from; i <= s.to && len(free) < count; i++ {
			if a := address(uint32(i)); !used[a] { //nolint:gosec // the number of an address
				free = append(free, a)
			}
		}
	}
	if len(free) < count {
		var ranges []string
		for _, r := range n.Pool.Spans() {
			ranges = append(ranges, fmt.Sprintf("%s-%s", r.From, r.To))
		}
		return nil, fmt.Errorf(
			"%d addresses are needed and %d are free in %s", count, len(free), strings.Join(ranges, ", "),
		)
	}
	return free, nil
}

// Giver returns what tells whether the pool gives an address away: Free would return it.
func (n *Network) Giver() func(netip.Addr) bool {
	segments := n.segments()
	return func(a netip.Addr) bool {
		return a.Is4() && slices.ContainsFunc(segments, func(s segment) bool {
			i := int64(number(a))
			return s.from <= i && i <= s.to
		})
	}
}

// Holds tells whether the pool has the address, and not as one of its holes.
func (n *Network) Holds(a netip.Addr) bool {
	in := func(ranges []AddressRange) bool {
		return slices.ContainsFunc(ranges, func(r AddressRange) bool { return r.Contains(a) })
	}
	return in(n.Pool.Spans()) && !in(n.Pool.Exclude)
}

// pool checks the ranges of the network's pool. It returns false if there are none.
func (v networkValidator) pool(n *Network) bool {
	p := n.Pool
	switch {
	case p.From.IsValid() && !p.To.IsValid():
		v.fail("spec.pool.to", "the last address of the range", "is missing")
		return false
	case p.To.IsValid() && !p.From.IsValid():
		v.fail("spec.pool.from", "the first address of the range", "is missing")
		return false
	case len(p.Spans()) == 0:
		v.fail("spec.pool", "write from and to, or ranges such as [10.88.0.10-10.88.0.99]", "has no addresses")
		return false
	}
	return true
}

// poolInside checks that everything of the pool lies in the network.
func (v networkValidator) poolInside(n *Network, inside func(path string, a netip.Addr)) {
	p := n.Pool
	inside("spec.pool.from", p.From)
	inside("spec.pool.to", p.To)
	if p.From.IsValid() && p.To.Less(p.From) {
		v.fail("spec.pool.to", "", "%s lies before from, %s", p.To, p.From)
	}
	both := func(at string, r AddressRange) {
		inside(at, r.From)
		if n.CIDR.Contains(r.From) {
			inside(at, r.To)
		}
	}
	for i, r := range p.Ranges {
		at := fmt.Sprintf("spec.pool.ranges[%d]", i)
		both(at, r)
		if p.From.IsValid() && !r.To.Less(p.From) && !p.To.Less(r.From) {
			v.fail(at, "write each address once", "%s touches from and to, %s-%s", r, p.From, p.To)
		}
		for j, o := range p.Ranges[:i] {
			if !r.To.Less(o.From) && !o.To.Less(r.From) {
				v.fail(at, "write each address once", "%s touches ranges[%d], %s", r, j, o)
			}
		}
	}
	for i, r := range p.Exclude {
		both(fmt.Sprintf("spec.pool.exclude[%d]", i), r)
	}
	if n.Holds(n.Gateway) {
		v.fail("spec.pool", "exclude it, or move the range", "holds the gateway, %s", n.Gateway)
	}
}

// attachment checks what connects the nodes to something that exists: bridge, switch, VLAN.
func (v networkValidator) attachment(n *Network) {
	if n.Switch != "" && n.Mode != "bridge" {
		v.fail("spec.switch", "leave it out, or set mode: bridge", "has no meaning for mode %s", n.Mode)
	}
	if n.VLAN != 0 && n.Mode != "bridge" && n.Mode != modePortGroup {
		v.fail(
			"spec.vlan", "leave it out, or set mode: bridge or portgroup",
			"has no meaning for mode %s: its bridge is the director's own", n.Mode,
		)
	}
	v.timeServers("spec.ntp", n.NTP)
}

// routes checks the network's further routes.
func (v networkValidator) routes(n *Network) {
	seen := map[netip.Prefix]int{}
	for i, r := range n.Routes {
		at := fmt.Sprintf("spec.routes[%d]", i)
		if !r.To.IsValid() || !r.Via.IsValid() {
			continue // the decoder has said so
		}
		if r.To != r.To.Masked() {
			v.fail(at+".to", "write "+r.To.Masked().String(), "%s has bits set behind the prefix length", r.To)
		}
		if r.To.Bits() == 0 {
			v.fail(at+".to", "set spec.gateway", "is the default route")
		}
		if !n.CIDR.Contains(r.Via) {
			v.fail(at+".via", "an address of the network", "%s is not inside %s", r.Via, n.CIDR)
		}
		if first, twice := seen[r.To]; twice {
			v.fail(at+".to", "keep one", "is the target of routes[%d] too", first)
		}
		seen[r.To] = i
	}
}
