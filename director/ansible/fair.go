package ansible

import (
	"cmp"
	"context"
	"slices"
	"sync"
)

// fair shares a number of forks. Of the waiting plans, the one that holds the fewest is next, and among equals the one
// that asked first. So a plan that holds many forks, or asks for many at once, cannot block another one. No plan
// overtakes the next one, so a request for many forks is met too.
type fair struct {
	mu    sync.Mutex
	free  int64
	held  map[string]int64 // by who holds them
	queue []*request       // in the order of asking
}

type request struct {
	who     string
	n       int64
	granted chan struct{}
}

func newFair(n int64) *fair { return &fair{free: n, held: map[string]int64{}} }

// tryAcquire takes n forks if they are free and no one waits.
func (f *fair) tryAcquire(who string, n int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.queue) > 0 || f.free < n {
		return false
	}
	f.take(who, n)
	return true
}

// acquire takes n forks, and waits for them. Its error is that of ctx; then nothing is taken.
func (f *fair) acquire(ctx context.Context, who string, n int64) error {
	r := &request{who: who, n: n, granted: make(chan struct{})}
	f.mu.Lock()
	f.queue = append(f.queue, r)
	f.grant()
	f.mu.Unlock()
	select {
	case <-r.granted:
		return nil
	case <-ctx.Done():
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	select {
	case <-r.granted: // at the same moment
		f.give(who, n)
	default:
		f.leave(r)
	}
	f.grant() // it may have been next
	return ctx.Err()
}

// release gives n forks back.
func (f *fair) release(who string, n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.give(who, n)
	f.grant()
}

func (f *fair) take(who string, n int64) {
	f.free -= n
	f.held[who] += n
}

func (f *fair) give(who string, n int64) {
	f.free += n
	if f.held[who] -= n; f.held[who] == 0 {
		delete(f.held, who)
	}
}

func (f *fair) leave(r *request) {
	f.queue = slices.DeleteFunc(f.queue, func(q *request) bool { return q == r })
}

// grant serves who is next, as long as there is enough.
func (f *fair) grant() {
	for len(f.queue) > 0 {
		// the first of equals
		next := slices.MinFunc(f.queue, func(a, b *request) int { return cmp.Compare(f.held[a.who], f.held[b.who]) })
		if next.n > f.free {
			return
		}
		f.leave(next)
		f.take(next.who, next.n)
		close(next.granted)
	}
}
