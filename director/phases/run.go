package phases

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
)

// move moves the task on as far as it goes now. Of several who ask at once, one moves it and the others see how far it
// is.
func (s *Service) move(ctx context.Context, t director.PhaseTask) (View, error) {
	if t.Finished.IsZero() && s.Held != nil && s.Held() {
		return s.heldView(ctx, t)
	}
	if t.Finished.IsZero() && s.moves.TryLock() {
		defer s.moves.Unlock()
		var err error
		if t, err = s.moveOn(context.WithoutCancel(ctx), t.ID); err != nil {
			return View{}, err
		}
	}
	return s.view(ctx, t)
}

// moveOn moves the task on. The caller has the lock: others may have moved it before.
func (s *Service) moveOn(ctx context.Context, id string) (director.PhaseTask, error) {
	t, err := s.Store.PhaseTask(ctx, id)
	switch {
	case err != nil || !t.Finished.IsZero():
		return t, err
	case t.Request.Phase == director.PhaseDirector:
		err = s.moveUpgrade(ctx, &t)
	default:
		err = s.moveParts(ctx, &t)
	}
	if err != nil && director.KindOf(err) == director.KindStale { // another director moves it
		return s.Store.PhaseTask(ctx, id)
	}
	return t, err
}

// view is the task with its plans.
func (s *Service) view(ctx context.Context, t director.PhaseTask) (View, error) {
	v := View{PhaseTask: t, Plans: map[string]plan.View{}}
	for _, p := range t.Parts {
		for _, id := range p.Plans {
			view, err := s.Journal.Plan(ctx, id)
			if err != nil {
				return v, err
			}
			v.Plans[id] = view
		}
	}
	return v, nil
}

func (s *Service) moveParts(ctx context.Context, t *director.PhaseTask) error {
	before := *t
	before.Parts = slices.Clone(t.Parts)
	now, err := s.parts(ctx, t.Request)
	if err != nil && director.KindOf(err) == director.KindInternal {
		return err
	}
	for _, p := range now { // a plan that held its cluster may have brought nodes to the host
		if !slices.ContainsFunc(t.Parts, func(old director.PhasePart) bool { return old.Cluster == p.Cluster }) {
			t.Parts = append(t.Parts, p)
		}
	}
	planning, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	for i := range t.Parts {
		p := &t.Parts[i]
		if p.Ended {
			continue
		}
		if err := s.movePart(planning, t, p); errors.Is(err, context.DeadlineExceeded) {
			p.State, p.Message, p.Hint = director.PhaseWaiting, "the cluster takes long to answer",
				"it is tried again when a person asks for the task"
		} else if err != nil {
			return err
		}
	}
	s.judge(t)
	if reflect.DeepEqual(before, *t) {
		return nil // most questions find that nothing has changed
	}
	return s.Store.Update(ctx, func(tx *store.Tx) error { return tx.PutPhaseTask(*t) })
}

// movePart looks at the part's newest plan, and makes or starts the next one.
func (s *Service) movePart(ctx context.Context, t *director.PhaseTask, p *director.PhasePart) error {
	var newest plan.Plan
	var state plan.State
	if n := len(p.Plans); n > 0 {
		var err error
		if newest, state, err = s.Store.Plan(ctx, p.Plans[n-1]); err != nil {
			return err
		}
	}
	// Who has given up asking must not be surprised by a drain when a person looks at the task days later.
	if begun := len(p.Plans) > 1 ||
		!state.StartedAt.IsZero(); !begun && s.PlanLife > 0 && s.Now().After(t.Started.Add(s.PlanLife)) {
		endPart(p, director.PhaseFailed, fmt.Sprintf("given up after %s: %s", s.PlanLife, p.Message), askAnew)
		return nil
	}
	if !t.Request.Phase.OnNodes() {
		installing, err := s.installing(ctx, t.Request, *p, state)
		if err != nil {
			return err
		}
		if !installing {
			return waitOr(p, s.checkPart(ctx, t, p))
		}
	}
	if state.Status == plan.StatusPlanned || state.Status == plan.StatusApproved {
		if s.Plans.WantsApproval(newest, state) {
			waitForApproval(p, newest)
			return nil
		}
		err := s.Plans.Start(ctx, t.By, newest.ID, newest.Hash)
		switch {
		case err == nil:
			if _, state, err = s.Store.Plan(ctx, newest.ID); err != nil {
				return err
			}
		case director.KindOf(err) == director.KindConflict && !held(err):
			state.Status = plan.StatusDiscarded // the world has moved since it was made: another one takes its place
		default:
			return waitOr(p, err)
		}
	}
	switch {
	case len(p.Plans) == 0, state.Status == plan.StatusDone && newest.Operation != goals[t.Request.Phase]:
	case state.Status == plan.StatusDiscarded && state.StartedAt.IsZero():
		p.Plans = p.Plans[:len(p.Plans)-1]
	default:
		settlePart(p, newest, state)
		return nil
	}
	return waitOr(p, s.nextPlan(ctx, t, p))
}

// goals are what the last plan of a part does.
var goals = map[director.PhaseName]plan.Operation{
	director.PhaseCluster: plan.ClusterCreate, director.PhasePreNodeLock: plan.NodeDelete,
	director.PhasePostNodeUnlock: plan.NodeRejoin,
}

func held(err error) bool {
	e, ok := errors.AsType[*director.Error](err)
	return ok && e.Holder != nil
}

func waitForApproval(p *director.PhasePart, pl plan.Plan) {
	p.State, p.Message = director.PhaseWaiting,
		"plan "+pl.ID+" has to be approved first: "+strings.Join(pl.Approvals, "; ")
	p.Hint = "read it, and then run: directorctl approve " + pl.ID
}

// nextPlan makes the part's next plan and starts it.
func (s *Service) nextPlan(ctx context.Context, t *director.PhaseTask, p *director.PhasePart) error {
	if holder, err := s.Store.Holder(ctx, p.Cluster); err != nil {
		return err
	} else if holder != "" {
		return s.Store.HeldBy(ctx, "phases", holder, p.Cluster)
	}
	parts, err := s.parts(ctx, t.Request)
	if err != nil {
		return err
	}
	i := slices.IndexFunc(parts, func(x director.PhasePart) bool { return x.Cluster == p.Cluster })
	if i < 0 {
		endPart(p, director.PhaseDone, nothingToDo(t.Request), "")
		p.Nodes = nil
		return nil
	}
	p.Nodes = parts[i].Nodes
	if t.Request.Phase.OnNodes() {
		if err := s.mayBegin(ctx, t.Request, p.Cluster, p.Nodes); err != nil {
			return err
		}
	}
	r, err := s.request(ctx, t.Request, *p)
	if err != nil {
		return err
	}
	made, err := s.Plans.MakePlanWith(ctx, t.By, p.Cluster, r, func(tx *store.Tx, id string) error {
		stored := *t
		stored.Parts = slices.Clone(t.Parts)
		for i := range stored.Parts {
			if stored.Parts[i].Cluster == p.Cluster {
				stored.Parts[i].Plans = append(slices.Clone(p.Plans), id)
			}
		}
		return tx.PutPhaseTask(stored)
	})
	if err != nil {
		return err
	}
	if len(made.Plan.Steps) == 0 {
		endPart(p, director.PhaseDone, made.Plan.Summary, "")
		return nil
	}
	t.Revision++
	p.Plans = append(p.Plans, made.Plan.ID)
	if s.Plans.WantsApproval(made.Plan, made.State) {
		waitForApproval(p, made.Plan)
		return nil
	}
	if err := s.Plans.Start(ctx, t.By, made.Plan.ID, made.Plan.Hash); err != nil {
		return err
	}
	settlePart(p, made.Plan, plan.State{Status: plan.StatusRunning})
	return nil
}

// checkPart is the phases cluster and post_cluster.
func (s *Service) checkPart(ctx context.Context, t *director.PhaseTask, p *director.PhasePart) error {
	if holder, err := s.Store.Holder(ctx, p.Cluster); err != nil {
		return err
	} else if holder != "" {
		return s.Store.HeldBy(ctx, "phases", holder, p.Cluster)
	}
	if err := s.mayBegin(ctx, t.Request, p.Cluster, nil); err != nil {
		return err
	}
	endPart(p, director.PhaseDone, "it is installed, no plan holds it, and all of its nodes are well", "")
	return nil
}

// waitOr turns an error that may pass into a wait that says why.
func waitOr(p *director.PhasePart, err error) error {
	kind := director.KindOf(err)
	if err == nil || kind == director.KindInternal || kind == director.KindStale {
		return err
	}
	p.State, p.Message, p.Hint = director.PhaseWaiting, director.MessageOf(err), director.HintOf(err)
	for _, f := range director.FieldsOf(err) {
		p.Message += "; " + f.String()
	}
	return nil
}

// instant is now, as exactly as the store keeps it: the same task looks the same however often it is asked for.
func (s *Service) instant() time.Time { return s.Now().UTC().Truncate(time.Microsecond) }

// askAnew is what is left to do about a part that cannot continue.
const askAnew = "ask again under another task id"

func endPart(p *director.PhasePart, state director.PhaseState, msg, hint string) {
	p.State, p.Message, p.Hint, p.Ended = state, msg, hint, true
}

// settlePart says how far the part is whose newest plan is in s.
func settlePart(p *director.PhasePart, newest plan.Plan, s plan.State) {
	id := newest.ID
	msg := "plan " + id + " is " + string(s.Status)
	if s.Message != "" {
		msg += ": " + s.Message
	}
	if newest.Operation == plan.ClusterUpgrade {
		msg = "the document asks for another release, so the members are upgraded first, and then " +
			strings.Join(p.Nodes, ", ") + " come back at it; " + msg
	}
	switch s.Status {
	case plan.StatusDone:
		endPart(p, director.PhaseDone, msg, "")
	case plan.StatusDiscarded, plan.StatusUndone:
		endPart(p, director.PhaseFailed, msg, askAnew)
	case plan.StatusParked, plan.StatusPaused:
		p.State, p.Message, p.Hint = director.PhaseParked, msg,
			joinedHint(s.Hint, "when it is settled: directorctl retry "+id)
	case plan.StatusFailed, plan.StatusCancelled:
		p.State, p.Message = director.PhaseFailed, msg
		p.Hint = joinedHint(
			s.Hint, "mend what is wrong and continue: directorctl retry "+id+"; or give up: directorctl discard "+id,
		)
		if slices.ContainsFunc(newest.Steps, func(step plan.Step) bool {
			st := s.Step(step.ID)
			return step.Back() && st != nil && st.Status == plan.Done
		}) { // nodes were rolled back, and the plan's own hint says how to continue
			p.Hint = s.Hint
		}
	default:
		p.State, p.Message, p.Hint = director.PhaseRunning, msg, ""
	}
}

func joinedHint(first, second string) string {
	if first == "" {
		return second
	}
	return first + "; " + second
}

// judge derives how far the task is from how far its parts are: as long as anything moves it runs, and then the worst
// counts.
func (s *Service) judge(t *director.PhaseTask) {
	order := []director.PhaseState{
		director.PhaseDone, director.PhaseWaiting, director.PhaseParked, director.PhaseFailed, director.PhaseRunning,
	}
	worst := director.PhasePart{State: director.PhaseDone}
	var said []string
	final := true
	for _, p := range t.Parts {
		if slices.Index(order, p.State) > slices.Index(order, worst.State) {
			worst = p
		}
		said = append(said, p.Name()+": "+p.Message)
		final = final && p.Ended
	}
	t.State, t.Hint, t.Message = worst.State, worst.Hint, strings.Join(said, "; ")
	if final {
		t.Finished = s.instant()
	}
}
