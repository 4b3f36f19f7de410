package store

import (
	"container/list"
	"encoding/json"
	"slices"
	"sync"

	"github.com/director-kaas/kaas/director/plan"
)

// cacheSize bounds the texts of the contents that are kept. What is decoded takes two to three times as much.
const cacheSize = 64 << 20

// planCache keeps what was read of plans recently: decoding the content of a plan of a thousand nodes for each of its
// events would make a run quadratic. A content never changes, and its hash proves that it is the one; a state is known
// by the number of its last event. It is safe for concurrent use.
type planCache struct {
	most int // bytes of texts

	mu    sync.Mutex
	size  int
	plans map[string]*list.Element // of *cachedPlan
	order list.List                // the last used first
}

type cachedPlan struct {
	id, hash string
	content  plan.Content
	size     int

	mu    sync.Mutex
	steps []plan.StepState // as after the event seq; nil if they are not known
	seq   int64
}

func newPlanCache(most int) *planCache {
	return &planCache{most: most, plans: map[string]*list.Element{}}
}

// get returns the plan with that content, or nil.
func (c *planCache) get(id, hash string) *cachedPlan {
	c.mu.Lock()
	defer c.mu.Unlock()
	e := c.plans[id]
	if e == nil {
		return nil
	}
	p := e.Value.(*cachedPlan)
	if p.hash != hash {
		c.drop(e)
		return nil
	}
	c.order.MoveToFront(e)
	return p
}

// put decodes the content and keeps it, unless it alone is more than all that may be kept.
func (c *planCache) put(id, hash, text string) (*cachedPlan, error) {
	p := &cachedPlan{id: id, hash: hash, size: len(text)}
	if err := json.Unmarshal([]byte(text), &p.content); err != nil {
		return nil, err
	}
	for i := range p.content.Steps {
		s := &p.content.Steps[i]
		s.Needs, s.Params = slices.Clip(s.Needs), slices.Clip(s.Params)
		s.Effects, s.Budgets = slices.Clip(s.Effects), slices.Clip(s.Budgets)
	}
	p.content.Facts = slices.Clip(p.content.Facts)
	if p.size > c.most {
		return p, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if e := c.plans[id]; e != nil {
		c.drop(e)
	}
	c.plans[id] = c.order.PushFront(p)
	c.size += p.size
	for c.size > c.most {
		c.drop(c.order.Back())
	}
	return p, nil
}

func (c *planCache) drop(e *list.Element) {
	p := c.order.Remove(e).(*cachedPlan)
	delete(c.plans, p.id)
	c.size -= p.size
}

// advance moves the states on by events that are committed.
func (c *planCache) advance(events []plan.Event) {
	for _, e := range events {
		c.mu.Lock()
		found := c.plans[e.Plan]
		c.mu.Unlock()
		if found != nil {
			found.Value.(*cachedPlan).apply(e)
		}
	}
}

// lend returns a copy of the content for one caller, whose lists may be written to. What their elements hold - texts,
// needs, parameters - is shared and must not be.
func (p *cachedPlan) lend() plan.Content {
	c := p.content
	c.Models, c.Machines, c.Steps = slices.Clone(c.Models), slices.Clone(c.Machines), slices.Clone(c.Steps)
	c.Windows, c.Warnings, c.Approvals = slices.Clone(c.Windows), slices.Clone(c.Warnings), slices.Clone(c.Approvals)
	return c
}

// known returns a copy of the steps with the number of the last event that is in them; nil if they are not known.
func (p *cachedPlan) known() (steps []plan.StepState, seq int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.steps), p.seq
}

// keep takes a copy of committed steps, unless newer ones are known.
func (p *cachedPlan) keep(steps []plan.StepState, seq int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.steps == nil || p.seq < seq {
		p.steps, p.seq = slices.Clone(steps), seq
	}
}

// apply moves the steps on by a committed event, if it is the next one.
func (p *cachedPlan) apply(e plan.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.steps == nil || e.Seq != p.seq+1 {
		return // a reader reads what is missing
	}
	if err := moveSteps(p.steps, e); err != nil {
		p.steps = nil
		return
	}
	p.seq = e.Seq
}

// moveSteps moves steps on by an event that is in the journal.
func moveSteps(steps []plan.StepState, e plan.Event) error {
	if e.Step == "" {
		return nil // what it changes is in the plan's row
	}
	s := plan.State{Steps: steps}
	return s.Apply(e)
}
