package steps

import (
	"context"
	"encoding/binary"
	"net"
	"net/netip"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/director-kaas/kaas/director"
)

// AddressProbe is what was seen at addresses that should be free.
type AddressProbe struct {
	Taken map[string]string // how a host shows itself, by address
	ARP   map[string]bool   // addresses on networks that the director itself is on, where silence means more
}

// The bounds of a look: the person who asks for a plan waits for it.
const (
	lookTime     = 8 * time.Second
	looksAtOnce  = 256
	neighborTime = 300 * time.Millisecond
)

// Look asks the networks themselves whether a host is at the addresses of the machines, which do not exist yet. ours
// are the MACs that the ledger knows: what the kernel remembers of a machine that has just been deleted is no sighting.
// It is a best effort in bounded time: a host that drops packets is seen only on a network that the director is on
// itself.
func (e Machines) Look(ctx context.Context, machines []director.Machine, ours map[string]bool) AddressProbe {
	ctx, cancel := context.WithTimeout(ctx, lookTime)
	defer cancel()
	probe := AddressProbe{Taken: map[string]string{}, ARP: map[string]bool{}}
	var mu sync.Mutex
	var wait sync.WaitGroup
	turn := make(chan struct{}, looksAtOnce)
	for _, m := range machines {
		select {
		case turn <- struct{}{}:
		case <-ctx.Done():
			wait.Wait()
			return probe
		}
		wait.Go(func() {
			defer func() { <-turn }()
			if taken, err := e.Answers(ctx, m); err == nil && taken {
				mu.Lock()
				probe.Taken[m.Address] = "a host answers at its SSH port"
				mu.Unlock()
			}
		})
	}
	wait.Wait()
	if e.Nodes != nil { // another world than the network's
		return probe
	}
	near := onLink(machines)
	if len(near) == 0 {
		return probe
	}
	select { // a neighbour may need a moment longer than the knock took
	case <-time.After(neighborTime):
	case <-ctx.Done():
	}
	seen, err := neighbors()
	for a := range near {
		if err != nil {
			break // no table, no say
		}
		probe.ARP[a.String()] = true
		if mac, there := seen[a]; there && !ours[mac] && probe.Taken[a.String()] == "" {
			probe.Taken[a.String()] = "a host answers ARP from " + mac
		}
	}
	return probe
}

// onLink returns which of the addresses are on networks of the director's own interfaces.
func onLink(machines []director.Machine) map[netip.Addr]bool {
	own, err := net.InterfaceAddrs()
	if err != nil {
		return nil
	}
	near := map[netip.Addr]bool{}
	for _, m := range machines {
		a, err := netip.ParseAddr(m.Address)
		if err != nil {
			continue
		}
		for _, i := range own {
			if p, err := netip.ParsePrefix(i.String()); err == nil && !p.Addr().IsLoopback() && p.Contains(a) {
				near[a] = true
			}
		}
	}
	return near
}

// The parts of the kernel's messages about neighbours, from linux/neighbour.h.
const (
	neighborHeader    = 12 // struct ndmsg
	neighborAddress   = 1  // NDA_DST
	neighborHardware  = 2  // NDA_LLADDR
	neighborReachable = 2  // NUD_REACHABLE: it has answered recently. Entries that are only kept have other states
)

// neighbors returns the MACs of the hosts that have answered ARP recently.
func neighbors() (map[netip.Addr]string, error) {
	table, err := syscall.NetlinkRIB(syscall.RTM_GETNEIGH, syscall.AF_INET)
	if err != nil {
		return nil, err
	}
	messages, err := syscall.ParseNetlinkMessage(table)
	if err != nil {
		return nil, err
	}
	seen := map[netip.Addr]string{}
	for _, m := range messages {
		if m.Header.Type == syscall.RTM_NEWNEIGH && len(m.Data) >= neighborHeader {
			if a, mac, ok := neighbor(m.Data); ok {
				seen[a] = mac
			}
		}
	}
	return seen, nil
}

// neighbor reads one entry of the table; false unless it is a neighbour that has answered.
func neighbor(data []byte) (a netip.Addr, mac string, ok bool) {
	if binary.NativeEndian.Uint16(data[8:])&neighborReachable == 0 {
		return a, "", false
	}
	for rest := data[neighborHeader:]; len(rest) >= 4; {
		size, kind := int(binary.NativeEndian.Uint16(rest)), binary.NativeEndian.Uint16(rest[2:])
		if size < 4 || size > len(rest) {
			break
		}
		switch value := rest[4:size]; kind {
		case neighborAddress:
			a, _ = netip.AddrFromSlice(value)
		case neighborHardware:
			mac = strings.ToLower(net.HardwareAddr(value).String())
		}
		rest = rest[min((size+3)&^3, len(rest)):]
	}
	return a, mac, a.IsValid() && mac != ""
}
