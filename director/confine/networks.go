package confine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"syscall"
	"time"
)

// Networks are the ranges of addresses that the director may connect to for a provider. None allows no address.
type Networks []netip.Prefix

// Private are the private ranges of IPv4 and IPv6, and the one that carriers share (RFC 6598).
func Private() Networks {
	return Networks{
		netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("172.16.0.0/12"),
		netip.MustParsePrefix("192.168.0.0/16"), netip.MustParsePrefix("100.64.0.0/10"),
		netip.MustParsePrefix("fc00::/7"),
	}
}

// Allowed are the ranges that a document names, and the private ones if it names none.
func Allowed(named []netip.Prefix) Networks {
	if len(named) == 0 {
		return Private()
	}
	return named
}

// ErrAddress is in errors about addresses that are not allowed.
var ErrAddress = errors.New("an address that is not allowed")

// delicate are ranges that lead to the director itself, to its link or to many. A wider range does not allow them: one
// of their own does.
var delicate = []netip.Prefix{
	netip.MustParsePrefix("0.0.0.0/8"), netip.MustParsePrefix("127.0.0.0/8"), netip.MustParsePrefix("169.254.0.0/16"),
	netip.MustParsePrefix("224.0.0.0/4"),
	netip.MustParsePrefix("240.0.0.0/4"), netip.MustParsePrefix("::/128"), netip.MustParsePrefix("::1/128"),
	netip.MustParsePrefix("fe80::/10"),
	netip.MustParsePrefix("ff00::/8"), netip.MustParsePrefix("64:ff9b::/96"), netip.MustParsePrefix("2002::/16"),
}

// Check tells whether the director may connect to the address.
func (n Networks) Check(a netip.Addr) error {
	a = a.Unmap().WithZone("")
	own := 0 // prefix length from which on a range is meant for the address
	for _, d := range delicate {
		if d.Contains(a) {
			own = d.Bits()
		}
	}
	for _, p := range n {
		if p.Contains(a) && p.Bits() >= own {
			return nil
		}
	}
	return fmt.Errorf("%s is %w", a, ErrAddress)
}

// Resolve returns the addresses of the host, a name or an address. All of them are allowed: a name that also leads
// elsewhere is refused.
func (n Networks) Resolve(ctx context.Context, host string) ([]netip.Addr, error) {
	if a, err := netip.ParseAddr(host); err == nil {
		return []netip.Addr{a}, n.Check(a)
	}
	all, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	if err != nil {
		return nil, err
	}
	for i, a := range all {
		if err := n.Check(a); err != nil {
			return nil, fmt.Errorf("%s leads to %w", host, err)
		}
		all[i] = a.Unmap()
	}
	return all, nil
}

// NetworksHint says what to do about an address that is not allowed.
const NetworksHint = "correct the address in the Provider, or name its range in providerNetworks of the director's " +
	"configuration"

// Dialer returns a dialer that looks at each address after it was resolved and before anything is sent to it.
func (n Networks) Dialer() *net.Dialer {
	return &net.Dialer{
		Timeout: 30 * time.Second, KeepAlive: 30 * time.Second,
		ControlContext: func(_ context.Context, network, address string, _ syscall.RawConn) error {
			if !strings.HasPrefix(network, "tcp") {
				return fmt.Errorf("%s is %w", network, ErrAddress)
			}
			a, err := netip.ParseAddrPort(address)
			if err != nil {
				return err
			}
			return n.Check(a.Addr())
		},
	}
}
