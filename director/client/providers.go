package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/wire"
)

// SetCredentials sets or changes the credentials of providers.
func (c *providerCalls) SetCredentials(
	ctx context.Context, name, user string, password director.Secret,
) (wire.Credentials, error) {
	var v wire.Credentials
	err := c.call(
		ctx,
		request{
			method: http.MethodPut, path: "/credentials/" + name,
			body: wire.CredentialsChange{User: user, Password: password.Reveal()},
		},
		&v,
	)
	return v, err
}

// Credentials lists the credentials of providers, without their passwords.
func (c *providerCalls) Credentials(ctx context.Context) ([]wire.Credentials, error) {
	var v wire.CredentialsList
	err := c.call(ctx, request{method: http.MethodGet, path: "/credentials"}, &v)
	return v.Items, err
}

// DeleteCredentials deletes credentials that no provider names.
func (c *providerCalls) DeleteCredentials(ctx context.Context, name string) error {
	return c.call(ctx, request{method: http.MethodDelete, path: "/credentials/" + name}, nil)
}

// TestIdentityProvider asks a directory, also for a person if user is not empty.
func (c *providerCalls) TestIdentityProvider(ctx context.Context, name, user string) (wire.ProviderTest, error) {
	var v wire.ProviderTest
	q := url.Values{}
	if user != "" {
		q.Set("user", user)
	}
	err := c.call(ctx, request{
		method: http.MethodPost, path: "/identity-providers/" + url.PathEscape(name) + "/test", query: q,
	}, &v)
	return v, err
}

// Discover tells what the provider has that documents may name.
func (c *providerCalls) Discover(ctx context.Context, name string) (wire.Discovery, error) {
	var v wire.Discovery
	err := c.call(ctx, request{
		method: http.MethodGet, path: "/providers/" + url.PathEscape(name) + "/discovery",
	}, &v)
	return v, err
}

// DiscoverDraft tells what a provider has that need not be stored. The text is its document. An empty user leaves the
// account to the document.
func (c *providerCalls) DiscoverDraft(
	ctx context.Context, text []byte, user string, password director.Secret,
) (wire.Discovery, error) {
	var v wire.Discovery
	err := c.call(ctx, request{
		method: http.MethodPost, path: "/providers/discover",
		body: wire.DiscoverRequest{Document: string(text), User: user, Password: password.Reveal()},
	}, &v)
	return v, err
}

// TestProvider connects to the provider and looks at what the director needs of it.
func (c *providerCalls) TestProvider(ctx context.Context, name string) (wire.ProviderTest, error) {
	var v wire.ProviderTest
	err := c.call(ctx, request{method: http.MethodPost, path: "/providers/" + name + "/test"}, &v)
	return v, err
}
