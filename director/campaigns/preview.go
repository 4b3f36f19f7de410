package campaigns

import (
	"context"
	"fmt"
	"slices"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
)

// Preview is what a campaign would be for.
type Preview struct {
	Clusters []Foreseen       // in the order in which they would be changed
	Waves    []int            // how many clusters each wave would have, if each cluster gets a plan
	Problems []director.Field // everything that the campaign would be refused for
}

// Foreseen is a cluster that a campaign would be for.
type Foreseen struct {
	Name    string
	Project string
	Version string // of Kubernetes that is installed; empty for none
	Wave    int    // from 1
	Busy    string // id of the campaign that has it; empty for none
	Look    *Look  // what it would get; nil unless that was asked for
}

// Look is the plan that a cluster would get, or why there would be none.
type Look struct {
	Operation plan.Operation // empty if there would be no plan
	Summary   string
	Steps     int
	Problems  []director.Field
	Path      []string // releases on the way, for a cluster that cannot go to the target at once
}

// MostLooks is how many clusters one preview looks at: each asks a hypervisor.
const MostLooks = 20

// Preview returns the clusters that a campaign would be for, and everything that it would be refused for, also while
// half of it is not written yet. For the named clusters it also returns the plan that each would get, as planning
// computes it now. Nothing is stored. Errors: invalid for more than MostLooks names.
func (s *Service) Preview(
	ctx context.Context, by Person, name string, spec director.CampaignSpec, look []string,
) (Preview, error) {
	const op = "campaigns.preview"
	if len(look) > MostLooks {
		return Preview{}, director.Invalid(op, "too much is asked for", []director.Field{{
			Path: "look", Msg: fmt.Sprintf("has %d entries", len(look)),
			Hint: fmt.Sprintf("give at most %d", MostLooks),
		}})
	}
	spec = filled(spec)
	p := Preview{Problems: append(nameProblems(name), problemsOf(spec)...)}
	more, err := s.missing(ctx, spec.Target)
	if err != nil {
		return Preview{}, err
	}
	p.Problems = append(p.Problems, more...)
	if len(selectorProblems(spec.Selector)) > 0 {
		return p, nil
	}
	list, err := s.choose(ctx, by, spec)
	if err != nil && director.KindOf(err) != director.KindInvalid {
		return Preview{}, err
	}
	p.Problems = append(p.Problems, director.FieldsOf(err)...)
	if len(list) > mostClusters {
		return p, nil
	}
	if err := s.foresee(ctx, &p, spec, list); err != nil {
		return Preview{}, err
	}
	if len(targetProblems(spec.Target))+len(more) > 0 {
		return p, nil // there is nothing to plan
	}
	for i, c := range p.Clusters {
		if !slices.Contains(look, c.Name) {
			continue
		}
		if p.Clusters[i].Look, err = s.lookAt(ctx, spec, list[i]); err != nil {
			return Preview{}, err
		}
	}
	return p, nil
}

// foresee fills in the clusters with their waves.
func (s *Service) foresee(
	ctx context.Context, p *Preview, spec director.CampaignSpec, list []director.CampaignCluster,
) error {
	busy, err := s.Store.ClustersInCampaigns(ctx, list)
	if err != nil {
		return err
	}
	if err := notBusy(list, busy); err != nil {
		p.Problems = append(p.Problems, director.Field{
			Path: "selector", Msg: director.MessageOf(err), Hint: director.HintOf(err),
		})
	}
	p.Waves = sizes(spec, len(list))
	wave, left := 0, 0
	for _, m := range list {
		if left == 0 {
			left = p.Waves[wave]
			wave++
		}
		left--
		c := Foreseen{Name: m.Name, Project: m.Project, Wave: wave, Busy: busy[m.Name]}
		if c.Version, err = s.version(ctx, m.Name); err != nil {
			return err
		}
		p.Clusters = append(p.Clusters, c)
	}
	return nil
}

// lookAt computes the plan that the cluster would get.
func (s *Service) lookAt(ctx context.Context, spec director.CampaignSpec, m director.CampaignCluster) (*Look, error) {
	var out Look
	err := s.suitable(ctx, director.Campaign{Spec: spec}, m)
	if err == nil {
		out, err = s.Look(ctx, m.Name, request(spec.Target))
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if err != nil {
		out.Problems = append(out.Problems, director.Field{
			Path: model.Ref{Kind: model.KindCluster, Name: m.Name}.String(), Msg: messageOf(err),
			Hint: director.HintOf(err),
		})
	}
	if len(out.Problems) > 0 {
		out.Path, err = s.path(ctx, spec.Target, m.Name)
		return &out, err
	}
	return &out, nil
}
