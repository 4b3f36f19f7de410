package campaigns

import (
	"context"
	"errors"
	"strings"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
)

const (
	// every is how often a director looks at the campaigns: plans end without telling.
	every = 2 * time.Second
	// turn is how long one campaign keeps the others waiting.
	turn = 20 * time.Second
	// patience is how long a cluster is left alone with which something went wrong that may pass.
	patience = 15 * time.Second
)

// Start begins to move campaigns on and returns at once. It is called once.
func (s *Service) Start(ctx context.Context) error {
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.loop.Go(func() {
		timer := time.NewTicker(every)
		defer timer.Stop()
		for {
			if err := s.Tick(ctx); err != nil && ctx.Err() == nil {
				s.Log.ErrorContext(ctx, "campaigns were not moved on, will retry", "err", err)
			}
			select {
			case <-ctx.Done():
				return
			case <-s.wake:
			case <-timer.C:
			}
		}
	})
	return nil
}

// Stop ends the work and gives the campaigns up, so that another director need not wait for them. It is idempotent.
func (s *Service) Stop(ctx context.Context) error {
	if s.stop == nil {
		return nil
	}
	s.stop()
	s.loop.Wait()
	return s.Store.FreeCampaigns(ctx, s.owner)
}

// Wake makes the service look at the campaigns now.
func (s *Service) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

// Tick moves every campaign on that no other director does, as far as it goes now.
func (s *Service) Tick(ctx context.Context) error {
	ids, err := s.Store.Campaigns(ctx, true)
	if err != nil {
		return err
	}
	var errs []error
	for i := len(ids) - 1; i >= 0; i-- { // the oldest first
		errs = append(errs, s.move(ctx, ids[i]))
	}
	return errors.Join(errs...)
}

// move takes the steps of a campaign that are due, one after another, each under the lease.
func (s *Service) move(ctx context.Context, id string) error {
	begun := time.Now()
	for ctx.Err() == nil && time.Since(begun) < turn {
		now, err := s.Store.Clock(ctx)
		if err != nil {
			return err
		}
		ours, err := s.Store.LeaseCampaign(ctx, id, s.owner, now, now.Add(s.Lease))
		if err != nil || !ours {
			return err
		}
		c, err := s.Store.Campaign(ctx, id)
		if err != nil {
			return err
		}
		p := progressOf(c, now, s.resting(c))
		if p.next.verb == doNothing {
			return nil
		}
		if err := s.leased(ctx, id, func() error { return s.take(ctx, c, p, now) }); err != nil {
			return err
		}
	}
	if ctx.Err() == nil {
		s.Wake() // there is more to do
	}
	return nil
}

// leased runs a step and keeps the lease meanwhile: a look at a slow cluster may take longer than it lasts, and two
// directors that take it from each other would never come to an end.
func (s *Service) leased(ctx context.Context, id string, do func() error) error {
	ctx, cancel := context.WithCancel(ctx)
	var beat sync.WaitGroup
	defer func() {
		cancel()
		beat.Wait()
	}()
	beat.Go(func() {
		timer := time.NewTicker(max(s.Lease/3, time.Millisecond))
		defer timer.Stop()
		for {
			select {
			case <-ctx.Done():
				return
			case <-timer.C:
			}
			now, err := s.Store.Clock(ctx)
			if err == nil {
				_, err = s.Store.LeaseCampaign(ctx, id, s.owner, now, now.Add(s.Lease))
			}
			if err != nil && ctx.Err() == nil {
				s.Log.WarnContext(ctx, "the lease of a campaign was not kept, will retry", "campaign", id, "err", err)
			}
		}
	})
	return do()
}

// resting returns the clusters that are left alone for a while.
func (s *Service) resting(c director.Campaign) map[string]bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := map[string]bool{}
	for _, m := range c.Clusters {
		if key := c.ID + "/" + m.Name; time.Now().Before(s.later[key]) {
			out[m.Name] = true
		} else {
			delete(s.later, key)
		}
	}
	return out
}

func (s *Service) rest(id, cluster string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.later[id+"/"+cluster] = time.Now().Add(patience)
}

// forget lets every cluster of the campaign be tried again at once.
func (s *Service) forget(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key := range s.later {
		if strings.HasPrefix(key, id+"/") {
			delete(s.later, key)
		}
	}
}

// take does what is next.
func (s *Service) take(ctx context.Context, c director.Campaign, p Progress, now time.Time) error {
	var m director.CampaignCluster
	for _, each := range c.Clusters {
		if each.Name == p.next.cluster {
			m = each
		}
	}
	switch p.next.verb {
	case doPlan:
		return s.plan(ctx, c, m)
	case doCheck:
		return s.check(ctx, c, m)
	case doStart:
		return s.start(ctx, c, m)
	case doAssign:
		return s.assign(ctx, c, now)
	case doStop:
		return s.hold(ctx, c, func(tx *store.Tx, c director.Campaign) error {
			c.Paused, c.PausedBy, c.Reason = now, "", stopReason(c, p)
			return errors.Join(tx.SetCampaign(c), tx.Audit(now, object(c.ID), "stop: "+c.Reason, object(c.ID)))
		})
	case doFinish:
		return s.hold(ctx, c, func(tx *store.Tx, c director.Campaign) error {
			c.Ended, c.EndedBy = now, ""
			return errors.Join(tx.SetCampaign(c), tx.Audit(now, object(c.ID), "finish", object(c.ID)))
		})
	case doNothing:
	}
	return nil
}

// hold runs fn in a transaction if the campaign is still as c and ours. Otherwise nothing happens, and the next look
// shows why.
func (s *Service) hold(
	ctx context.Context, c director.Campaign, fn func(tx *store.Tx, now director.Campaign) error,
) error {
	err := s.Store.Update(ctx, func(tx *store.Tx) error {
		now, err := tx.HoldCampaign(c.ID, s.owner, c.Revision)
		if err != nil {
			return err
		}
		return fn(tx, now)
	})
	if store.MovedOn(err) {
		return nil
	}
	return err
}

// assign puts the clusters that have plans into waves.
func (s *Service) assign(ctx context.Context, c director.Campaign, now time.Time) error {
	return s.hold(ctx, c, func(tx *store.Tx, c director.Campaign) error {
		var in []director.CampaignCluster
		for _, m := range c.Clusters {
			if !StateOf(m).settled() {
				in = append(in, m)
			}
		}
		waves := sizes(c.Spec, len(in))
		for wave, size := range waves {
			for _, m := range in[:size] {
				m.Wave, m.Checked = wave+1, wave == 0
				if err := tx.SetCampaignCluster(c.ID, m); err != nil {
					return err
				}
			}
			in = in[size:]
		}
		return tx.Audit(now, object(c.ID), "planned", object(c.ID))
	})
}

// plan makes the plan of a cluster, or writes down why there is none.
func (s *Service) plan(ctx context.Context, c director.Campaign, m director.CampaignCluster) error {
	r := request(c.Spec.Target)
	err := s.suitable(ctx, c, m)
	if err == nil && m.Plan != "" {
		err = s.yields(ctx, m, r.Operation)
	}
	made := false
	var v plan.View
	if err == nil {
		v, err = s.Planning.MakePlanWith(ctx, c.CreatedBy, m.Name, r, func(tx *store.Tx, id string) error {
			made = true
			now, err := tx.HoldCampaign(c.ID, s.owner, c.Revision)
			if err != nil {
				return err
			}
			return s.record(tx, now, m, id)
		})
	}
	switch {
	case ctx.Err() != nil || store.MovedOn(err):
		return ctx.Err()
	case err == nil && made:
		return nil
	case err == nil && len(v.Plan.Steps) == 0:
		return s.verdict(ctx, c, m, director.CampaignNothing, v.Plan.Summary, "", nil)
	case passes(err) && m.Wave > 0 || director.KindOf(err) == director.KindUnavailable:
		s.rest(c.ID, m.Name)
		return s.verdict(ctx, c, m, m.Verdict, messageOf(err), director.HintOf(err), nil)
	}
	path, perr := s.path(ctx, c.Spec.Target, m.Name)
	if perr != nil {
		return perr
	}
	return s.verdict(ctx, c, m, director.CampaignRefused, messageOf(err), director.HintOf(err), path)
}

// yields is a conflict while another's plan waits for the cluster, which was made in place of the campaign's: to plan
// again would discard it.
func (s *Service) yields(ctx context.Context, m director.CampaignCluster, op plan.Operation) error {
	waiting, err := s.Store.Plans(ctx, store.PlanFilter{
		Cluster: m.Name, Statuses: []plan.Status{plan.StatusPlanned, plan.StatusApproved}, Of: store.LaneOf(op),
	})
	if err != nil {
		return err
	}
	for _, id := range waiting {
		if id == m.Plan {
			continue
		}
		e := director.Errorf(
			director.KindConflict, "campaigns.plan", "plan %s was made in place of the campaign's, and waits", id,
		).WithHint("start it, or discard it: directorctl discard %s", id)
		e.Holder = &director.Holder{Plan: id, Cluster: m.Name}
		return e
	}
	return nil
}

// suitable returns why the cluster cannot have a plan of the campaign, beyond what planning says.
func (s *Service) suitable(ctx context.Context, c director.Campaign, m director.CampaignCluster) error {
	const op = "campaigns.plan"
	doc, err := s.Store.Document(ctx, model.Ref{Kind: model.KindCluster, Name: m.Name})
	if err != nil {
		return err
	}
	if doc.UID != m.UID {
		return director.Errorf(director.KindConflict, op, "cluster %s was deleted and made again", m.Name).
			WithHint("make another campaign for it")
	}
	if _, ok, err := s.Store.Installed(ctx, m.Name); err != nil {
		return err
	} else if !ok {
		return director.Errorf(director.KindConflict, op, "cluster %s does not exist yet", m.Name).
			WithHint("create it first: directorctl plan %s", m.Name)
	}
	if len(c.Spec.Target.Patch) == 0 {
		return nil
	}
	is, err := s.Changed(doc, c.Spec.Target.Patch)
	if err != nil {
		return err
	}
	text, err := model.EncodeJSON(is.Document)
	if err == nil {
		_, err = s.Documents.Apply(ctx, c.CreatedBy, text, "patch", true)
	}
	return err
}

// record makes the plan the cluster's. It belongs to the transaction that stores the plan.
func (s *Service) record(tx *store.Tx, c director.Campaign, was director.CampaignCluster, id string) error {
	for _, m := range c.Clusters {
		if m.Name != was.Name {
			continue
		}
		if m.Plan != was.Plan || m.Verdict != was.Verdict || !m.SkippedAt.IsZero() {
			return director.Errorf(director.KindConflict, store.OpCampaign, "cluster %s was moved on meanwhile", m.Name)
		}
		if m.Plan != "" {
			before, _, err := tx.Plan(m.Plan)
			if err == nil {
				is, _, err := tx.Plan(id)
				if err != nil {
					return err
				}
				m.Difference = s.Difference(before, is)
			} else if director.KindOf(err) != director.KindNotFound {
				return err
			}
		}
		m.Plan, m.Verdict, m.Message, m.Hint, m.Path = id, director.CampaignPlanned, "", "", nil
		m.Checked = m.Wave > 0
		return tx.SetCampaignCluster(c.ID, m)
	}
	return nil
}

// verdict writes down what a planning pass said of a cluster without a plan.
func (s *Service) verdict(
	ctx context.Context, c director.Campaign, m director.CampaignCluster, v director.CampaignVerdict,
	message, hint string, path []string,
) error {
	return s.hold(ctx, c, func(tx *store.Tx, _ director.Campaign) error {
		m.Verdict, m.Message, m.Hint, m.Path = v, message, hint, path
		return tx.SetCampaignCluster(c.ID, m)
	})
}

// check sees whether the plan of a cluster whose wave has come up still holds, and makes it again otherwise.
func (s *Service) check(ctx context.Context, c director.Campaign, m director.CampaignCluster) error {
	if StateOf(m) == Outdated {
		return s.plan(ctx, c, m)
	}
	p, state, err := s.Store.Plan(ctx, m.Plan)
	if err != nil {
		return err
	}
	if err := s.Planning.Moved(ctx, p, state); err != nil {
		return s.plan(ctx, c, m)
	}
	return s.hold(ctx, c, func(tx *store.Tx, _ director.Campaign) error {
		m.Checked, m.Message, m.Hint = true, "", ""
		return tx.SetCampaignCluster(c.ID, m)
	})
}

// start starts the plan of a cluster in the name of who agreed to it. A plan that the world has left behind is looked
// at again.
func (s *Service) start(ctx context.Context, c director.Campaign, m director.CampaignCluster) error {
	p, state, err := s.Store.Plan(ctx, m.Plan)
	if err != nil {
		return err
	}
	err = s.stillMay(ctx, c, m)
	if err == nil && s.Planning.WantsApproval(p, state) {
		err = s.Planning.Approve(ctx, m.AgreedBy, p.ID, m.AgreedHash)
	}
	if err == nil {
		err = s.Planning.StartWith(ctx, m.AgreedBy, p.ID, m.AgreedHash, func(tx *store.Tx) error {
			now, err := tx.HoldCampaign(c.ID, s.owner, c.Revision)
			if err != nil {
				return err
			}
			return stillDue(now, m)
		})
	}
	if err == nil || ctx.Err() != nil || store.MovedOn(err) {
		return ctx.Err()
	}
	s.Log.InfoContext(ctx, "a plan of a campaign did not start", "campaign", c.ID, "plan_id", p.ID, "err", err)
	moved := director.KindOf(err) == director.KindConflict || director.KindOf(err) == director.KindInvalid
	s.rest(c.ID, m.Name)
	return s.hold(ctx, c, func(tx *store.Tx, now director.Campaign) error {
		if stillDue(now, m) != nil {
			return nil
		}
		m.Message, m.Hint, m.Checked = messageOf(err), director.HintOf(err), !moved
		if director.KindOf(err) == director.KindForbidden { // another person has to agree
			m.AgreedHash, m.AgreedBy, m.AgreedAt = "", "", time.Time{}
		}
		return tx.SetCampaignCluster(c.ID, m)
	})
}

// stillMay is forbidden if who agreed to the plan may not start it any more.
func (s *Service) stillMay(ctx context.Context, c director.Campaign, m director.CampaignCluster) error {
	if s.May == nil {
		return nil
	}
	for _, a := range needs(c.Spec.Target) {
		may, err := s.May(ctx, m.AgreedBy, a, clusterObject(m.Name, m.Project))
		if err != nil {
			return err
		}
		if !may {
			return director.Errorf(
				director.KindForbidden, "campaigns.start", "%s, who agreed to it, may not %s cluster %s any more",
				m.AgreedBy,
				a, m.Name,
			).WithHint(
				"a user who may do this must agree to the wave: directorctl campaign agree %s --wave %d", c.ID, m.Wave,
			)
		}
	}
	return nil
}

// stillDue is a conflict if the plan of the cluster is not to start any more.
func stillDue(c director.Campaign, was director.CampaignCluster) error {
	for _, m := range c.Clusters {
		if m.Name == was.Name && m.Plan == was.Plan && StateOf(m) == Agreed && c.Paused.IsZero() {
			return nil
		}
	}
	return director.Errorf(director.KindConflict, store.OpCampaign, "cluster %s was moved on meanwhile", was.Name)
}

// passes reports whether the refusal may go by itself: another plan works on the cluster, or something does not answer.
func passes(err error) bool {
	e, ok := errors.AsType[*director.Error](err)
	return ok && (e.Holder != nil || e.Kind == director.KindUnavailable)
}

// messageOf is what people are told of the error, with every problem of it.
func messageOf(err error) string {
	text := director.MessageOf(err)
	for _, f := range director.FieldsOf(err) {
		text += "; " + f.String()
	}
	return text
}
