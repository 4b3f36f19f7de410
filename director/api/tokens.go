package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/identity"
	"github.com/director-kaas/kaas/director/wire"
)

type tokenInput struct {
	ID string `path:"id" maxLength:"64" doc:"Id of the token."`
}

type userTokenInput struct {
	Name string `path:"name" maxLength:"64" doc:"Name of the user."`
	ID   string `path:"id" maxLength:"64" doc:"Id of the token."`
}

// tokens registers what creates, lists and revokes API tokens: the own ones, and those of service accounts.
func (s accountRoutes) tokens(api huma.API) {
	tags := []string{"Tokens"}
	operation(s.server, api, huma.Operation{
		OperationID: "list-own-tokens", Method: http.MethodGet, Path: "/tokens", Tags: tags,
		Summary: "List your own API tokens",
	}, director.ActAccount, "",
		func(ctx context.Context, a director.Actor, _ *empty) (*body[wire.APITokens], error) {
			return s.listTokens(ctx, a.User)
		})
	operation(s.server, api, huma.Operation{
		OperationID: "create-own-token", Method: http.MethodPost, Path: "/tokens", Tags: tags,
		Summary:       "Create an API token of your own",
		Description:   "It needs the password again, and the token is shown this once.",
		DefaultStatus: http.StatusCreated, Errors: []int{http.StatusConflict, http.StatusTooManyRequests},
	}, director.ActAccount, "", s.createOwnToken)
	operation(s.server, api, huma.Operation{
		OperationID: "revoke-own-token", Method: http.MethodDelete, Path: "/tokens/{id}", Tags: tags,
		Summary: "Revoke one of your own API tokens", DefaultStatus: http.StatusNoContent,
		Errors: []int{http.StatusNotFound},
	}, director.ActAccount, "",
		func(ctx context.Context, a director.Actor, in *tokenInput) (*empty, error) {
			return nil, s.Users.RevokeToken(ctx, a.User, a.User, in.ID)
		})
	s.userTokens(api, tags)
}

// userTokens registers what is done to the API tokens of others.
func (s accountRoutes) userTokens(api huma.API, tags []string) {
	operation(s.server, api, huma.Operation{
		OperationID: "list-user-tokens", Method: http.MethodGet, Path: "/users/{name}/tokens", Tags: tags,
		Summary: "List the API tokens of a user", Errors: []int{http.StatusNotFound},
	}, director.ActRead, kindUser,
		func(ctx context.Context, _ director.Actor, in *userInput) (*body[wire.APITokens], error) {
			return s.listTokens(ctx, in.Name)
		})
	operation(s.server, api, huma.Operation{
		OperationID: "create-user-token", Method: http.MethodPost, Path: "/users/{name}/tokens", Tags: tags,
		Summary:       "Create an API token for a service account",
		Description:   "The token is shown this once. People create their own tokens.",
		DefaultStatus: http.StatusCreated, Errors: []int{http.StatusNotFound, http.StatusConflict},
	}, director.ActUsers, kindUser,
		func(ctx context.Context, a director.Actor, in *struct {
			Name string `path:"name" maxLength:"64" doc:"Name of the user."`
			Body wire.NewToken
		},
		) (*created[wire.CreatedToken], error) {
			return s.createToken(ctx, a, in.Name, in.Body)
		})
	operation(s.server, api, huma.Operation{
		OperationID: "revoke-user-token", Method: http.MethodDelete, Path: "/users/{name}/tokens/{id}", Tags: tags,
		Summary: "Revoke an API token of a user", DefaultStatus: http.StatusNoContent,
		Errors: []int{http.StatusNotFound},
	}, director.ActUsers, kindUser,
		func(ctx context.Context, a director.Actor, in *userTokenInput) (*empty, error) {
			return nil, s.Users.RevokeToken(ctx, a.User, in.Name, in.ID)
		})
}

func (s accountRoutes) listTokens(ctx context.Context, user string) (*body[wire.APITokens], error) {
	tokens, err := s.Users.Tokens(ctx, user)
	if err != nil {
		return nil, err
	}
	out := wire.APITokens{Items: make([]wire.APIToken, len(tokens))}
	for i, t := range tokens {
		out.Items[i] = wire.APITokenOf(t)
	}
	return &body[wire.APITokens]{out}, nil
}

func (s accountRoutes) createOwnToken(
	ctx context.Context, a director.Actor, in *struct{ Body wire.NewToken },
) (*created[wire.CreatedToken], error) {
	if err := s.confirm(ctx, a, director.Secret(in.Body.Password)); err != nil {
		return nil, err
	}
	return s.createToken(ctx, a, a.User, in.Body)
}

func (s accountRoutes) createToken(
	ctx context.Context, a director.Actor, user string, n wire.NewToken,
) (*created[wire.CreatedToken], error) {
	secret, t, err := s.Users.CreateToken(ctx, a, user, identity.NewToken{
		Name: n.Name, Scope: director.TokenScope(n.Scope), Life: time.Duration(n.Days) * 24 * time.Hour,
		Address: note(ctx).address,
	})
	if err != nil {
		return nil, err
	}
	return &created[wire.CreatedToken]{
		Location: prefixed("/users/" + user + "/tokens"),
		Body:     wire.CreatedToken{Token: secret.Reveal(), Record: wire.APITokenOf(t)},
	}, nil
}

// confirm asks for the actor's password again, within the limit of logins: a stolen token must not be a way to try
// passwords.
func (s accountRoutes) confirm(ctx context.Context, a director.Actor, password director.Secret) error {
	if err := s.limit.takeOwn(a.User); err != nil {
		return err
	}
	if err := s.Auth.Confirm(ctx, a, password); err != nil {
		return err
	}
	s.limit.succeededOwn(a.User)
	return nil
}
