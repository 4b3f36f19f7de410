package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/campaigns"
	"github.com/director-kaas/kaas/director/wire"
)

// Campaigns is what the API offers of campaigns. Who may not see all clusters of one does not see it, and who may not
// change all of them cannot change it. All methods return *director.Error and are safe for concurrent use.
type Campaigns interface {
	// List returns the campaigns that the person may see, the newest first.
	List(ctx context.Context, by campaigns.Person) ([]campaigns.View, error)
	// Get returns one, or not_found.
	Get(ctx context.Context, by campaigns.Person, id string) (campaigns.View, error)
	// Create makes a campaign for the clusters of the selector that the person may change. Its plans are made
	// afterwards.
	Create(ctx context.Context, by campaigns.Person, name string, spec director.CampaignSpec) (campaigns.View, error)
	// Preview returns what a campaign would be for, and what each of the named clusters would get. Nothing is stored.
	Preview(
		ctx context.Context, by campaigns.Person, name string, spec director.CampaignSpec, look []string,
	) (campaigns.Preview, error)
	// Agree lets the plans of a wave start; conflict if the hash is not the wave's.
	Agree(ctx context.Context, by campaigns.Person, id string, wave int, hash string) (campaigns.View, error)
	// Pause lets no further plan start. No error if it is so already.
	Pause(ctx context.Context, by campaigns.Person, id, reason string) (campaigns.View, error)
	// Resume lets it continue, with the failures that there are.
	Resume(ctx context.Context, by campaigns.Person, id string) (campaigns.View, error)
	// Skip takes a cluster out.
	Skip(ctx context.Context, by campaigns.Person, id, cluster, why string) (campaigns.View, error)
	// End lets nothing start any more, for good.
	End(ctx context.Context, by campaigns.Person, id, reason string) (campaigns.View, error)
}

type campaignInput struct {
	ID string `path:"id" maxLength:"64" doc:"Id of the campaign."`
}

func personOf(a director.Actor) campaigns.Person {
	return campaigns.Person{
		Name: a.User, Visible: auth.VisibleTo(a, kindCluster),
		May:   func(action director.Action, o director.Object) bool { return auth.Can(a, action, o) },
		Store: authorOf(a).May,
	}
}

func (s *planRoutes) campaigns(api huma.API) {
	tags := []string{"Campaigns"}
	operation(s.server, api, ofSome(huma.Operation{
		OperationID: "list-campaigns", Method: http.MethodGet, Path: "/campaigns", Tags: tags,
		Summary: "List the campaigns with how far they are, the newest first; the newest 200",
	}, ""), director.ActRead, kindCluster,
		func(ctx context.Context, a director.Actor, _ *empty) (*body[wire.Campaigns], error) {
			views, err := s.Campaigns.List(ctx, personOf(a))
			if err != nil {
				return nil, err
			}
			list := wire.Campaigns{Items: make([]wire.Campaign, len(views))}
			for i, v := range views {
				list.Items[i] = campaignOf(v, false)
			}
			return &body[wire.Campaigns]{list}, nil
		})
	operation(s.server, api, ofSome(huma.Operation{
		OperationID: "get-campaign", Method: http.MethodGet, Path: "/campaigns/{id}", Tags: tags,
		Summary: "Get a campaign with its waves and clusters", Errors: []int{http.StatusNotFound},
	}, ""), director.ActRead, kindCluster,
		func(ctx context.Context, a director.Actor, in *campaignInput) (*body[wire.Campaign], error) {
			v, err := s.Campaigns.Get(ctx, personOf(a), in.ID)
			return &body[wire.Campaign]{campaignOf(v, true)}, err
		})
	type createInput struct{ Body wire.CampaignNew }
	operation(s.server, api, ofSome(takesKeys(huma.Operation{
		OperationID: "create-campaign", Method: http.MethodPost, Path: "/campaigns", Tags: tags,
		Summary: "Make a campaign: one change for many clusters",
		Description: "It is for the clusters of the selector that the caller may change. A frozen plan of each is " +
			"made " +
			"afterwards, and nothing starts before a person agrees to the first wave.",
		DefaultStatus: http.StatusCreated,
	}, s.campaignAgain()), ""), director.ActPlan, kindCluster,
		func(ctx context.Context, a director.Actor, in *createInput) (*created[wire.Campaign], error) {
			v, err := s.Campaigns.Create(ctx, personOf(a), in.Body.Name, campaignSpec(in.Body))
			if err != nil {
				return nil, err
			}
			return &created[wire.Campaign]{Location: prefixed("/campaigns/" + v.ID), Body: campaignOf(v, true)}, nil
		})
	type previewInput struct{ Body wire.CampaignPreviewRequest }
	operation(s.server, api, ofSome(huma.Operation{
		OperationID: "preview-campaign", Method: http.MethodPost, Path: "/campaign-previews", Tags: tags,
		Summary: "Tell which clusters a campaign would be for, and what each would get",
		Description: "The campaign may be half written: the answer has everything that it would be refused for. Of " +
			"the named clusters, 20 at most, it has the plan that each would get now. Nothing is stored.",
	}, ""), director.ActPlan, kindCluster,
		func(ctx context.Context, a director.Actor, in *previewInput) (*body[wire.CampaignPreview], error) {
			p, err := s.Campaigns.Preview(
				ctx, personOf(a), in.Body.Campaign.Name, campaignSpec(in.Body.Campaign), in.Body.Look,
			)
			if err != nil {
				return nil, err
			}
			return &body[wire.CampaignPreview]{previewOf(p)}, nil
		})
	s.campaignVerbs(api)
}

func previewOf(p campaigns.Preview) wire.CampaignPreview {
	out := wire.CampaignPreview{
		Clusters: make([]wire.CampaignForeseen, len(p.Clusters)), Waves: append([]int{}, p.Waves...),
		Problems: fieldsOf(p.Problems),
	}
	for i, c := range p.Clusters {
		out.Clusters[i] = wire.CampaignForeseen{
			Name: c.Name, Project: c.Project, Version: c.Version, Wave: c.Wave, Busy: c.Busy,
		}
		if l := c.Look; l != nil {
			out.Clusters[i].Look = &wire.CampaignLook{
				Operation: string(l.Operation), Summary: l.Summary, Steps: l.Steps, Problems: fieldsOf(l.Problems),
				Path: l.Path,
			}
		}
	}
	return out
}

func fieldsOf(fields []director.Field) []wire.ProblemField {
	out := make([]wire.ProblemField, len(fields))
	for i, f := range fields {
		out[i] = wire.ProblemFieldOf(f)
	}
	return out
}

// campaignAgain answers with the campaign that a witness names.
func (s *server) campaignAgain() again {
	return func(ctx context.Context, id string) (int, string, any, error) {
		v, err := s.Campaigns.Get(ctx, personOf(actorOf(ctx)), id)
		if err != nil {
			return 0, "", nil, err
		}
		return http.StatusCreated, prefixed("/campaigns/" + id), campaignOf(v, true), nil
	}
}

func (s *planRoutes) campaignVerbs(api huma.API) {
	type agreeInput struct {
		ID   string `path:"id" maxLength:"64" doc:"Id of the campaign."`
		Body wire.CampaignAgree
	}
	type reasonInput struct {
		ID   string `path:"id" maxLength:"64" doc:"Id of the campaign."`
		Body *wire.CampaignReason
	}
	type skipInput struct {
		ID   string `path:"id" maxLength:"64" doc:"Id of the campaign."`
		Body wire.CampaignSkip
	}
	campaignVerb(s.server, api, "agree", "Agree to a wave of a campaign",
		"Its plans start in their turn. The hash must be the wave's own: it says which plans were read. "+
			"A plan that is "+
			"another one when its wave comes up has to be agreed to again.",
		func(ctx context.Context, by campaigns.Person, in *agreeInput) (campaigns.View, error) {
			return s.Campaigns.Agree(ctx, by, in.ID, in.Body.Wave, in.Body.Hash)
		})
	campaignVerb(s.server, api, "pause", "Start no further plan of a campaign",
		"The running plans continue. No error if it is paused.",
		func(ctx context.Context, by campaigns.Person, in *reasonInput) (campaigns.View, error) {
			return s.Campaigns.Pause(ctx, by, in.ID, orZero(in.Body).Reason)
		})
	campaignVerb(s.server, api, "resume", "Let a campaign continue",
		"Clusters that have failed no longer count against the stop rule. Clusters of waves that are not over "+
			"for which "+
			"there was no plan are planned again.",
		func(ctx context.Context, by campaigns.Person, in *campaignInput) (campaigns.View, error) {
			return s.Campaigns.Resume(ctx, by, in.ID)
		})
	campaignVerb(s.server, api, "skip", "Take a cluster out of a campaign", "A plan of it that runs continues.",
		func(ctx context.Context, by campaigns.Person, in *skipInput) (campaigns.View, error) {
			return s.Campaigns.Skip(ctx, by, in.ID, in.Body.Cluster, in.Body.Reason)
		})
	campaignVerb(s.server, api, "end", "End a campaign for good", "Nothing starts any more; running plans continue.",
		func(ctx context.Context, by campaigns.Person, in *reasonInput) (campaigns.View, error) {
			return s.Campaigns.End(ctx, by, in.ID, orZero(in.Body).Reason)
		})
}

// campaignVerb registers POST /campaigns/{id}/name.
func campaignVerb[I any](
	s *server, api huma.API, name, summary, description string,
	do func(context.Context, campaigns.Person, *I) (campaigns.View, error),
) {
	operation(s, api, ofSome(huma.Operation{
		OperationID: name + "-campaign", Method: http.MethodPost, Path: "/campaigns/{id}/" + name,
		Tags: []string{"Campaigns"}, Summary: summary, Description: description,
		Errors: []int{http.StatusNotFound, http.StatusConflict},
	}, ""), director.ActRun, kindCluster,
		func(ctx context.Context, a director.Actor, in *I) (*body[wire.Campaign], error) {
			v, err := do(ctx, personOf(a), in)
			if err != nil {
				return nil, err
			}
			return &body[wire.Campaign]{campaignOf(v, true)}, nil
		})
}

func campaignSpec(n wire.CampaignNew) director.CampaignSpec {
	s := director.CampaignSpec{
		Selector: director.CampaignSelector(n.Selector), Target: director.CampaignTarget(n.Target), Canary: n.Canary,
		Wave: n.Wave, Pause: n.Pause, Failures: n.Failures, AtOnce: n.AtOnce,
	}
	if string(s.Target.Patch) == "null" {
		s.Target.Patch = nil
	}
	if w := n.Window; w != nil {
		s.Window = &director.CampaignWindow{
			Cron: w.Cron, TimeZone: w.TimeZone, For: time.Duration(w.ForSeconds * float64(time.Second)),
		}
	}
	return s
}

func campaignOf(v campaigns.View, whole bool) wire.Campaign {
	s := v.Spec
	out := wire.Campaign{
		ID: v.ID, Name: v.Name, Selector: wire.CampaignSelector(s.Selector), Target: wire.CampaignTarget(s.Target),
		Canary: s.Canary, WaveSize: s.Wave, Pause: s.Pause, MayFail: s.Failures, AtOnce: s.AtOnce,
		CreatedAt: v.Created, CreatedBy: v.CreatedBy, Status: string(v.Status), Reason: v.Reason,
		PausedAt: wire.Optional(v.Paused), PausedBy: v.PausedBy, EndedAt: wire.Optional(v.Ended), EndedBy: v.EndedBy,
		Until: wire.Optional(v.Until), Wave: v.Wave, Failed: v.Failures, Allowed: v.Allowed, Counts: countsOf(v.Counts),
		Waves: make([]wire.CampaignWave, len(v.Waves)), Clusters: []wire.CampaignCluster{},
	}
	if w := s.Window; w != nil {
		out.Window = &wire.CampaignWindow{Cron: w.Cron, TimeZone: w.TimeZone, ForSeconds: w.For.Seconds()}
	}
	for i, w := range v.Waves {
		out.Waves[i] = wire.CampaignWave{
			Number: w.Number, Clusters: w.Clusters, Counts: countsOf(w.Counts), Hash: w.Hash, Current: w.Current,
			Over: w.Over,
		}
	}
	for _, m := range v.Clusters {
		if !whole {
			break
		}
		out.Clusters = append(out.Clusters, campaignCluster(m))
	}
	return out
}

func countsOf(counts map[campaigns.State]int) map[string]int {
	out := map[string]int{}
	for state, n := range counts {
		out[string(state)] = n
	}
	return out
}

func campaignCluster(m director.CampaignCluster) wire.CampaignCluster {
	c := wire.CampaignCluster{
		Name: m.Name, Wave: m.Wave, State: string(campaigns.StateOf(m)), Plan: m.Plan, PlanStatus: m.Status,
		Hash: m.Hash, Summary: m.Summary, Message: m.Message, Hint: m.Hint, Path: m.Path, Difference: m.Difference,
		Tolerated: m.Tolerated != "" && m.Tolerated == m.Plan, AgreedBy: m.AgreedBy,
		AgreedAt: wire.Optional(m.AgreedAt), SkippedBy: m.SkippedBy, Reason: m.Why,
		StartedAt: wire.Optional(m.Started), FinishedAt: wire.Optional(m.Finished),
	}
	if c.Message == "" {
		c.Message = m.PlanMessage
	}
	return c
}
