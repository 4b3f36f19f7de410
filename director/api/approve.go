package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/audit"
	"github.com/director-kaas/kaas/director/issuer"
	"github.com/director-kaas/kaas/director/wire"
)

type askingInput struct {
	ID string `path:"id" maxLength:"64" doc:"Id of the program that asks."`
}

// approvals registers what the page of the console does where a person lets a program in.
func (s accountRoutes) approvals(api huma.API) {
	tags := []string{"Session"}
	const only = " It works in a browser's session alone."
	operation(s.server, api, huma.Operation{
		OperationID: "find-login", Method: http.MethodPost, Path: "/logins/find", Tags: tags,
		Summary: "Find the program that shows a code", Description: "The program waits to be let in." + only,
		Errors: []int{http.StatusNotFound, http.StatusConflict, http.StatusTooManyRequests},
	}, director.ActAccount, "", s.findLogin)
	operation(s.server, api, huma.Operation{
		OperationID: "get-login", Method: http.MethodGet, Path: "/logins/{id}", Tags: tags,
		Summary: "Get the program that has sent the browser", Description: "The program waits to be let in." + only,
		Errors: []int{http.StatusNotFound, http.StatusConflict},
	}, director.ActAccount, "",
		func(ctx context.Context, a director.Actor, in *askingInput) (*body[wire.Asking], error) {
			if err := mayLetIn(a); err != nil {
				return nil, err
			}
			p, err := s.Issuer.Asking(ctx, in.ID)
			return &body[wire.Asking]{askingOf(p)}, err
		})
	answer := func(id, verb, summary, about string, allow bool) {
		operation(s.server, api, huma.Operation{
			OperationID: id, Method: http.MethodPost, Path: "/logins/{id}/" + verb, Tags: tags, Summary: summary,
			Description: about + only, Errors: []int{http.StatusNotFound, http.StatusConflict},
		}, director.ActAccount, "",
			func(ctx context.Context, a director.Actor, in *askingInput) (*body[wire.Answered], error) {
				return s.answerLogin(ctx, a, in.ID, allow)
			})
	}
	answer("allow-login", "allow", "Let a program in as yourself",
		"The program gets a session of its own, which is listed and can be ended.", true)
	answer("refuse-login", "refuse", "Refuse a program", "The program is told.", false)
}

// mayLetIn refuses what is no person at a browser: a stolen token must not make others.
func mayLetIn(a director.Actor) error {
	const op = "api.approve"
	switch {
	case a.Kind != director.TokenBrowser:
		return director.Errorf(director.KindConflict, op, "only a browser's session lets programs in").
			WithHint("open the page in a browser, and log in there")
	case a.MustChange:
		return director.Errorf(director.KindConflict, op, "the one-time password must be changed first")
	}
	return nil
}

func (s accountRoutes) findLogin(
	ctx context.Context, a director.Actor, in *struct{ Body wire.UserCode },
) (*body[wire.Asking], error) {
	if err := mayLetIn(a); err != nil {
		return nil, err
	}
	if err := s.limit.takeOwn(a.User); err != nil { // codes are short
		return nil, err
	}
	p, err := s.Issuer.AskingWith(ctx, in.Body.Code)
	if err != nil {
		return nil, err
	}
	s.limit.succeededOwn(a.User)
	return &body[wire.Asking]{askingOf(p)}, nil
}

func (s accountRoutes) answerLogin(
	ctx context.Context, a director.Actor, id string, allow bool,
) (*body[wire.Answered], error) {
	if err := mayLetIn(a); err != nil {
		return nil, err
	}
	p, back, err := s.Issuer.Answer(ctx, a, id, allow)
	if err != nil {
		return nil, err
	}
	err = s.recorded(ctx, audit.Attempt{
		Actor: a.User, Action: note(ctx).action, Object: "User/" + a.User,
		Detail: p.Kind + ": directorctl on " + p.Host + ", from " + p.Address,
	})
	return &body[wire.Answered]{wire.Answered{Continue: back}}, err
}

func askingOf(p issuer.Asking) wire.Asking {
	return wire.Asking{ID: p.ID, Kind: p.Kind, Host: p.Host, Address: p.Address, ExpiresAt: p.Expires}
}
