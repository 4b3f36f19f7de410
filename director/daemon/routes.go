package daemon

import (
	"net/netip"
	"sync"
	"time"
)

// routes remembers for a moment from which address others are reached: each run of a playbook asks it of every node.
// It is safe for concurrent use.
type routes struct {
	find func(other netip.Addr) (netip.Addr, bool)
	now  func() time.Time

	mu    sync.Mutex
	known map[netip.Addr]route
}

type route struct {
	local netip.Addr
	ok    bool
	until time.Time
}

// A route that has changed is used for so long still, and so many are remembered.
const (
	routeLife = 10 * time.Second
	routeRows = 20_000
)

// localAddress returns the address from which packets to the other one leave.
func (r *routes) localAddress(other netip.Addr) (netip.Addr, bool) {
	now := r.now()
	r.mu.Lock()
	known, found := r.known[other]
	r.mu.Unlock()
	if found && now.Before(known.until) {
		return known.local, known.ok
	}
	local, ok := r.find(other)
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.known == nil || len(r.known) >= routeRows {
		r.known = map[netip.Addr]route{}
	}
	r.known[other] = route{local: local, ok: ok, until: now.Add(routeLife)}
	return local, ok
}
