// Package loopback finds addresses for the servers of tests.
package loopback

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"sync"
	"testing"
)

const (
	lowest = 10000 // below it are ports of well-known programs
	few    = 1000  // ports that are too few to draw from
	tries  = 1000
)

var (
	given     = map[uint16]bool{}
	givenLock sync.Mutex
)

// Free returns an address of 127.0.0.1 on which nothing listens, for a server that cannot take port 0 because something
// has to know its port before it listens. No two calls of a process return the same one. The port is drawn below the
// range from which Linux takes one for a connection or for port 0. So what else runs on the machine, such as the tests
// of other packages, does not get it by chance before the server has it. Safe for concurrent use.
func Free() (netip.AddrPort, error) {
	end, err := ephemeral()
	if err != nil {
		return netip.AddrPort{}, err
	}
	if end < lowest+few {
		end = 1 << 16 // this machine gives out nearly all ports itself
	}
	givenLock.Lock()
	defer givenLock.Unlock()
	for range tries {
		port := uint16(lowest + rand.IntN(end-lowest))
		if given[port] {
			continue
		}
		a := netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), port)
		l, err := (&net.ListenConfig{}).Listen(context.Background(), "tcp", a.String())
		if err != nil {
			continue
		}
		given[port] = true
		return a, l.Close()
	}
	return netip.AddrPort{}, fmt.Errorf("no port from %d to %d was free at %d tries", lowest, end-1, tries)
}

// FreeFor is Free for a test, which fails if there is none.
func FreeFor(tb testing.TB) netip.AddrPort {
	tb.Helper()
	a, err := Free()
	if err != nil {
		tb.Fatal(err)
	}
	return a
}

// ephemeral returns the first port that Linux gives out on its own: ip_local_port_range of
// https://docs.kernel.org/networking/ip-sysctl.html.
func ephemeral() (int, error) {
	const file = "/proc/sys/net/ipv4/ip_local_port_range"
	text, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	var first, last int
	if _, err := fmt.Sscan(string(text), &first, &last); err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return first, nil
}
