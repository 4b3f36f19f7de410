package steps

import (
	"slices"
	"sync"

	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// mostFacts bounds how many plans' decoded facts are kept: those of plans whose steps have run last.
const mostFacts = 8

// factsCache decodes the facts of a plan for the first of its steps, and keeps them for the others. It is safe for
// concurrent use.
type factsCache struct {
	mu   sync.Mutex
	kept []*decodedFacts // the last used first
}

type decodedFacts struct {
	plan, hash string
	decode     func() (step.Facts, error)
}

// of returns the facts of the plan. Callers share what its lists and maps hold, and must not write to them. A nil cache
// decodes them each time.
func (c *factsCache) of(p *plan.Plan) (step.Facts, error) {
	if c == nil {
		return step.DecodeFacts(p.Content)
	}
	return c.entry(p).decode()
}

func (c *factsCache) entry(p *plan.Plan) *decodedFacts {
	c.mu.Lock()
	defer c.mu.Unlock()
	i := slices.IndexFunc(c.kept, func(d *decodedFacts) bool { return d.plan == p.ID && d.hash == p.Hash })
	var d *decodedFacts
	if i >= 0 {
		d = c.kept[i]
		c.kept = slices.Delete(c.kept, i, i+1)
	} else {
		c := p.Content
		c.Steps = nil // they are not needed for it
		d = &decodedFacts{p.ID, p.Hash, sync.OnceValues(func() (step.Facts, error) { return step.DecodeFacts(c) })}
	}
	c.kept = slices.Insert(c.kept, 0, d)
	if len(c.kept) > mostFacts {
		c.kept = c.kept[:mostFacts]
	}
	return d
}
