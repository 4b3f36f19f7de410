package client

import (
	"context"
	"net/http"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/wire"
)

// Login returns a new session. The client itself does not use its token.
func (c *accountCalls) Login(ctx context.Context, user string, password director.Secret) (wire.Session, error) {
	var s wire.Session
	err := c.call(
		ctx,
		request{method: http.MethodPost, path: "/login", body: wire.Login{User: user, Password: password.Reveal()}}, &s,
	)
	return s, err
}

// Logout ends the client's token.
func (c *accountCalls) Logout(ctx context.Context) error {
	return c.call(ctx, request{method: http.MethodPost, path: "/logout"}, nil)
}

// Me says whose token the client has.
func (c *accountCalls) Me(ctx context.Context) (wire.Me, error) {
	var m wire.Me
	err := c.call(ctx, request{method: http.MethodGet, path: "/me"}, &m)
	return m, err
}

// Settings returns what the director's configuration says that clients go by.
func (c *accountCalls) Settings(ctx context.Context) (wire.Settings, error) {
	var s wire.Settings
	err := c.call(ctx, request{method: http.MethodGet, path: "/settings"}, &s)
	return s, err
}

// ChangePassword replaces the user's password.
func (c *accountCalls) ChangePassword(ctx context.Context, current, next director.Secret) error {
	return c.call(ctx, request{
		method: http.MethodPost, path: "/password",
		body: wire.PasswordChange{Current: current.Reveal(), New: next.Reveal()},
	}, nil)
}

// Version returns what runs on the server. It needs no token.
func (c *accountCalls) Version(ctx context.Context) (wire.Version, error) {
	var v wire.Version
	err := c.call(ctx, request{method: http.MethodGet, path: "/version"}, &v)
	return v, err
}

// Ready returns nil when the director can work. It needs no token.
func (c *accountCalls) Ready(ctx context.Context) error {
	return c.call(ctx, request{method: http.MethodGet, path: "/readyz"}, nil)
}
