package controller

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/consulsync"
)

const (
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
	// pace is the least time between two answers of a query that waits: a busy catalog answers at once, again and
	// again.
	pace = 500 * time.Millisecond
)

// source is what is imported: a service of Consul, or only its instances with a tag.
type source struct{ service, tag string }

// watcher follows the services that are imported. What it knows outlives an outage of Consul.
type watcher struct {
	catalog *catalog
	log     *slog.Logger
	changed func()

	mu    sync.Mutex
	known map[source][]consulsync.Instance
}

func newWatcher(c *catalog, log *slog.Logger, changed func()) *watcher {
	return &watcher{catalog: c, log: log, changed: changed, known: map[source][]consulsync.Instance{}}
}

// instances returns what Consul said last, and whether it has said anything yet.
func (w *watcher) instances(i consulsync.Import) ([]consulsync.Instance, bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	all, ok := w.known[source{i.Service, i.Tag}]
	return all, ok
}

// run follows everything until ctx ends.
func (w *watcher) run(ctx context.Context, imports []consulsync.Import) {
	var wg sync.WaitGroup
	defer wg.Wait()
	started := map[source]bool{}
	for _, i := range imports {
		s := source{i.Service, i.Tag}
		if started[s] {
			continue
		}
		started[s] = true
		wg.Go(func() {
			follow(ctx, w.log.With("service", s.service), func(ctx context.Context, index uint64) (uint64, error) {
				all, index, err := w.catalog.instances(ctx, s.service, s.tag, index)
				if err != nil {
					return 0, err
				}
				w.mu.Lock()
				w.known[s] = all
				w.mu.Unlock()
				w.changed()
				return index, nil
			})
		})
	}
	wg.Go(func() {
		follow(ctx, w.log, func(ctx context.Context, index uint64) (uint64, error) {
			index, err := w.catalog.wait(ctx, index)
			if err == nil {
				w.changed()
			}
			return index, err
		})
	})
}

// follow calls query again and again with the index that it returned last, slower and slower while it fails.
func follow(ctx context.Context, log *slog.Logger, query func(context.Context, uint64) (uint64, error)) {
	var index uint64
	retry := firstRetry
	for ctx.Err() == nil {
		call, cancel := context.WithTimeout(ctx, blocking+blocking/16+callLimit) // Consul adds up to a 16th
		next, err := query(call, index)
		cancel()
		wait := pace
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			log.WarnContext(ctx, "Consul does not tell about changes", "err", err, "hint", director.HintOf(err))
			index, wait = 0, retry+rand.N(retry)
			retry = min(2*retry, lastRetry)
		default:
			index, retry = next, firstRetry
		}
		sleep(ctx, wait)
	}
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}
