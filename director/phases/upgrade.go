package phases

import (
	"context"
	"errors"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/rootdisk"
	"github.com/director-kaas/kaas/director/store"
)

// lostAfter is when a request that root has not begun counts as lost: root takes it within seconds.
const lostAfter = time.Minute

// acceptUpgrade finds the director that a new task is about, and refuses what can be known to be wrong. What another
// director has to judge, that one judges later.
func (s *Service) acceptUpgrade(ctx context.Context, t *director.PhaseTask) error {
	target, err := s.target(ctx, t.Request.Director)
	if err != nil {
		return err
	}
	p := director.PhasePart{
		State: director.PhaseWaiting, Message: "that director has not begun yet",
		Upgrade: director.PhaseUpgrade{Instance: target.ID, Host: target.Host},
	}
	if target.ID == s.Instance {
		p.Message = "nothing was begun yet"
		if err = s.look(ctx, t.Request.Upload, &p); s.Fetch != nil && missing(p, err) {
			p.Message, err = "another director may have the archive", nil
		}
	}
	if err != nil {
		return err
	}
	t.Parts = []director.PhasePart{p}
	s.judge(t)
	return nil
}

// target is the director on the host. It may be left out if there is one director.
func (s *Service) target(ctx context.Context, host string) (store.Instance, error) {
	all, err := s.Store.Instances(ctx)
	if err != nil {
		return store.Instance{}, err
	}
	self := store.Instance{ID: s.Instance, Host: s.Host}
	if !slices.Contains(all, self) {
		all = append(all, self)
	}
	var hosts []string
	var found []store.Instance
	for _, i := range all {
		hosts = append(hosts, i.Host)
		if host == "" || i.Host == host || i.ID == host {
			found = append(found, i)
		}
	}
	switch {
	case len(found) == 1:
		return found[0], nil
	case len(found) == 0:
		return store.Instance{}, director.Errorf(director.KindNotFound, "phases", "no director runs on %q", host).
			WithHint("the directors are on %s", strings.Join(hosts, ", "))
	case host == "":
		return store.Instance{}, director.Invalid("phases", "there are several directors", []director.Field{{
			Path: "director", Msg: "is needed here", Hint: "one of " + strings.Join(hosts, ", "),
		}})
	}
	return store.Instance{}, director.Errorf(director.KindConflict, "phases", "several directors run on %s", host).
		WithHint("give their machines names of their own")
}

// look checks the archive of the part, which is for this director, and ends the part if its version runs already.
func (s *Service) look(ctx context.Context, upload string, p *director.PhasePart) error {
	state, err := s.Upgrades.State(ctx)
	if err != nil {
		return err
	}
	p.Upgrade.From = state.Running.Version
	root, err := s.Upgrades.Look(ctx, upload)
	p.Upgrade.To = root.Version
	if root != (rootdisk.Root{}) && root == state.Running.Root {
		endPart(p, director.PhaseDone, "version "+root.Version+" runs already: nothing is to be done", "")
		return nil
	}
	return err
}

// missing reports whether err of look is about an archive that has not wholly arrived.
func missing(p director.PhasePart, err error) bool {
	kind := director.KindOf(err)
	return err != nil && p.Upgrade.To == "" && (kind == director.KindNotFound || kind == director.KindConflict)
}

// bring fetches the archive of the task from another director if it is missing here.
func (s *Service) bring(ctx context.Context, t director.PhaseTask) error {
	p := t.Parts[0]
	if s.Fetch == nil || !p.Upgrade.Asked.IsZero() {
		return nil
	}
	p.Upgrade.To = ""
	if !missing(p, s.look(ctx, t.Request.Upload, &p)) {
		return nil
	}
	if err := s.Fetch(ctx, t.Request.Upload); director.KindOf(err) != director.KindNotFound {
		return err
	}
	return nil // the task waits, and says so
}

// Tick continues the upgrade of this director that an outer plan asks for. A task that names this director may have
// been given to another one, so it does not wait to be asked for.
func (s *Service) Tick(ctx context.Context) error {
	open, err := s.Store.OpenPhaseTasks(ctx, director.PhaseDirector)
	if err != nil {
		return err
	}
	var errs []error
	for _, t := range open {
		if t.Parts[0].Upgrade.Instance == s.Instance {
			errs = append(errs, s.bring(ctx, t), s.tick(ctx, t.ID))
		}
	}
	return errors.Join(errs...)
}

func (s *Service) tick(ctx context.Context, id string) error {
	s.moves.Lock()
	defer s.moves.Unlock()
	_, err := s.moveOn(ctx, id)
	return err
}

// moveUpgrade moves the task on, if it is about this director, and ends it if its own director is gone.
func (s *Service) moveUpgrade(ctx context.Context, t *director.PhaseTask) error {
	before := *t
	before.Parts = slices.Clone(t.Parts)
	p := &t.Parts[0]
	since := t.Started
	if !p.Upgrade.Asked.IsZero() {
		since = p.Upgrade.Asked
	}
	late := s.PlanLife > 0 && s.Now().After(since.Add(s.PlanLife))
	if p.Upgrade.Instance == s.Instance {
		if err := s.moveOwn(ctx, t, late); err != nil {
			return err
		}
	} else if away, err := s.away(ctx, p.Upgrade.Instance); err != nil {
		return err
	} else if late && (away || p.Upgrade.Asked.IsZero()) {
		endPart(p, director.PhaseFailed, "given up after "+s.PlanLife.String()+": "+p.Message,
			"look at the console of its VM; "+askAnew)
	}
	s.judge(t)
	if reflect.DeepEqual(before, *t) {
		return nil
	}
	return s.Store.Update(ctx, func(tx *store.Tx) error { return tx.PutPhaseTask(*t) })
}

// away reports whether the director gives no sign of life.
func (s *Service) away(ctx context.Context, instance string) (bool, error) {
	_, _, err := s.Store.Peer(ctx, instance)
	if director.KindOf(err) == director.KindNotFound {
		return true, nil
	}
	return false, err
}

// moveOwn moves a task about this director on.
func (s *Service) moveOwn(ctx context.Context, t *director.PhaseTask, late bool) error {
	p := &t.Parts[0]
	state, err := s.Upgrades.State(ctx)
	if director.KindOf(err) == director.KindNotFound {
		endPart(p, director.PhaseFailed, director.MessageOf(err), director.HintOf(err))
		return nil
	}
	if err != nil {
		return err
	}
	c := state.Change
	switch asked := p.Upgrade.Asked; {
	case c.Task == t.ID:
		settleUpgrade(p, state)
	case asked.IsZero() && late:
		endPart(p, director.PhaseFailed, "given up after "+s.PlanLife.String()+": "+p.Message, askAnew)
	case asked.IsZero():
		return waitOr(p, s.begin(ctx, t, state))
	case c.Began.After(asked):
		settleOther(p, state)
	case s.Now().After(asked.Add(lostAfter)):
		p.Upgrade.Asked = time.Time{} // the director, or root, died between the two
		return waitOr(p, s.begin(ctx, t, state))
	}
	return nil
}

// begin asks root for the upgrade, after it was written down that it does. One director is upgraded at a time.
func (s *Service) begin(ctx context.Context, t *director.PhaseTask, state rootdisk.State) error {
	p := &t.Parts[0]
	if !state.Change.Stage.Ended() {
		return director.Errorf(director.KindConflict, "phases", "another change of the root is being made").
			WithHint("see how far it is: directorctl appliance status")
	}
	err := s.look(ctx, t.Request.Upload, p)
	if p.Ended {
		return nil
	}
	if director.KindOf(err) == director.KindNotFound {
		err = director.Errorf(director.KindNotFound, "phases", "the archive is not on %s: %w", s.Host, err).
			WithHint("send it again")
	}
	if err != nil {
		if p.Upgrade.To != "" || director.KindOf(err) == director.KindInvalid { // nothing that waits would help
			endPart(p, director.PhaseFailed, director.MessageOf(err), joinedHint(director.HintOf(err), askAnew))
			return nil
		}
		return err
	}
	asked := *p
	asked.State, asked.Message, asked.Hint = director.PhaseRunning, "the upgrade is asked for", ""
	asked.Upgrade.Asked, asked.Upgrade.Stage = s.instant(), string(rootdisk.Checking)
	err = s.Store.Update(ctx, func(tx *store.Tx) error {
		if err := alone(tx, t.ID); err != nil {
			return err
		}
		next := *t
		next.State, next.Message, next.Hint = asked.State, asked.Name()+": "+asked.Message, ""
		next.Parts = []director.PhasePart{asked}
		return tx.PutPhaseTask(next)
	})
	if err != nil {
		return err
	}
	t.Revision++
	waiting := p.Upgrade
	*p = asked
	drain := rootdisk.UsualDrain
	if t.Request.DrainTimeout > 0 {
		drain = int(t.Request.DrainTimeout / time.Second)
	}
	err = s.Upgrades.Upgrade(ctx, t.Request.Upload, rootdisk.Request{
		By: t.By, Task: t.ID, Drain: drain, Within: int(t.Request.Within / time.Second),
	})
	if err != nil && director.KindOf(err) != director.KindInternal {
		p.Upgrade = waiting // it was refused, so nothing was asked for
	}
	return err
}

// alone refuses to begin while another director is upgraded: the others have to do its work.
func alone(tx *store.Tx, id string) error {
	open, err := tx.OpenPhaseTasks(director.PhaseDirector)
	if err != nil {
		return err
	}
	for _, t := range open {
		if t.ID != id && !t.Parts[0].Upgrade.Asked.IsZero() {
			return director.Errorf(
				director.KindConflict, "phases", "the director on %s is being upgraded by task %s", t.Parts[0].Name(),
				t.ID,
			).WithHint("see how far it is: directorctl phase show %s", t.ID)
		}
	}
	return nil
}

// settleUpgrade says how far the part is whose change is the last one.
func settleUpgrade(p *director.PhasePart, state rootdisk.State) {
	c := state.Change
	p.Upgrade.Stage, p.Upgrade.Done, p.Upgrade.Total = string(c.Stage), c.Done, c.Total
	switch c.Stage {
	case rootdisk.Done:
		endPart(p, director.PhaseDone, "version "+state.Running.Version+" runs", "")
	case rootdisk.Failed:
		endPart(
			p, director.PhaseFailed, "version "+state.Running.Version+" runs: "+c.Reason, joinedHint(c.Hint, askAnew),
		)
	default:
		p.State, p.Hint = director.PhaseRunning, ""
		p.Message = string(c.Stage) + " the upgrade from version " + p.Upgrade.From + " to " + p.Upgrade.To
	}
}

// settleOther ends the part if a later change has taken the place of its own. Which version runs tells how that ended.
func settleOther(p *director.PhasePart, state rootdisk.State) {
	running := state.Running.Version
	switch {
	case !state.Change.Stage.Ended():
		p.Message = "another change of the root is being made"
	case running == p.Upgrade.To:
		endPart(p, director.PhaseDone, "version "+running+" runs", "")
	default:
		endPart(p, director.PhaseFailed, "version "+running+" runs, after another change of the root", askAnew)
	}
}

// heldView is the task as far as a director can see it that may change nothing: one whose root is tried shows how far
// its own upgrade is.
func (s *Service) heldView(ctx context.Context, t director.PhaseTask) (View, error) {
	if t.Request.Phase == director.PhaseDirector && t.Parts[0].Upgrade.Instance == s.Instance {
		t.Parts = slices.Clone(t.Parts)
		state, err := s.Upgrades.State(ctx)
		if err != nil {
			return View{}, err
		}
		if c := state.Change; c.Task == t.ID && !c.Stage.Ended() {
			settleUpgrade(&t.Parts[0], state)
			s.judge(&t)
		}
	}
	return s.view(ctx, t)
}
