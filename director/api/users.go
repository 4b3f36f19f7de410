package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/identity"
	"github.com/director-kaas/kaas/director/wire"
)

const kindUser = "User"

type userInput struct {
	Name string `path:"name" maxLength:"64" doc:"Name of the user."`
}

type listUsersInput struct {
	ListInput
	Name  string `query:"name" maxLength:"64" doc:"Only users whose names begin so."`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"200" doc:"At most so many."`
}

type sessionInput struct {
	ID string `path:"id" maxLength:"64" doc:"Id of the session."`
}

func (s accountRoutes) users(api huma.API) {
	tags := []string{"Users"}
	operation(s.server, api, listing[wire.Users](api, huma.Operation{
		OperationID: "list-users", Path: "/users", Tags: tags,
		Summary: "List the users", Description: "By name, by created_at or by login_at.",
	}), director.ActRead, kindUser,
		func(ctx context.Context, _ director.Actor, in *listUsersInput) (*anyOf, error) {
			p, err := in.page(in.Limit, "name", in.Name)
			if err != nil {
				return nil, err
			}
			if err := oneOf(p, "name", "created_at", "login_at"); err != nil {
				return nil, err
			}
			users, place, err := s.Users.List(ctx, in.Name, p)
			if err != nil {
				return nil, err
			}
			items := make([]wire.User, len(users))
			for i, u := range users {
				items[i] = wire.UserOf(u)
			}
			return listAnswer(api, items, in.Fields, next(p, place, in.Name))
		})
	operation(s.server, api, huma.Operation{
		OperationID: "create-user", Method: http.MethodPost, Path: "/users", Tags: tags,
		Summary: "Create a user",
		Description: "The answer has a one-time password, which is shown this once and must be changed at the first " +
			"login.",
		Errors: []int{http.StatusConflict}, DefaultStatus: http.StatusCreated,
	}, director.ActUsers, kindUser, s.createUser)
	operation(s.server, api, huma.Operation{
		OperationID: "get-user", Method: http.MethodGet, Path: "/users/{name}", Tags: tags, Summary: "Get a user",
		Errors: []int{http.StatusNotFound},
	}, director.ActRead, kindUser,
		func(ctx context.Context, _ director.Actor, in *userInput) (*body[wire.User], error) {
			return userBody(s.Users.Get(ctx, in.Name))
		})
	operation(s.server, api, huma.Operation{
		OperationID: "delete-user", Method: http.MethodDelete, Path: "/users/{name}", Tags: tags,
		Summary: "Delete a user with all sessions", Description: "The last enabled admin cannot be deleted.",
		Errors: []int{http.StatusNotFound, http.StatusConflict}, DefaultStatus: http.StatusNoContent,
	}, director.ActUsers, kindUser,
		func(ctx context.Context, a director.Actor, in *userInput) (*empty, error) {
			return nil, s.Users.Delete(ctx, a.User, in.Name)
		})
	s.userVerbs(api, tags)
	s.userSessions(api, tags)
}

func (s accountRoutes) createUser(
	ctx context.Context, a director.Actor, in *struct{ Body wire.NewUser },
) (*created[wire.OneTimePassword], error) {
	var u director.User
	var once identity.OneTime
	var err error
	name, role := in.Body.Name, director.UserRole(in.Body.Role)
	if in.Body.Service {
		u, err = s.Users.CreateService(ctx, a.User, name, role)
	} else {
		u, once, err = s.Users.Create(ctx, a.User, name, role)
	}
	if err != nil {
		return nil, err
	}
	return &created[wire.OneTimePassword]{Location: prefixed("/users/" + u.Name), Body: oneTimeOf(u, once)}, nil
}

func oneTimeOf(u director.User, o identity.OneTime) wire.OneTimePassword {
	return wire.OneTimePassword{
		User: wire.UserOf(u), Password: o.Password.Reveal(), ExpiresAt: wire.Optional(o.Expires),
	}
}

func userBody(u director.User, err error) (*body[wire.User], error) {
	if err != nil {
		return nil, err
	}
	return &body[wire.User]{wire.UserOf(u)}, nil
}

// userVerbs registers what changes a user.
func (s accountRoutes) userVerbs(api huma.API, tags []string) {
	verb := func(name, summary, description string) huma.Operation {
		return huma.Operation{
			OperationID: name + "-user", Method: http.MethodPost, Path: "/users/{name}/" + name, Tags: tags,
			Summary: summary, Description: description, Errors: []int{http.StatusNotFound, http.StatusConflict},
		}
	}
	operation(s.server, api, verb("disable", "Disable a user",
		"All sessions and API tokens of the user end at once. The last enabled admin cannot be disabled."),
		director.ActUsers, kindUser,
		func(ctx context.Context, a director.Actor, in *userInput) (*body[wire.User], error) {
			return userBody(s.Users.Disable(ctx, a.User, in.Name))
		})
	operation(s.server, api, verb("enable", "Enable a user", "Sessions from before do not come back."),
		director.ActUsers, kindUser,
		func(ctx context.Context, a director.Actor, in *userInput) (*body[wire.User], error) {
			return userBody(s.Users.Enable(ctx, a.User, in.Name))
		})
	operation(s.server, api, verb("role", "Give a user another role",
		"It counts from the user's next request. The last enabled admin keeps the role."), director.ActUsers, kindUser,
		func(ctx context.Context, a director.Actor, in *struct {
			Name string `path:"name" maxLength:"64" doc:"Name of the user."`
			Body wire.RoleChange
		},
		) (*body[wire.User], error) {
			return userBody(s.Users.SetRole(ctx, a.User, in.Name, director.UserRole(in.Body.Role)))
		})
	reset := verb("reset-password", "Give a user a new one-time password",
		"All sessions of the user end. The password is shown this once and must be changed at the next login. "+
			"The own password is refused.")
	reset.OperationID = "reset-user-password"
	operation(s.server, api, reset, director.ActUsers, kindUser,
		func(ctx context.Context, a director.Actor, in *userInput) (*body[wire.OneTimePassword], error) {
			u, once, err := s.Users.Reset(ctx, a.User, in.Name)
			if err != nil {
				return nil, err
			}
			return &body[wire.OneTimePassword]{oneTimeOf(u, once)}, nil
		})
}

// userSessions registers what lists and ends sessions: the own ones, and those of others.
func (s accountRoutes) userSessions(api huma.API, tags []string) {
	list := func(ctx context.Context, a director.Actor, user string) (*body[wire.LoginSessions], error) {
		tokens, err := s.Users.Sessions(ctx, user)
		if err != nil {
			return nil, err
		}
		return &body[wire.LoginSessions]{wire.LoginSessionsOf(tokens, a.TokenHash)}, nil
	}
	end := huma.Operation{
		Method: http.MethodDelete, DefaultStatus: http.StatusNoContent, Errors: []int{http.StatusNotFound},
	}
	operation(s.server, api, huma.Operation{
		OperationID: "list-own-sessions", Method: http.MethodGet, Path: "/sessions", Tags: []string{"Session"},
		Summary: "List the own sessions",
	}, director.ActAccount, "",
		func(ctx context.Context, a director.Actor, _ *empty) (*body[wire.LoginSessions], error) {
			return list(ctx, a, a.User)
		})
	own := end
	own.OperationID, own.Path, own.Tags = "end-own-session", "/sessions/{id}", []string{"Session"}
	own.Summary = "End one of the own sessions"
	operation(s.server, api, own, director.ActAccount, "",
		func(ctx context.Context, a director.Actor, in *sessionInput) (*empty, error) {
			return nil, s.Users.Revoke(ctx, a.User, a.User, in.ID)
		})
	operation(s.server, api, huma.Operation{
		OperationID: "list-user-sessions", Method: http.MethodGet, Path: "/users/{name}/sessions", Tags: tags,
		Summary: "List the sessions of a user", Errors: []int{http.StatusNotFound},
	}, director.ActRead, kindUser,
		func(ctx context.Context, a director.Actor, in *userInput) (*body[wire.LoginSessions], error) {
			return list(ctx, a, in.Name)
		})
	other := end
	other.OperationID, other.Path, other.Tags = "end-user-session", "/users/{name}/sessions/{id}", tags
	other.Summary = "End a session of a user"
	operation(s.server, api, other, director.ActUsers, kindUser,
		func(ctx context.Context, a director.Actor, in *struct {
			Name string `path:"name" maxLength:"64" doc:"Name of the user."`
			ID   string `path:"id" maxLength:"64" doc:"Id of the session."`
		},
		) (*empty, error) {
			return nil, s.Users.Revoke(ctx, a.User, in.Name, in.ID)
		})
}
