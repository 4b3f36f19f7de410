package vsphere

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"

	"github.com/director-kaas/kaas/director"
)

// What vCenter and hosts bear at once. A host has units for provisioning: a full clone, which copies a disk, takes four
// of them, and a linked one, which only makes a new difference to a disk that is there, takes one. vCenter queues what
// is beyond that, where it holds up everybody else's work; so we queue it here.
const (
	hostUnits     = 16
	fullCost      = 4
	linkedCost    = 1
	vcenterAtOnce = 640
	// anyHost collects what DRS places: as much as one host may do, since it is not known how many will share it.
	anyHost = ""
)

// slots says when an operation may begin, and how long one that has to wait is likely to.
type slots struct {
	all  *semaphore.Weighted
	now  func() time.Time
	tell func(ctx context.Context, host string, ahead int64, estimate time.Duration) // of a clone that has to wait

	mu    sync.Mutex
	hosts map[string]*hostSlots
	took  map[int64]time.Duration // how long a clone takes, by its cost; of the last ones, the latest counting most
}

// hostSlots are the units of a host.
type hostSlots struct {
	units *semaphore.Weighted
	taken int64 // by clones that run or wait
}

func newSlots() *slots {
	return &slots{
		all: semaphore.NewWeighted(vcenterAtOnce), now: time.Now,
		tell:  func(context.Context, string, int64, time.Duration) {},
		hosts: map[string]*hostSlots{}, took: map[int64]time.Duration{},
	}
}

// provision waits until a clone of that cost may begin on the host, and returns what must be called at its end.
func (s *slots) provision(ctx context.Context, op, host string, cost int64) (done func(), err error) {
	h, ahead, estimate := s.queue(host, cost)
	if ahead+cost > hostUnits {
		s.tell(ctx, host, ahead, estimate)
	}
	leave := func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		h.taken -= cost
	}
	if h.units.Acquire(ctx, cost) != nil {
		leave()
		return nil, interrupted(ctx, op)
	}
	end, err := s.operation(ctx, op)
	if err != nil {
		h.units.Release(cost)
		leave()
		return nil, err
	}
	began := s.now()
	return func() {
		end()
		h.units.Release(cost)
		leave()
		s.learn(cost, s.now().Sub(began))
	}, nil
}

// queue puts a clone behind those of the host, and returns how many units these have, and when its turn is likely to
// come: a host works off its units side by side, so what is ahead takes as many times a clone as it fills the host.
func (s *slots) queue(host string, cost int64) (h *hostSlots, ahead int64, estimate time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if h = s.hosts[host]; h == nil {
		h = &hostSlots{units: semaphore.NewWeighted(hostUnits)}
		s.hosts[host] = h
	}
	ahead = h.taken
	h.taken += cost
	rounds := max(0, (ahead+cost-1)/hostUnits)
	return h, ahead, time.Duration(rounds) * s.took[cost]
}

// learn takes the time of a clone into account.
func (s *slots) learn(cost int64, took time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, known := s.took[cost]; known {
		took = (3*old + took) / 4
	}
	s.took[cost] = took
}

// operation waits until vCenter may be given one more operation.
func (s *slots) operation(ctx context.Context, op string) (done func(), err error) {
	if s.all.Acquire(ctx, 1) != nil {
		return nil, interrupted(ctx, op)
	}
	return func() { s.all.Release(1) }, nil
}

// alone runs act while it holds the key's lock.
func (b *center) alone(ctx context.Context, op, key string, act func() error) error {
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
