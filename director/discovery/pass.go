package discovery

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
)

const (
	// every is how often a Consul is compared, by the first director.
	every = 15 * time.Second
	// passLimit bounds a comparison, so that one Consul that hangs ends before a person would give up on it.
	passLimit = 2 * time.Minute
)

// Tick compares every Consul whose last comparison began long enough ago, all at the same time. Call it every few
// seconds, in each director. A Consul that is away is told of once, and asked again.
func (s *Service) Tick(ctx context.Context) error {
	if s.Connect == nil {
		return nil
	}
	docs, err := s.Store.Documents(ctx, model.KindConsul)
	if err != nil {
		return err
	}
	var due []model.Stored
	for _, d := range docs {
		now := s.Now()
		mine, err := s.Store.ClaimConsul(ctx, d.Metadata.Name, now.Add(-every), now)
		if err != nil {
			return err
		}
		if mine {
			due = append(due, d)
		}
	}
	return each(len(due)+1, due, func(d model.Stored) error {
		ctx, cancel := context.WithTimeout(ctx, passLimit)
		defer cancel()
		return s.compare(ctx, d)
	})
}

// compare brings one Consul to what is wanted there, and keeps how it went. Only an error of the database is returned.
func (s *Service) compare(ctx context.Context, doc model.Stored) error {
	before, err := s.Store.ConsulStates(ctx)
	if err != nil {
		return err
	}
	was := before[doc.Metadata.Name]
	state := director.ConsulState{Consul: doc.Metadata.Name, Success: was.Success}
	err = s.repair(ctx, doc, &state)
	if state.At = s.Now(); err == nil {
		state.Success = state.At
	} else {
		state.Problem, state.Hint = director.MessageOf(err), director.HintOf(err)
	}
	s.tell(ctx, was, state, err)
	return s.Store.SaveConsul(context.WithoutCancel(ctx), state)
}

// tell logs what is new.
func (s *Service) tell(ctx context.Context, was, is director.ConsulState, err error) {
	switch {
	case err != nil && is.Problem != was.Problem:
		s.Log.WarnContext(ctx, "what is registered in a Consul was not compared", "consul", is.Consul, "err", err)
	case err == nil && was.Problem != "":
		s.Log.InfoContext(ctx, "what is registered in a Consul is compared again", "consul", is.Consul)
	}
	if is.Held != nil && (was.Held == nil || was.Held.ID != is.Held.ID) {
		s.Log.WarnContext(
			ctx, "left entries in a Consul that are too many to be removed at once", "consul", is.Consul, "count",
			is.Held.Count, "total", is.Held.Total, "id", is.Held.ID,
		)
	}
	if is.Written > 0 || is.Removed > 0 {
		s.Log.InfoContext(
			ctx, "brought a Consul to what is wanted", "consul", is.Consul, "written", is.Written,
			"removed", is.Removed,
		)
	}
}

// pass is what one comparison has read, and what has to change.
type pass struct {
	host    host
	world   World
	wanted  []Entry
	agents  []CatalogNode // that are there
	changes Changes
}

// plan reads both sides, and returns what has to change in the Consul.
func (s *Service) plan(ctx context.Context, doc model.Stored) (p pass, err error) {
	if p.world, err = s.world(ctx); err != nil {
		return p, err
	}
	c, err := s.client(ctx, doc)
	if err != nil {
		return p, err
	}
	if p.host, err = c.first(ctx); err != nil {
		return p, err
	}
	have, err := p.host.read(ctx, s.Director)
	if err != nil {
		return p, err
	}
	if err := s.watch(ctx, p.host, doc.Metadata.Name, &p.world, have); err != nil {
		return p, err
	}
	wanted, keep := Wanted(p.world, doc.Metadata.Name)
	before := make(map[[2]string]bool, len(have.Entries))
	for _, a := range have.Entries {
		before[[2]string{a.Node, a.ID}] = a.Passing
	}
	s.health.fill(ctx, wanted, before)
	if err := ctx.Err(); err != nil { // what was not asked looks as if it were down
		return p, err
	}
	p.wanted, p.agents, p.changes = wanted, have.Agents, Compare(s.Director, wanted, keep, have)
	return p, nil
}

// repair writes first and removes last: a service that moved is never without an entry.
func (s *Service) repair(ctx context.Context, doc model.Stored, state *director.ConsulState) error {
	p, err := s.plan(ctx, doc)
	if err != nil {
		return err
	}
	h, c := p.host, p.changes
	state.Wanted = len(p.wanted)
	for _, e := range p.wanted {
		if !e.Passing {
			state.Failing++
		}
	}
	put := func(e Entry) error { return h.put(ctx, s.Director, e) }
	if err := errors.Join(each(writers, c.Put, put), each(writers, c.Refresh, put)); err != nil {
		return err
	}
	state.Written = len(c.Put)
	confirmed, err := s.Store.ConfirmedConsul(ctx, doc.Metadata.Name)
	if err != nil {
		return err
	}
	if state.Held = c.held(confirmed); state.Held != nil {
		return director.Errorf(
			director.KindConflict, "discovery.repair", "%d of %d entries would be removed at once, so none is",
			state.Held.Count, state.Held.Total,
		).WithHint("look at them: directorctl consul diff %s; if they should go: directorctl consul sync %s "+
			"--confirm %s", doc.Metadata.Name, doc.Metadata.Name, state.Held.ID)
	}
	if err := each(writers, c.Remove, func(a Actual) error { return h.remove(ctx, a) }); err != nil {
		return err
	}
	if err := each(writers, c.Nodes, func(n CatalogNode) error { return h.removeNode(ctx, n) }); err != nil {
		return err
	}
	state.Removed = len(c.gone) + c.handed
	return errors.Join(s.repairTokens(ctx, h, doc, p.world), s.agents().repairAgents(ctx, h, doc, p.world, p.agents))
}

// Sync compares the Consul at once, and returns how it went. confirm is the id of removals that are held, if they
// should go. Errors: not_found, and conflict for another id than that of what is held.
func (s *Service) Sync(ctx context.Context, name, confirm string) (director.ConsulState, error) {
	const op = "discovery.sync"
	doc, err := s.consul(ctx, name)
	if err != nil {
		return director.ConsulState{}, err
	}
	if s.Connect == nil {
		return director.ConsulState{}, director.Errorf(
			director.KindConflict, op, "this director simulates: it registers nothing",
		)
	}
	if confirm != "" {
		states, err := s.Store.ConsulStates(ctx)
		if err != nil {
			return director.ConsulState{}, err
		}
		if held := states[name].Held; held == nil || held.ID != confirm {
			return states[name], director.Errorf(
				director.KindConflict, op, "no removals with the id %s are held", confirm,
			).WithHint("see which removals are held: directorctl consul diff %s", name)
		}
		if err := s.Store.ConfirmConsul(ctx, name, confirm); err != nil {
			return director.ConsulState{}, err
		}
	}
	now := s.Now()
	if _, err := s.Store.ClaimConsul(ctx, name, now, now); err != nil {
		return director.ConsulState{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, passLimit)
	defer cancel()
	if err := s.compare(ctx, doc); err != nil {
		return director.ConsulState{}, err
	}
	states, err := s.Store.ConsulStates(ctx)
	return states[name], err
}

// Register writes the entries of one cluster, for a plan that has made it. It is idempotent.
func (s *Service) Register(ctx context.Context, consul, uid string) error {
	doc, err := s.consul(ctx, consul)
	if err != nil {
		return err
	}
	world, err := s.world(ctx)
	if err != nil {
		return err
	}
	c, err := s.client(ctx, doc)
	if err != nil {
		return err
	}
	h, err := c.first(ctx)
	if err != nil {
		return err
	}
	all, _ := Wanted(world, consul)
	var own []Entry
	for _, e := range all {
		if e.Cluster == uid {
			own = append(own, e)
		}
	}
	s.health.fill(ctx, own, nil)
	return each(writers, own, func(e Entry) error { return h.put(ctx, s.Director, e) })
}

// Deregister removes the nodes of a cluster with all that is on them, for a plan that has deleted the cluster. A node
// that another director owns stays. It is idempotent.
func (s *Service) Deregister(ctx context.Context, consul, uid string) error {
	doc, err := s.consul(ctx, consul)
	if err != nil {
		return err
	}
	c, err := s.client(ctx, doc)
	if err != nil {
		return err
	}
	h, err := c.first(ctx)
	if err != nil {
		return err
	}
	have, err := h.read(ctx, s.Director)
	if err != nil {
		return err
	}
	own := slices.DeleteFunc(have.Nodes, func(n CatalogNode) bool {
		return !nodeOf(uid, n.Name) || n.Meta[MetaCluster] != uid
	})
	return each(writers, own, func(n CatalogNode) error { return h.removeNode(ctx, n) })
}
