package client

import (
	"context"
	"net/http"
	"net/url"

	"github.com/director-kaas/kaas/director/wire"
)

func authorityPath(name, what string) string {
	return "/certificate-authorities/" + url.PathEscape(name) + "/" + what
}

// Authorities lists all CertificateAuthorities.
func (c *providerCalls) Authorities(ctx context.Context) ([]wire.Authority, error) {
	var v wire.Authorities
	err := c.call(ctx, request{method: http.MethodGet, path: "/certificate-authorities"}, &v)
	return v.Items, err
}

// TestAuthority looks at everything that the director needs of the authority, and has one signed on trial.
func (c *providerCalls) TestAuthority(ctx context.Context, name string) (wire.ProviderTest, error) {
	var v wire.ProviderTest
	err := c.call(ctx, request{method: http.MethodPost, path: authorityPath(name, "test")}, &v)
	return v, err
}

// AuthorityRequest returns the request for the certificate of the authority; with fresh for another key.
func (c *providerCalls) AuthorityRequest(ctx context.Context, name string, fresh bool) (string, error) {
	var v wire.AuthorityRequest
	err := c.call(ctx, request{
		method: http.MethodPost, path: authorityPath(name, "request"), body: wire.AuthorityRequestQuery{New: fresh},
	}, &v)
	return v.Request, err
}

// ImportAuthority brings the certificate of the authority.
func (c *providerCalls) ImportAuthority(ctx context.Context, name, certificate string) (wire.Authority, error) {
	var v wire.Authority
	err := c.call(ctx, request{
		method: http.MethodPost, path: authorityPath(name, "certificate"),
		body: wire.AuthorityImport{Certificate: certificate},
	}, &v)
	return v, err
}

// DirectorAuthority returns the authority of the director itself; with look, nodes are asked what they trust.
func (c *providerCalls) DirectorAuthority(ctx context.Context, look bool) (wire.DirectorAuthority, error) {
	var v wire.DirectorAuthority
	ask := request{method: http.MethodGet, path: "/director-authority"}
	if look {
		ask = request{method: http.MethodPost, path: "/director-authority/verify"}
	}
	err := c.call(ctx, ask, &v)
	return v, err
}

// ChangeDirectorAuthority brings the change of the director's authority to a stage.
func (c *providerCalls) ChangeDirectorAuthority(
	ctx context.Context, change wire.DirectorAuthorityChange,
) (wire.DirectorAuthority, error) {
	var v wire.DirectorAuthority
	err := c.call(ctx, request{method: http.MethodPost, path: "/director-authority", body: change}, &v)
	return v, err
}
