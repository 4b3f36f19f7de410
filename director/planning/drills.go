package planning

import (
	"context"
	"errors"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
	"github.com/director-kaas/kaas/director/store"
)

// drills look after the plans of restore drills.
type drills struct{ *Service }

func (s *Service) drills() drills { return drills{s} }

// newest names the newest backup of the cluster in a request for a drill that names none. Damaged ones are left in: a
// drill is there to say so.
func (s drills) newest(ctx context.Context, cluster string, r plan.Request) (plan.Request, error) {
	if r.Operation != plan.ClusterDrill || r.Restore.Backup != "" || s.Backups == nil {
		return r, nil
	}
	doc, err := s.Store.Document(ctx, model.Ref{Kind: model.KindCluster, Name: cluster})
	if err != nil {
		return r, err
	}
	all, err := s.Backups.List(ctx, cluster)
	if err != nil {
		return r, err
	}
	for _, e := range all {
		if e.ClusterUID == doc.UID {
			r.Restore.Backup = e.ID
			return r, nil
		}
	}
	return r, director.Errorf(director.KindConflict, "planning.drill", "cluster %s has no backup", cluster).
		WithHint("make one: directorctl backup create %s", cluster)
}

// holder returns the plan that keeps one of the operation from being started, or "". A drill works on no node of the
// cluster: it holds up nothing but another drill, and nothing else holds it up.
func (s drills) holder(ctx context.Context, cluster string, op plan.Operation) (string, error) {
	if store.LaneOf(op) == store.LaneDrills {
		return s.Store.Drilling(ctx, cluster)
	}
	return s.Store.Holder(ctx, cluster)
}

// drillRest is how long the plan of a drill may have stopped without its VM being gone before the director moves it on.
const drillRest = 5 * time.Minute

// SettleDrills has the VMs of drills deleted whose plans stopped before that: those that a person cancelled at once,
// and those that failed or wait for a person after drillRest, again and again. It can be called at any time, by any
// number of directors.
func (s *Service) SettleDrills(ctx context.Context) error {
	ids, err := s.Store.Plans(ctx, store.PlanFilter{
		Of:       store.LaneDrills,
		Statuses: []plan.Status{plan.StatusCancelled, plan.StatusFailed, plan.StatusParked},
	})
	var all error
	for _, id := range ids {
		all = errors.Join(all, s.drills().settleDrill(ctx, id))
	}
	return errors.Join(err, all)
}

func (s drills) settleDrill(ctx context.Context, id string) error {
	const by = "director"
	p, state, err := s.Store.Plan(ctx, id)
	if err != nil {
		return err
	}
	living, err := s.drillMachines(ctx, p)
	if err != nil || len(living) == 0 {
		return err
	}
	if state.Status != plan.StatusCancelled && s.Now().Sub(state.Since) < drillRest {
		return nil
	}
	err = s.Engine.Undo(ctx, id, by)
	if director.KindOf(err) == director.KindConflict && state.Status == plan.StatusFailed {
		err = s.Engine.Retry(ctx, id, "", by) // what failed is the deletion itself
	}
	if director.KindOf(err) == director.KindConflict {
		return nil // another director was faster, or a person
	}
	return err
}

// drillMachines returns the machines of the drill that are still in the ledger.
func (s drills) drillMachines(ctx context.Context, p plan.Plan) ([]director.Machine, error) {
	if len(p.Machines) == 0 {
		return nil, nil
	}
	facts, err := step.DecodeFacts(p.Content)
	if err != nil {
		return nil, err
	}
	all, err := s.Store.Machines(ctx, store.MachineFilter{ClusterUID: facts.UID})
	var out []director.Machine
	for _, m := range all {
		if m.ID == p.Machines[0].ID {
			out = append(out, m)
		}
	}
	return out, err
}

// mayDiscard refuses to give up the plan of a drill whose VM is still there: no other plan would delete it.
func (s drills) mayDiscard(ctx context.Context, id string) error {
	p, state, err := s.Store.Plan(ctx, id)
	if err != nil || p.Operation != plan.ClusterDrill || state.StartedAt.IsZero() {
		return err
	}
	living, err := s.drillMachines(ctx, p)
	if err != nil || len(living) == 0 {
		return err
	}
	return director.Errorf(
		director.KindConflict, "planning.discard", "plan %s cannot be given up: VM %s of the drill is still there", id,
		living[0].Name,
	).WithHint("the director deletes it by itself; to see why it could not: directorctl plans show %s", id)
}

// maySkip refuses to leave out a step of a drill: its VM would stay, or it would show nothing. Nor is one of a plan of
// a director left out: the record would say of a VM what is not true.
func (s drills) maySkip(ctx context.Context, id string) error {
	p, _, err := s.Store.Plan(ctx, id)
	if err == nil && p.Operation.OnDirector() {
		return director.Errorf(
			director.KindConflict, "planning.skip", "plan %s is of a director, and no step of it is left out", id,
		).WithHint("fix the cause and retry it, or give it up: directorctl discard %s", id)
	}
	if err != nil || p.Operation != plan.ClusterDrill {
		return err
	}
	return director.Errorf(
		director.KindConflict, "planning.skip", "plan %s is of a restore drill, and no step of it is left out", id,
	).WithHint("cancel it: directorctl cancel %s; the director deletes its VM", id)
}

// MakeDrill freezes the plan of a drill with the newest backup of the cluster.
func (s *Service) MakeDrill(ctx context.Context, actor, cluster string) (string, error) {
	v, err := s.MakePlan(ctx, actor, cluster, plan.Request{Operation: plan.ClusterDrill})
	return v.Plan.ID, err
}
