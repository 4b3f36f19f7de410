// Package keyed has locks by key that can be given up waiting for.
package keyed

import (
	"context"
	"sync"
)

// Locks is a set of locks by key. The zero Locks is ready for use, and it holds memory only for keys that are locked.
type Locks struct {
	mu   sync.Mutex
	held map[string]chan struct{}
}

// Lock waits for the key and returns its release. The error is the context's.
func (l *Locks) Lock(ctx context.Context, key string) (release func(), err error) {
	for {
		l.mu.Lock()
		held, taken := l.held[key]
		if !taken {
			mine := make(chan struct{})
			if l.held == nil {
				l.held = map[string]chan struct{}{}
			}
			l.held[key] = mine
			l.mu.Unlock()
			return func() {
				l.mu.Lock()
				delete(l.held, key)
				l.mu.Unlock()
				close(mine)
			}, nil
		}
		l.mu.Unlock()
		select {
		case <-held:
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
	}
}
