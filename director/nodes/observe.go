package nodes

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/store"
)

const (
	observeEvery = time.Minute      // how old a look may be
	observeTime  = 45 * time.Second // bounds a look at one cluster
	observeNodes = 8                // clusters at once
	powerFresh   = 20 * time.Second // how long what a hypervisor said of its VMs counts, for all of its clusters
	seenTogether = 50               // clusters whose answers are written in one go
	seenWithin   = 10 * time.Second // how long an answer may wait for that
)

// Observe looks at the clusters that no director has looked at for observeEvery, a few at once, and keeps what it sees.
// Errors of one cluster do not keep others from being looked at.
func (s *Service) Observe(ctx context.Context) error {
	due, err := s.Store.Unlooked(ctx, s.instant().Add(-observeEvery))
	if err != nil {
		return err
	}
	p := &pass{Service: s, slots: make(chan struct{}, observeNodes)}
	for some := range slices.Chunk(due, observeNodes) {
		if ctx.Err() != nil {
			break
		}
		p.begin(ctx, some)
	}
	p.all.Wait()
	p.failed(p.write(ctx))
	return errors.Join(p.errs...)
}

// pass is one round of looks. An idle director does little else, so claims and answers are written together: a
// transaction for each of a thousand clusters costs more than the look at it.
type pass struct {
	*Service
	slots chan struct{}
	all   sync.WaitGroup

	mu   sync.Mutex // of what follows
	errs []error
	seen []string  // uids of clusters that answered as before, not written yet
	from time.Time // of the first of them
}

// begin claims the clusters and starts to look at those that no other director has claimed.
func (p *pass) begin(ctx context.Context, some []store.Unlooked) {
	uids := make([]string, len(some))
	for i, c := range some {
		uids[i] = c.UID
	}
	now := p.instant()
	mine, err := p.Store.ClaimSights(ctx, uids, now.Add(-observeEvery), now)
	p.failed(err)
	for _, c := range some {
		if !mine[c.UID] {
			continue
		}
		p.slots <- struct{}{}
		p.all.Go(func() {
			defer func() { <-p.slots }()
			if err := p.observe(ctx, c.Name); ctx.Err() == nil {
				p.failed(err)
			}
		})
	}
}

func (p *pass) observe(ctx context.Context, cluster string) error {
	ctx, cancel := context.WithTimeout(ctx, observeTime)
	defer cancel()
	_, err := p.look(ctx, cluster, p.sharedPower, p.seenAgain)
	switch director.KindOf(err) {
	case director.KindNotFound, director.KindInvalid, director.KindUnavailable:
		return nil // it was deleted meanwhile, or what it names is not there: plans say so
	}
	return err
}

func (p *pass) failed(err error) {
	if err == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.errs = append(p.errs, err)
}

// seenAgain notes that the cluster answered as before.
func (p *pass) seenAgain(ctx context.Context, uid string) error {
	p.mu.Lock()
	if len(p.seen) == 0 {
		p.from = p.Now()
	}
	p.seen = append(p.seen, uid)
	due := len(p.seen) >= seenTogether || p.Now().Sub(p.from) >= seenWithin
	p.mu.Unlock()
	if !due {
		return nil
	}
	return p.write(ctx)
}

// write writes which clusters answered as before.
func (p *pass) write(ctx context.Context) error {
	p.mu.Lock()
	seen := p.seen
	p.seen = nil
	p.mu.Unlock()
	if len(seen) == 0 {
		return nil
	}
	return p.Store.SeenAgain(ctx, seen, p.instant())
}

// power is what a hypervisor said of its VMs.
type power struct {
	mu    sync.Mutex // held while it is asked
	at    time.Time
	state map[string]string
	down  map[string]string
	err   error
}

// powers remembers for a moment what hypervisors said, so that a look at many clusters asks each of them once.
type powers struct {
	mu    sync.Mutex
	known map[string]*power // by provider and its lost hosts
}

// sharedPower is powerBeside, with an answer that may be powerFresh old.
func (s *Service) sharedPower(ctx context.Context, w planner.World) (state, down map[string]string, err error) {
	key := strings.Join(append([]string{w.Provider.Metadata.Name}, keys(w.Lost)...), "/")
	s.powers.mu.Lock()
	p := s.powers.known[key]
	if p == nil {
		p = &power{}
		s.powers.known[key] = p
	}
	s.powers.mu.Unlock()
	p.mu.Lock()
	defer p.mu.Unlock()
	if now := s.Now(); now.Sub(p.at) > powerFresh || now.Before(p.at) {
		p.state, p.down, p.err = s.powerBeside(ctx, w)
		if ctx.Err() != nil {
			return nil, nil, ctx.Err()
		}
		p.at = s.Now()
	}
	return p.state, p.down, p.err
}
