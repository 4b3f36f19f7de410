package vsphere

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"

	"github.com/director-kaas/kaas/director"
)

// What vCenter and hosts bear at once. A host has units for provisioning: a full clone, which copies a disk, takes four of them, and a linked
// one, which only makes a new difference to a disk that is there, takes one. vCenter queues what is beyond that, where it holds up everybody
// else's work; so we queue it here.
const (
	hostUnits     = 16
	fullCost      = 4
	linkedCost    = 1
	vcenterAtOnce = 640
	// anyHost collects what DRS places: as much as one host may do, since it is not known how many will share it.
	anyHost = ""
)

// slots says when an operation may begin.
type slots struct {
	all *semaphore.Weighted

	mu    *sync.Mutex
	hosts map[string]*semaphore.Weighted
}

func newSlots() slots {
	return slots{all: semaphore.NewWeighted(vcenterAtOnce), mu: new(sync.Mutex), hosts: map[string]*semaphore.Weighted{}}
}

// provision waits until a clone of that cost may begin on the host, and returns what must be called at its end.
func (s slots) provision(ctx context.Context, op, host string, cost int64) (done func(), err error) {
	s.mu.Lock()
	h := s.hosts[host]
	if h == nil {
		h = semaphore.NewWeighted(hostUnits)
		s.hosts[host] = h
	}
	s.mu.Unlock()
	if h.Acquire(ctx, cost) != nil {
		return nil, interrupted(ctx, op)
	}
	end, err := s.operation(ctx, op)
	if err != nil {
		h.Release(cost)
		return nil, err
	}
	return func() { end(); h.Release(cost) }, nil
}

// operation waits until vCenter may be given one more operation.
func (s slots) operation(ctx context.Context, op string) (done func(), err error) {
	if s.all.Acquire(ctx, 1) != nil {
		return nil, interrupted(ctx, op)
	}
	return func() { s.all.Release(1) }, nil
}

// alone runs act while it holds the key's lock.
func (b *Backend) alone(ctx context.Context, op, key string, act func() error) error {
	release, err := b.locks.Lock(ctx, key)
	if err != nil {
		return interrupted(ctx, op)
	}
	defer release()
	return act()
}

// The keys of locks.
func imageKey(name string) string        { return "image " + name }
func groupKey(group string) string       { return "group " + group }
func machineKey(s director.Stamp) string { return "machine " + s.Director + "/" + s.Machine }
