package api

import (
	"context"
	"net/http"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/wire"
)

type empty struct{}

type body[T any] struct{ Body T }

// accountRoutes are the operations on logins, users and tokens.
type accountRoutes struct{ *server }

func (s *server) accounts() accountRoutes { return accountRoutes{s} }

func (s accountRoutes) operations(api huma.API) {
	s.sessions(api)
	s.providerLogins(api)
	s.clusterTokens(api)
	s.approvals(api)
	s.users(api)
	s.tokens(api)
}

func (s accountRoutes) sessions(api huma.API) {
	tags := []string{"Session"}
	operation(s.server, api, huma.Operation{
		OperationID: "login", Method: http.MethodPost, Path: "/login", Tags: tags,
		Summary: "Get a token for a password",
		Errors:  []int{http.StatusUnauthorized, http.StatusTooManyRequests},
	}, "", "", s.login)
	operation(s.server, api, huma.Operation{
		OperationID: "login-browser", Method: http.MethodPost, Path: "/session", Tags: tags,
		Summary: "Log a browser in",
		Description: "The token is in a cookie that no script can read, and not in the answer. It ends when it " +
			"is not used for a while. Requests that other sites make with the cookie are refused.",
		Errors: []int{http.StatusUnauthorized, http.StatusForbidden, http.StatusTooManyRequests},
	}, "", "", s.loginBrowser)
	operation(s.server, api, huma.Operation{
		OperationID: "logout", Method: http.MethodPost, Path: "/logout", Tags: tags, Summary: "End the token",
		DefaultStatus: http.StatusNoContent,
	}, director.ActSelf, "", func(ctx context.Context, a director.Actor, _ *empty) (*cookieAnswer, error) {
		err := s.Auth.Logout(ctx, a)
		if err == nil {
			err = s.audited(ctx, a.User, "logout", "User/"+a.User, nil)
		}
		if err != nil || a.Kind != director.TokenBrowser {
			return nil, err
		}
		return &cookieAnswer{SetCookie: sessionCookie("", time.Time{})}, nil
	})
	operation(s.server, api, huma.Operation{
		OperationID: "me", Method: http.MethodGet, Path: "/me", Tags: tags, Summary: "Say who asks",
	}, director.ActSelf, "", func(_ context.Context, a director.Actor, _ *empty) (*body[wire.Me], error) {
		return &body[wire.Me]{meOf(a)}, nil
	})
	s.settings(api, tags)
	operation(s.server, api, huma.Operation{
		OperationID: "change-password", Method: http.MethodPost, Path: "/password", Tags: tags,
		Summary:     "Change the own password",
		Description: "All other sessions of the user end. API tokens stay.", DefaultStatus: http.StatusNoContent,
	}, director.ActAccount, "", s.changePassword)

	tags = []string{"Service"}
	operation(s.server, api, huma.Operation{
		OperationID: "healthz", Method: http.MethodGet, Path: "/healthz", Tags: tags,
		Summary:       "Say that the process answers",
		DefaultStatus: http.StatusNoContent,
	}, "", "", func(context.Context, director.Actor, *empty) (*empty, error) { return nil, nil })
	operation(s.server, api, huma.Operation{
		OperationID: "readyz", Method: http.MethodGet, Path: "/readyz", Tags: tags,
		Summary: "Say that the director can work",
		Errors:  []int{http.StatusServiceUnavailable},
	}, "", "", s.readyz)
	operation(s.server, api, huma.Operation{
		OperationID: "version", Method: http.MethodGet, Path: "/version", Tags: tags, Summary: "Say what runs",
	}, "", "", func(context.Context, director.Actor, *empty) (*body[wire.Version], error) {
		return &body[wire.Version]{wire.Version{Version: s.Version, Commit: s.Commit, Go: goVersion()}}, nil
	})
}

func (s accountRoutes) login(
	ctx context.Context, _ director.Actor, in *struct{ Body wire.Login },
) (*body[wire.Session], error) {
	token, actor, err := s.enter(ctx, in.Body, false)
	if err != nil {
		return nil, err
	}
	return &body[wire.Session]{wire.Session{
		Token: token.Reveal(), ExpiresAt: actor.Expires, User: actor.User, Role: string(actor.Role),
		MustChangePassword: actor.MustChange,
	}}, nil
}

// enter logs a user in, within the limit, and records it.
func (s accountRoutes) enter(ctx context.Context, l wire.Login, browser bool) (director.Secret, director.Actor, error) {
	token, actor, err := s.logins.enter(ctx, auth.Login{
		User: l.User, Password: director.Secret(l.Password), Address: note(ctx).address, Browser: browser,
	}, s.audited)
	if err == nil {
		note(ctx).user = actor.User
	}
	return token, actor, err
}

func (s accountRoutes) changePassword(
	ctx context.Context, a director.Actor, in *struct{ Body wire.PasswordChange },
) (*empty, error) {
	// A stolen token must not be a way to try passwords without a limit.
	if err := s.limit.takeOwn(a.User); err != nil {
		return nil, err
	}
	err := s.Auth.ChangePassword(ctx, a, director.Secret(in.Body.Current), director.Secret(in.Body.New))
	if err == nil {
		s.limit.succeededOwn(a.User)
	}
	return nil, err
}

func (s accountRoutes) readyz(ctx context.Context, _ director.Actor, _ *empty) (*body[wire.Readiness], error) {
	out, err := s.readiness(ctx)
	if err != nil {
		return nil, err
	}
	return &body[wire.Readiness]{out}, nil
}

func (s accountRoutes) settings(api huma.API, tags []string) {
	operation(s.server, api, huma.Operation{
		OperationID: "get-settings", Method: http.MethodGet, Path: "/settings", Tags: tags,
		Summary: "Get what the director's configuration says that clients go by",
	}, director.ActSelf, "", func(context.Context, director.Actor, *empty) (*body[wire.Settings], error) {
		return &body[wire.Settings]{s.Settings}, nil
	})
}

// meOf says who the actor is.
func meOf(a director.Actor) wire.Me {
	kinds := []string{kindPlan, kindUser}
	for _, k := range model.Kinds() {
		kinds = append(kinds, string(k))
	}
	can := []string{}
	for _, action := range director.Actions() {
		if slices.ContainsFunc(kinds, func(k string) bool { return auth.CanSome(a, action, k) }) {
			can = append(can, string(action))
		}
	}
	return wire.MeOf(a, can)
}
