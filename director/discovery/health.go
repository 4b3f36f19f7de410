package discovery

import (
	"context"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
)

const (
	probesAtOnce = 128 // a thousand API servers that hang take 40 seconds of a comparison
	probeLimit   = 5 * time.Second
	clientLife   = 20 * time.Minute // of a connection to an API server, whose certificate lives a little longer
	patience     = 2                // failures in a row until a check no longer passes
	mostOutput   = 500              // bytes of a check's output
)

// health asks API servers whether they are ready, over connections that it keeps.
type health struct {
	connect func(ctx context.Context, uid, name, endpoint string) (API, error)
	now     func() time.Time

	mu     sync.Mutex
	kept   map[string]keptAPI // by uid and endpoint
	failed map[string]int     // failures in a row
}

type keptAPI struct {
	API
	until time.Time
}

func newHealth(
	connect func(ctx context.Context, uid, name, endpoint string) (API, error), now func() time.Time,
) *health {
	return &health{connect: connect, now: now, kept: map[string]keptAPI{}, failed: map[string]int{}}
}

// fill asks the API server of each entry and writes down how it is. before is what the catalog says: one failure of a
// server that was well is not believed yet.
func (h *health) fill(ctx context.Context, entries []Entry, before map[[2]string]bool) {
	slots := make(chan struct{}, probesAtOnce)
	var all sync.WaitGroup
	for i := range entries {
		e := &entries[i]
		if e.endpoint() == "" {
			continue
		}
		slots <- struct{}{}
		all.Go(func() {
			defer func() { <-slots }()
			h.ask(ctx, e, before[[2]string{e.Node, e.ID}])
		})
	}
	all.Wait()
	h.sweep()
}

func (h *health) ask(ctx context.Context, e *Entry, before bool) {
	key := e.Cluster + " " + e.endpoint()
	ctx, cancel := context.WithTimeout(ctx, clientLife)
	defer cancel()
	err := h.try(ctx, key, e)
	h.mu.Lock()
	defer h.mu.Unlock()
	if err == nil {
		delete(h.failed, key)
		e.Passing, e.Output = true, "/readyz: ok"
		return
	}
	h.failed[key]++
	e.Passing, e.Output = before && h.failed[key] < patience, problem(err)
}

func (h *health) try(ctx context.Context, key string, e *Entry) error {
	h.mu.Lock()
	api, ok := h.kept[key]
	h.mu.Unlock()
	if !ok || h.now().After(api.until) {
		fresh, err := h.connect(ctx, e.Cluster, e.name, e.endpoint()) // its certificate lives as long as ctx
		if err != nil {
			return err
		}
		if ok {
			api.Close()
		}
		api = keptAPI{fresh, h.now().Add(clientLife)}
		h.mu.Lock()
		h.kept[key] = api
		h.mu.Unlock()
	}
	ctx, cancel := context.WithTimeout(ctx, probeLimit)
	defer cancel()
	err := api.Healthz(ctx)
	if director.KindOf(err) == director.KindUnauthenticated { // the cluster's authority may be another one by now
		h.mu.Lock()
		delete(h.kept, key)
		h.mu.Unlock()
		api.Close()
	}
	return err
}

// sweep forgets connections whose time is over: those of clusters that are gone are among them.
func (h *health) sweep() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, api := range h.kept {
		if h.now().Sub(api.until) > probeLimit {
			api.Close()
			delete(h.kept, key)
			delete(h.failed, key)
		}
	}
}

func (h *health) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	for key, api := range h.kept {
		api.Close()
		delete(h.kept, key)
	}
}

// problem is what may be shown of an error in Consul, where many read it.
func problem(err error) string {
	text := "does not answer"
	if msg := director.MessageOf(err); msg != "" {
		text = msg
	}
	return text[:min(len(text), mostOutput)]
}
