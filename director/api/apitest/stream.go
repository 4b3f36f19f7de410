package apitest

import (
	"context"
	"slices"
	"time"

	"github.com/director-kaas/kaas/director"
)

// announce puts an event into the stream.
func (o *Operations) announce(e director.StreamEvent) {
	e.ID, e.At = int64(len(o.stream)+1), time.Now().UTC()
	o.stream = append(o.stream, e)
	o.wake()
}

// PruneStream forgets the stream up to an id.
func (o *Operations) PruneStream(through int64) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.pruned = through
}

// Stream returns a part of the stream, and waits for the first event of it.
func (o *Operations) Stream(
	ctx context.Context, q director.StreamQuery, wait time.Duration,
) (director.StreamPage, error) {
	timeout := time.NewTimer(wait)
	defer timeout.Stop()
	for {
		o.mu.Lock()
		changed := o.changed
		page := o.streamPage(q)
		o.mu.Unlock()
		if len(page.Events) > 0 || page.Gap != nil || wait == 0 {
			return page, nil
		}
		select {
		case <-changed:
		case <-timeout.C:
			return page, nil
		case <-ctx.Done():
			return page, ctx.Err()
		}
	}
}

func (o *Operations) streamPage(q director.StreamQuery) director.StreamPage {
	page := director.StreamPage{Last: max(q.After, int64(len(o.stream)))}
	after := max(q.After, o.pruned)
	if q.After > 0 && q.After < o.pruned {
		page.Gap = &director.StreamGap{After: q.After, Through: o.pruned}
	}
	var fit []director.StreamEvent
	for _, e := range o.stream {
		if e.ID > after && among(q.Kinds, e.Kind) && (q.Cluster == "" || q.Cluster == e.Cluster) {
			fit = append(fit, e)
		}
	}
	if q.After == 0 && q.Tail > 0 {
		fit = fit[max(0, len(fit)-q.Tail):]
	}
	if len(fit) >= q.Limit {
		fit = fit[:q.Limit]
		page.Last = fit[len(fit)-1].ID
	}
	page.Events = slices.Clone(fit)
	return page
}
