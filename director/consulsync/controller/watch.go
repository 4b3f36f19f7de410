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
	firstRetry  = time.Second
	outageRetry = 5 * time.Second // for the passes alone, which tell the queries that wait when Consul is back
	lastRetry   = 30 * time.Second
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
	ended chan struct{} // closed when Consul is back after an outage
}

func newWatcher(c *catalog, log *slog.Logger, changed func()) *watcher {
	return &watcher{
		catalog: c, log: log, changed: changed, known: map[source][]consulsync.Instance{}, ended: make(chan struct{}),
	}
}

// back tells the queries that failed that Consul answers again.
func (w *watcher) back() {
	w.mu.Lock()
	defer w.mu.Unlock()
	close(w.ended)
	w.ended = make(chan struct{})
}

// outage returns what is closed when back is called next.
func (w *watcher) outage() <-chan struct{} {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.ended
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
			w.follow(ctx, w.log.With("service", s.service), func(ctx context.Context, index uint64) (uint64, error) {
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
		w.follow(ctx, w.log, func(ctx context.Context, index uint64) (uint64, error) {
			index, err := w.catalog.wait(ctx, index)
			if err == nil {
				w.changed()
			}
			return index, err
		})
	})
}

// follow calls query again and again with the index that it returned last, slower and slower while it fails, and soon
// once Consul is back.
func (w *watcher) follow(ctx context.Context, log *slog.Logger, query func(context.Context, uint64) (uint64, error)) {
	var index uint64
	retry := firstRetry
	for ctx.Err() == nil {
		// Before the query: it may fail while Consul comes back.
		ended := w.outage()
		call, cancel := context.WithTimeout(ctx, blocking+blocking/16+callLimit) // Consul adds up to a 16th
		next, err := query(call, index)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err != nil:
			log.WarnContext(ctx, "Consul does not tell about changes", "err", err, "hint", director.HintOf(err))
			index = 0
			if !sleepUntil(ctx, ended, retry+rand.N(retry)) {
				sleep(ctx, rand.N(firstRetry)) // each import has a query, and so has every cluster
			}
			retry = min(2*retry, lastRetry)
		default:
			index, retry = next, firstRetry
			sleep(ctx, pace)
		}
	}
}

// sleepUntil waits for d or the end of ctx, and returns false if event was closed before.
func sleepUntil(ctx context.Context, event <-chan struct{}, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-event:
		return false
	case <-t.C:
	case <-ctx.Done():
	}
	return true
}

// sleep waits for d or the end of ctx.
func sleep(ctx context.Context, d time.Duration) { sleepUntil(ctx, nil, d) }
