package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/wire"
)

type empty struct{}

type body[T any] struct{ Body T }

func (s *server) sessions(api huma.API) {
	tags := []string{"Session"}
	operation(s, api, huma.Operation{
		OperationID: "login", Method: http.MethodPost, Path: "/login", Tags: tags,
		Summary: "Get a token for a password",
		Errors:  []int{http.StatusUnauthorized, http.StatusTooManyRequests},
	}, "", "", s.login)
	operation(s, api, huma.Operation{
		OperationID: "logout", Method: http.MethodPost, Path: "/logout", Tags: tags, Summary: "End the token",
		DefaultStatus: http.StatusNoContent,
	}, director.ActSelf, "", func(ctx context.Context, a director.Actor, _ *empty) (*empty, error) {
		err := s.Auth.Logout(ctx, a)
		if err == nil {
			err = s.audited(ctx, a.User, "logout", "User/"+a.User, nil)
		}
		return nil, err
	})
	operation(s, api, huma.Operation{
		OperationID: "me", Method: http.MethodGet, Path: "/me", Tags: tags, Summary: "Say who asks",
	}, director.ActSelf, "", func(_ context.Context, a director.Actor, _ *empty) (*body[wire.Me], error) {
		return &body[wire.Me]{wire.Me{
			User: a.User, Role: string(a.Role), MustChangePassword: a.MustChange, ExpiresAt: a.Expires,
		}}, nil
	})
	operation(s, api, huma.Operation{
		OperationID: "change-password", Method: http.MethodPost, Path: "/password", Tags: tags,
		Summary:     "Change the own password",
		Description: "All other tokens of the user end.", DefaultStatus: http.StatusNoContent,
	}, director.ActSelf, "", s.changePassword)

	tags = []string{"Service"}
	operation(s, api, huma.Operation{
		OperationID: "healthz", Method: http.MethodGet, Path: "/healthz", Tags: tags,
		Summary:       "Say that the process answers",
		DefaultStatus: http.StatusNoContent,
	}, "", "", func(context.Context, director.Actor, *empty) (*empty, error) { return nil, nil })
	operation(s, api, huma.Operation{
		OperationID: "readyz", Method: http.MethodGet, Path: "/readyz", Tags: tags,
		Summary: "Say that the director can work",
		Errors:  []int{http.StatusServiceUnavailable},
	}, "", "", s.readyz)
	operation(s, api, huma.Operation{
		OperationID: "version", Method: http.MethodGet, Path: "/version", Tags: tags, Summary: "Say what runs",
	}, "", "", func(context.Context, director.Actor, *empty) (*body[wire.Version], error) {
		return &body[wire.Version]{wire.Version{Version: s.Version, Commit: s.Commit, Go: goVersion()}}, nil
	})
}

func (s *server) login(
	ctx context.Context, _ director.Actor, in *struct{ Body wire.Login },
) (*body[wire.Session], error) {
	err := s.limit.take(in.Body.User, note(ctx).address)
	var token director.Secret
	var actor director.Actor
	if err == nil {
		token, actor, err = s.Auth.Login(ctx, in.Body.User, director.Secret(in.Body.Password), note(ctx).address)
	}
	// An attempt that cannot be recorded gets no token.
	if aerr := s.audited(ctx, actor.User, "login", "User/"+in.Body.User, err); err == nil {
		err = aerr
	}
	if err != nil {
		return nil, err
	}
	s.limit.succeeded(in.Body.User, note(ctx).address)
	note(ctx).user = actor.User
	return &body[wire.Session]{wire.Session{
		Token: token.Reveal(), ExpiresAt: actor.Expires, User: actor.User, Role: string(actor.Role),
		MustChangePassword: actor.MustChange,
	}}, nil
}

func (s *server) changePassword(
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

func (s *server) readyz(ctx context.Context, _ director.Actor, _ *empty) (*body[wire.Readiness], error) {
	out, err := s.readiness(ctx)
	if err != nil {
		return nil, err
	}
	return &body[wire.Readiness]{out}, nil
}
