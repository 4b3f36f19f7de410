package campaigns

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/store"
)

const opAgree = "campaigns.agree"

// Agree lets the plans of a wave start in their turn. The hash is the wave's: it says which plans were read. Plans that
// ask for an approval get it, if the person may give it.
func (s *Service) Agree(ctx context.Context, by Person, id string, wave int, hash string) (View, error) {
	if err := s.mayStore(ctx, by, id, wave); err != nil {
		return View{}, err
	}
	return s.change(ctx, by, id, fmt.Sprintf("agree to wave %d", wave), func(
		tx *store.Tx, c *director.Campaign, p Progress, now time.Time,
	) error {
		if err := agreeable(*c, p, wave, hash); err != nil {
			return err
		}
		agreed := 0
		for _, m := range c.Clusters {
			if state := StateOf(m); m.Wave != wave || state != Planned && state != Agreed {
				continue
			}
			pl, _, err := tx.Plan(m.Plan)
			if err != nil {
				return err
			}
			if len(pl.Approvals) > 0 {
				if err := s.Planning.MayApprove(by.Name, pl); err != nil {
					return err
				}
			}
			m.AgreedHash, m.AgreedBy, m.AgreedAt, agreed = m.Hash, by.Name, now, agreed+1
			if err := tx.SetCampaignCluster(id, m); err != nil {
				return err
			}
		}
		if agreed == 0 {
			return director.Errorf(director.KindConflict, opAgree, "no plan of wave %d waits for agreement", wave)
		}
		return nil
	})
}

// mayStore returns why the person may not store the documents that the plans of the wave bring.
func (s *Service) mayStore(ctx context.Context, by Person, id string, wave int) error {
	c, err := s.Store.Campaign(ctx, id)
	if err != nil {
		return err
	}
	r := request(c.Spec.Target)
	if by.Store == nil || len(r.Change) == 0 {
		return nil
	}
	if err := allowed(by, c, true); err != nil {
		return err
	}
	for _, m := range c.Clusters {
		if state := StateOf(m); m.Wave != wave || state != Planned && state != Agreed {
			continue
		}
		doc, err := s.Store.Document(ctx, model.Ref{Kind: model.KindCluster, Name: m.Name})
		if err != nil {
			return err
		}
		is, err := s.Changed(doc, r.Change)
		if err == nil {
			err = by.Store(&doc.Document, &is.Document)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// agreeable returns why a person cannot agree to the wave now.
func agreeable(c director.Campaign, p Progress, wave int, hash string) error {
	const see = "read it: directorctl campaign show %s"
	switch {
	case wave < 1 || wave > len(p.Waves):
		return director.Errorf(director.KindConflict, opAgree, "the campaign has no wave %d now", wave).
			WithHint(see, c.ID)
	case wave > p.Wave && c.Spec.Pause == director.PauseAgreed:
		return director.Errorf(
			director.KindConflict, opAgree, "wave %d comes up when wave %d is over", wave, wave-1,
		).WithHint("agree to it then; a campaign whose pause is a time takes agreements ahead")
	}
	w := p.Waves[wave-1]
	for _, m := range c.Clusters {
		if m.Wave == wave && wave == p.Wave && (StateOf(m) == Planned && !m.Checked || StateOf(m) == Outdated) {
			return director.Errorf(
				director.KindConflict, opAgree, "wave %d is being planned again; %s is not through", wave, m.Name,
			).WithHint("try again in a moment")
		}
	}
	if w.Hash != hash || hash == "" {
		return director.Errorf(
			director.KindConflict, opAgree, "wave %d has the hash %.12s, not %.12s", wave, w.Hash, hash,
		).WithHint(see, c.ID)
	}
	return nil
}

// Pause lets no further plan start. No error if it is so already.
func (s *Service) Pause(ctx context.Context, by Person, id, reason string) (View, error) {
	return s.change(ctx, by, id, "pause", func(_ *store.Tx, c *director.Campaign, _ Progress, now time.Time) error {
		if !c.Paused.IsZero() {
			return errSame
		}
		c.Paused, c.PausedBy, c.Reason = now, by.Name, reason
		return nil
	})
}

// Resume lets the campaign continue: clusters that have failed no longer count against the stop rule, and those of
// waves that are not over for which there was no plan are planned again. No error if it is not paused.
func (s *Service) Resume(ctx context.Context, by Person, id string) (View, error) {
	return s.change(ctx, by, id, "resume", func(tx *store.Tx, c *director.Campaign, p Progress, _ time.Time) error {
		c.Paused, c.PausedBy, c.Reason = time.Time{}, "", ""
		for _, m := range c.Clusters {
			switch state := StateOf(m); {
			case state == Failed:
				m.Tolerated = m.Plan
			case state == Refused && m.Wave > 0 && m.Wave >= p.Wave && p.Wave > 0:
				m.Verdict, m.Message, m.Hint, m.Path, m.Checked = director.CampaignUnplanned, "", "", nil, true
			default:
				continue
			}
			if err := tx.SetCampaignCluster(id, m); err != nil {
				return err
			}
		}
		return nil
	})
}

// Skip takes a cluster out of the campaign. A plan that runs continues.
func (s *Service) Skip(ctx context.Context, by Person, id, cluster, why string) (View, error) {
	if strings.TrimSpace(why) == "" {
		return View{}, director.Invalid("campaigns.skip", "a reason is missing", []director.Field{{
			Path: "reason", Msg: "is empty", Hint: "say why the cluster is left out",
		}})
	}
	return s.change(ctx, by, id, "skip "+cluster, func(
		tx *store.Tx, c *director.Campaign, _ Progress, now time.Time,
	) error {
		for _, m := range c.Clusters {
			if m.Name != cluster {
				continue
			}
			if !m.SkippedAt.IsZero() {
				return errSame
			}
			m.SkippedBy, m.SkippedAt, m.Why = by.Name, now, why
			return tx.SetCampaignCluster(id, m)
		}
		return director.Errorf(director.KindNotFound, "campaigns.skip", "campaign %s has no cluster %s", id, cluster).
			WithHint("see directorctl campaign show %s", id)
	})
}

// End lets nothing start any more, for good. Plans that run continue.
func (s *Service) End(ctx context.Context, by Person, id, reason string) (View, error) {
	return s.change(ctx, by, id, "end", func(_ *store.Tx, c *director.Campaign, _ Progress, now time.Time) error {
		c.Ended, c.EndedBy, c.Reason = now, by.Name, reason
		return nil
	})
}
