package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/hooks"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/webhookkeys"
	"github.com/director-kaas/kaas/director/wire"
)

// Hooks is what the API offers of hooks and their deliveries. All methods return *director.Error and are safe for
// concurrent use.
type Hooks interface {
	signer
	// List returns the hooks by name.
	List(ctx context.Context) ([]hooks.View, error)
	// Test sends a test event once, and returns what came of it.
	Test(ctx context.Context, actor, name string) (director.HookDelivery, error)
	// Deliveries lists deliveries, the newest first.
	Deliveries(ctx context.Context, f director.HookQuery) ([]director.HookDelivery, error)
	// Delivery returns one, or not_found.
	Delivery(ctx context.Context, id string) (director.HookDelivery, error)
	// Replay lets one be sent again under its id.
	Replay(ctx context.Context, actor, id string) (director.HookDelivery, error)
	// Answer gives the final answer; the first one counts.
	Answer(
		ctx context.Context, actor, id string, decision director.HookDecision, reason string,
	) (director.HookDelivery, error)
}

const kindHook = string(model.KindHook)

type hookInput struct {
	Name string `path:"name" maxLength:"64" doc:"Name of the hook."`
}

type deliveryInput struct {
	Delivery string `path:"delivery" maxLength:"200" doc:"Id of the delivery."`
}

type deliveriesInput struct {
	Hook     string   `query:"hook" maxLength:"64" doc:"Only deliveries to this hook."`
	Plan     string   `query:"plan" maxLength:"64" doc:"Only those of this plan."`
	State    []string `query:"state" maxItems:"7" enum:"due,accepted,delivered,answered,expired,failed,withdrawn" doc:"Only those in one of these states, separated by commas."`
	Waiting  bool     `query:"waiting" doc:"Only those that a plan waits for."`
	Limit    int      `query:"limit" minimum:"1" maximum:"500" default:"100" doc:"How many at most."`
	Continue string   `query:"continue" maxLength:"200" doc:"Where the list continues; from the part before."`
}

func (s *planRoutes) hooks(api huma.API) {
	tags := []string{"Hooks"}
	operation(s.server, api, huma.Operation{
		OperationID: "list-hooks", Method: http.MethodGet, Path: "/hooks", Tags: tags,
		Summary: "List the hooks with whether their endpoints are gone",
	}, director.ActRead, kindHook,
		func(ctx context.Context, _ director.Actor, _ *empty) (*body[wire.Hooks], error) {
			list, err := s.Hooks.List(ctx)
			if err != nil {
				return nil, err
			}
			out := wire.Hooks{Items: make([]wire.Hook, len(list))}
			for i, h := range list {
				out.Items[i] = wire.Hook{
					Name: h.Metadata.Name, URL: h.Hook.URL, Mode: h.Hook.Mode, Phases: h.Hook.Phases, Gone: h.Gone,
				}
			}
			return &body[wire.Hooks]{out}, nil
		})
	operation(s.server, api, huma.Operation{
		OperationID: "test-hook", Method: http.MethodPost, Path: "/hooks/{name}/test", Tags: tags,
		Summary: "Send a test event to a hook, once",
		Description: "problem in the answer says why it was not received. A test that is received lets the hook be " +
			"called again after its endpoint had answered 410.",
		Errors: []int{http.StatusNotFound},
	}, director.ActPlan, kindHook,
		func(ctx context.Context, a director.Actor, in *hookInput) (*body[wire.HookDelivery], error) {
			return delivered(s.Hooks.Test(ctx, a.User, in.Name))
		})
	s.signingKeys(api, tags, kindHook, "hook", func() signer { return s.Hooks })
	operation(s.server, api, ofSome(huma.Operation{
		OperationID: "list-hook-deliveries", Method: http.MethodGet, Path: "/hook-deliveries", Tags: tags,
		Summary: "List what hooks were told and asked, the newest first; of the last 30 days",
	}, ""), director.ActRead, kindPlan, s.listDeliveries)
	s.hookVerbs(api, tags)
}

// signer has the keys that sign the requests to one kind of endpoints.
type signer interface {
	// Keys returns the keys that sign, the current one first; with what is shared if secrets.
	Keys(ctx context.Context, actor, name string, secrets bool) ([]webhookkeys.View, error)
	// RotateKey makes another key.
	RotateKey(ctx context.Context, actor, name string) ([]webhookkeys.View, error)
}

// signingKeys registers the keys of hooks or notifications; noun is one of them.
func (s *planRoutes) signingKeys(api huma.API, tags []string, kind, noun string, keys func() signer) {
	path := "/" + noun + "s/{name}"
	failures := []int{http.StatusNotFound, http.StatusConflict}
	type input struct {
		Name string `path:"name" maxLength:"64" doc:"Name of the document."`
	}
	operation(s.server, api, huma.Operation{
		OperationID: "list-" + noun + "-keys", Method: http.MethodGet, Path: path + "/keys", Tags: tags,
		Summary: "Show the public keys that verify the requests of a " + noun, Errors: failures,
	}, director.ActRead, kind,
		func(ctx context.Context, a director.Actor, in *input) (*body[wire.HookKeys], error) {
			return keysOfHook(keys().Keys(ctx, a.User, in.Name, false))
		})
	operation(s.server, api, huma.Operation{
		OperationID: "rotate-" + noun + "-key", Method: http.MethodPost, Path: path + "/rotate-key", Tags: tags,
		Summary: "Make another key for a " + noun, Errors: failures,
		Description: "Requests have two signatures for a day: by the new key, and by the former one.",
	}, director.ActApply, kind,
		func(ctx context.Context, a director.Actor, in *input) (*body[wire.HookKeys], error) {
			return keysOfHook(keys().RotateKey(ctx, a.User, in.Name))
		})
	type secretInput struct {
		Name string `path:"name" maxLength:"64" doc:"Name of the document."`
		Body wire.HookPassword
	}
	operation(s.server, api, huma.Operation{
		OperationID: "reveal-" + noun + "-secret", Method: http.MethodPost, Path: path + "/secret", Tags: tags,
		Summary:     "Show the secret that a receiver verifies hmac with",
		Description: "It needs the password of who asks, also with a valid token, and is an audit event of its own.",
		Errors:      append(failures, http.StatusTooManyRequests),
	}, director.ActSecrets, kind,
		func(ctx context.Context, a director.Actor, in *secretInput) (*body[wire.HookKeys], error) {
			if err := s.accounts().confirm(ctx, a, director.Secret(in.Body.Password)); err != nil {
				return nil, err
			}
			return keysOfHook(keys().Keys(ctx, a.User, in.Name, true))
		})
}

func (s *planRoutes) hookVerbs(api huma.API, tags []string) {
	operation(s.server, api, ofSome(huma.Operation{
		OperationID: "replay-hook-delivery", Method: http.MethodPost, Path: "/hook-deliveries/{delivery}/replay",
		Tags: tags, Summary: "Send an event again under its id",
		Errors: []int{http.StatusNotFound, http.StatusConflict},
	}, ""), director.ActRun, kindPlan,
		func(ctx context.Context, a director.Actor, in *deliveryInput) (*body[wire.HookDelivery], error) {
			if err := s.mayMove(ctx, a, in.Delivery); err != nil {
				return nil, err
			}
			return delivered(s.Hooks.Replay(ctx, a.User, in.Delivery))
		})
	type answerInput struct {
		Delivery string `path:"delivery" maxLength:"200" doc:"Id of the delivery."`
		Body     wire.HookAnswer
	}
	operation(s.server, api, ofSome(huma.Operation{
		OperationID: "answer-hook-delivery", Method: http.MethodPost, Path: "/hook-deliveries/{delivery}/answer",
		Tags: tags, Summary: "Answer what a plan asks",
		Description: "For an endpoint that has answered 202, and for persons. The first answer counts: the same " +
			"again changes nothing, and another one is a conflict.",
		Errors: []int{http.StatusNotFound, http.StatusConflict},
	}, ""), director.ActRun, kindPlan,
		func(ctx context.Context, a director.Actor, in *answerInput) (*body[wire.HookDelivery], error) {
			if err := s.mayMove(ctx, a, in.Delivery); err != nil {
				return nil, err
			}
			return delivered(s.Hooks.Answer(
				ctx, a.User, in.Delivery, director.HookDecision(in.Body.Decision), in.Body.Reason,
			))
		})
}

// mayMove returns nil if the actor may move the plan of the delivery on. To who may not see the plan, there is no such
// delivery.
func (s *planRoutes) mayMove(ctx context.Context, a director.Actor, id string) error {
	d, err := s.Hooks.Delivery(ctx, id)
	if err == nil && d.Plan != "" {
		err = s.permit(ctx, a, asked{
			action: director.ActRun, object: director.Object{Kind: kindPlan, Name: d.Plan},
		})
	}
	if director.KindOf(err) == director.KindNotFound {
		return hidden(director.Object{Kind: "Delivery", Name: id})
	}
	return err
}

func (s *planRoutes) listDeliveries(
	ctx context.Context, a director.Actor, in *deliveriesInput,
) (*body[wire.HookDeliveries], error) {
	f := director.HookQuery{
		Hook: in.Hook, Plan: in.Plan, Waiting: in.Waiting, Visible: auth.VisibleTo(a, kindPlan), Before: in.Continue,
		Limit: in.Limit + 1,
	}
	for _, st := range in.State {
		f.States = append(f.States, director.HookState(st))
	}
	list, err := s.Hooks.Deliveries(ctx, f)
	if err != nil {
		return nil, err
	}
	out := wire.HookDeliveries{Items: []wire.HookDelivery{}}
	if len(list) > in.Limit {
		list = list[:in.Limit]
		out.Continue = list[len(list)-1].ID
	}
	for _, d := range list {
		out.Items = append(out.Items, wire.HookDeliveryOf(d))
	}
	return &body[wire.HookDeliveries]{out}, nil
}

func delivered(d director.HookDelivery, err error) (*body[wire.HookDelivery], error) {
	if err != nil {
		return nil, err
	}
	return &body[wire.HookDelivery]{wire.HookDeliveryOf(d)}, nil
}

func keysOfHook(list []webhookkeys.View, err error) (*body[wire.HookKeys], error) {
	if err != nil {
		return nil, err
	}
	out := wire.HookKeys{Items: make([]wire.HookKey, len(list))}
	for i, k := range list {
		out.Items[i] = wire.HookKey{
			ID: k.ID, Algorithm: k.Algorithm, Public: k.Public, Secret: k.Shared.Reveal(), CreatedAt: k.Created,
			EndsAt: wire.Optional(k.Ends),
		}
	}
	return &body[wire.HookKeys]{out}, nil
}
