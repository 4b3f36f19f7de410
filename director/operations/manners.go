package operations

import (
	"context"
	"encoding/json"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
)

// witnessed notes, in the transaction that does the work, what a request with a key has done: the id of a plan, or a
// body. If the director dies before it answers, the next try with the key is answered from it and does nothing again.
func witnessed(ctx context.Context, tx *store.Tx, what any) error {
	o, ok := api.OnceOf(ctx)
	if !ok {
		return nil
	}
	text, isText := what.(string)
	if !isText {
		raw, err := json.Marshal(what)
		if err != nil {
			return err
		}
		text = string(raw)
	}
	return tx.Witness(o, text)
}

// check looks for the document among the stored ones and holds the condition against it.
func check(c api.Condition, ref model.Ref, stored []model.Stored) error {
	for i := range stored {
		if stored[i].Ref() == ref {
			return c.Check(ref, &stored[i])
		}
	}
	return c.Check(ref, nil)
}

// heldBy is the conflict with the plan that holds the cluster. Who started it and when are looked up as far as they can
// be.
func (o *Operations) heldBy(ctx context.Context, op, id, cluster string) error {
	h := &director.Holder{Plan: id, Cluster: cluster}
	if items, _, err := o.Store.PlanPage(ctx, store.PlanQuery{
		IDPrefix: id,
	}, director.Page{Limit: 1}); err == nil && len(items) == 1 {
		p := items[0]
		h.Operation, h.Phase, h.By, h.Since = string(p.Plan.Operation), string(p.State.Phase), p.Plan.CreatedBy,
			p.State.StartedAt
	}
	if events, _, err := o.Store.EventPage(ctx, id, store.EventQuery{
		Kinds: []plan.EventKind{plan.PlanStarted}, Limit: 1,
	}); err == nil && len(events) == 1 {
		h.By = events[0].By
	}
	e := director.Errorf(director.KindConflict, op, "plan %s holds cluster %s", id, cluster).
		WithHint("follow it with: directorctl follow %s, or stop it with: directorctl cancel %s", id, id)
	e.Holder = h
	return e
}
