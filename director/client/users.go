package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/director-kaas/kaas/director/wire"
)

// userCalls manage users and sessions.
type userCalls struct{ *connection }

// Users lists users whose names begin with the prefix, all parts of the list.
func (c *userCalls) Users(ctx context.Context, prefix string) ([]wire.User, error) {
	const part = 1000
	var all []wire.User
	q := url.Values{"limit": {strconv.Itoa(part)}}
	if prefix != "" {
		q.Set("name", prefix)
	}
	for {
		var l wire.Users
		if err := c.call(ctx, request{method: http.MethodGet, path: "/users", query: q}, &l); err != nil {
			return nil, err
		}
		all = append(all, l.Items...)
		if l.Continue == "" {
			return all, nil
		}
		q.Set("continue", l.Continue)
	}
}

func userPath(name string, more string) string { return "/users/" + url.PathEscape(name) + more }

// User returns one user.
func (c *userCalls) User(ctx context.Context, name string) (wire.User, error) {
	var u wire.User
	err := c.call(ctx, request{method: http.MethodGet, path: userPath(name, "")}, &u)
	return u, err
}

// CreateUser makes a user with a one-time password, or a service account.
func (c *userCalls) CreateUser(ctx context.Context, u wire.NewUser) (wire.OneTimePassword, error) {
	var o wire.OneTimePassword
	err := c.call(ctx, request{method: http.MethodPost, path: "/users", body: u}, &o)
	return o, err
}

func tokensPath(user string) string {
	if user == "" {
		return "/tokens"
	}
	return userPath(user, "/tokens")
}

// APITokens lists the API tokens of a user, or the own ones for "".
func (c *userCalls) APITokens(ctx context.Context, user string) ([]wire.APIToken, error) {
	var l wire.APITokens
	err := c.call(ctx, request{method: http.MethodGet, path: tokensPath(user)}, &l)
	return l.Items, err
}

// CreateAPIToken makes an API token for a service account, or an own one for "".
func (c *userCalls) CreateAPIToken(ctx context.Context, user string, n wire.NewToken) (wire.CreatedToken, error) {
	var t wire.CreatedToken
	err := c.call(ctx, request{method: http.MethodPost, path: tokensPath(user), body: n}, &t)
	return t, err
}

// RevokeAPIToken ends an API token of a user, or an own one for "".
func (c *userCalls) RevokeAPIToken(ctx context.Context, user, id string) error {
	return c.call(ctx, request{
		method: http.MethodDelete, path: tokensPath(user) + "/" + url.PathEscape(id),
	}, nil)
}

// ResetUser gives a user a new one-time password.
func (c *userCalls) ResetUser(ctx context.Context, name string) (wire.OneTimePassword, error) {
	var o wire.OneTimePassword
	err := c.call(ctx, request{method: http.MethodPost, path: userPath(name, "/reset-password")}, &o)
	return o, err
}

// DisableUser ends all sessions of the user and refuses new ones.
func (c *userCalls) DisableUser(ctx context.Context, name string) (wire.User, error) {
	return c.verb(ctx, name, "/disable", nil)
}

// EnableUser lets the user log in again.
func (c *userCalls) EnableUser(ctx context.Context, name string) (wire.User, error) {
	return c.verb(ctx, name, "/enable", nil)
}

// SetUserRole gives the user another role.
func (c *userCalls) SetUserRole(ctx context.Context, name, role string) (wire.User, error) {
	return c.verb(ctx, name, "/role", wire.RoleChange{Role: role})
}

func (c *userCalls) verb(ctx context.Context, name, verb string, body any) (wire.User, error) {
	var u wire.User
	err := c.call(ctx, request{method: http.MethodPost, path: userPath(name, verb), body: body}, &u)
	return u, err
}

// DeleteUser removes a user with all sessions.
func (c *userCalls) DeleteUser(ctx context.Context, name string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: userPath(name, "")}, nil)
}

// Sessions lists the sessions of a user, or the own ones for "".
func (c *userCalls) Sessions(ctx context.Context, user string) ([]wire.LoginSession, error) {
	path := "/sessions"
	if user != "" {
		path = userPath(user, path)
	}
	var l wire.LoginSessions
	err := c.call(ctx, request{method: http.MethodGet, path: path}, &l)
	return l.Items, err
}

// EndSession ends a session of a user, or an own one for "".
func (c *userCalls) EndSession(ctx context.Context, user, id string) error {
	path := "/sessions/" + url.PathEscape(id)
	if user != "" {
		path = userPath(user, path)
	}
	return c.call(ctx, request{method: http.MethodDelete, path: path}, nil)
}
