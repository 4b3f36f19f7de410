package api

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"github.com/gin-gonic/gin"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/audit"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/issuer"
)

// approvePath is the page of the console where a person lets a program in.
const approvePath = "/approve"

// cliClient is directorctl, the only client of the issuer. It has no secret, because everyone has the program.
type cliClient struct{}

const cliName = "directorctl"

var _ op.Client = cliClient{}

func (cliClient) GetID() string                       { return cliName }
func (cliClient) RedirectURIs() []string              { return []string{"http://127.0.0.1/callback"} }
func (cliClient) PostLogoutRedirectURIs() []string    { return nil }
func (cliClient) ApplicationType() op.ApplicationType { return op.ApplicationTypeNative }
func (cliClient) AuthMethod() oidc.AuthMethod         { return oidc.AuthMethodNone }
func (cliClient) ResponseTypes() []oidc.ResponseType {
	return []oidc.ResponseType{oidc.ResponseTypeCode}
}

func (cliClient) GrantTypes() []oidc.GrantType {
	return []oidc.GrantType{oidc.GrantTypeCode, oidc.GrantTypeDeviceCode}
}
func (cliClient) LoginURL(id string) string            { return approvePath + "?request=" + id }
func (cliClient) AccessTokenType() op.AccessTokenType  { return op.AccessTokenTypeBearer }
func (cliClient) IDTokenLifetime() time.Duration       { return 0 }
func (cliClient) DevMode() bool                        { return false }
func (cliClient) IsScopeAllowed(string) bool           { return false }
func (cliClient) IDTokenUserinfoClaimsAssertion() bool { return false }
func (cliClient) ClockSkew() time.Duration             { return 0 }
func (cliClient) RestrictAdditionalIdTokenScopes() func([]string) []string {
	return func([]string) []string { return nil }
}

func (cliClient) RestrictAdditionalAccessTokenScopes() func([]string) []string {
	return func([]string) []string { return nil }
}

// oauth is the director as an authorization server. What is not here, such as client credentials, refresh tokens and
// introspection, the embedded server refuses.
type oauth struct {
	op.UnimplementedServer
	*server
}

// authorizationServer serves what programs log people in with, below the path of the issuer.
func (s accountRoutes) authorizationServer(engine *gin.Engine) {
	handler := op.RegisterServer(oauth{server: s.server}, op.Endpoints{
		Authorization:       op.NewEndpoint(issuer.AuthorizePath),
		DeviceAuthorization: op.NewEndpoint(issuer.DevicePath),
		Token:               op.NewEndpoint(issuer.TokenPath),
		JwksURI:             op.NewEndpoint(issuer.KeysPath),
	}, op.WithServerCORSOptions(nil)) // pages of other sites have no business here
	inner := http.StripPrefix(issuer.Path, http.MaxBytesHandler(handler, maxBody))
	serve := func(g *gin.Context) {
		g.Header("Referrer-Policy", "no-referrer")
		inner.ServeHTTP(g.Writer, g.Request)
	}
	for _, path := range []string{issuer.DiscoveryPath, issuer.KeysPath, issuer.AuthorizePath} {
		engine.GET(issuer.Path+path, serve)
	}
	engine.POST(issuer.Path+issuer.TokenPath, serve)
	engine.POST(issuer.Path+issuer.DevicePath, serve)
}

// Discovery returns the discovery document.
func (o oauth) Discovery(ctx context.Context, _ *op.Request[struct{}]) (*op.Response, error) {
	discovery, _, err := o.Issuer.Documents(ctx)
	return op.NewResponse(json.RawMessage(discovery)), o.failed(ctx, err)
}

// Keys returns the key set.
func (o oauth) Keys(ctx context.Context, _ *op.Request[struct{}]) (*op.Response, error) {
	_, jwks, err := o.Issuer.Documents(ctx)
	return op.NewResponse(json.RawMessage(jwks)), o.failed(ctx, err)
}

// VerifyAuthRequest lets through what directorctl asks. Nothing is sent to an address that is not on the browser's own
// machine, also no error.
func (o oauth) VerifyAuthRequest(
	_ context.Context, r *op.Request[oidc.AuthRequest],
) (*op.ClientRequest[oidc.AuthRequest], error) {
	if r.Data.ClientID != cliName {
		return nil, oidc.ErrInvalidRequestRedirectURI().WithDescription("the client is not known")
	}
	if !issuer.Loopback(r.Data.RedirectURI) {
		return nil, oidc.ErrInvalidRequestRedirectURI().WithDescription("the redirect is not to this machine")
	}
	return &op.ClientRequest[oidc.AuthRequest]{Request: r, Client: cliClient{}}, nil
}

// Authorize sends the browser to the page where a person lets the program in.
func (o oauth) Authorize(ctx context.Context, r *op.ClientRequest[oidc.AuthRequest]) (*op.Redirect, error) {
	in := r.Data
	if in.RequestParam != "" || in.ResponseMode != "" && in.ResponseMode != oidc.ResponseModeQuery {
		return nil, oidc.ErrRequestNotSupported()
	}
	if in.CodeChallengeMethod != oidc.CodeChallengeMethodS256 {
		return nil, oidc.ErrInvalidRequest().WithDescription("PKCE with S256 is required")
	}
	if err := o.limit.takePlace(note(ctx).address); err != nil {
		return nil, o.failed(ctx, err)
	}
	id, err := o.Issuer.BeginBrowser(ctx, issuer.BrowserRequest{
		Redirect: in.RedirectURI, State: in.State, Challenge: in.CodeChallenge, Host: r.Form.Get("host"),
		Address: note(ctx).address,
	})
	if err != nil {
		return nil, o.failed(ctx, err)
	}
	return op.NewRedirect(r.Client.LoginURL(id)), nil
}

// VerifyClient knows directorctl alone.
func (o oauth) VerifyClient(_ context.Context, r *op.Request[op.ClientCredentials]) (op.Client, error) {
	if r.Data.ClientID != cliName || r.Data.ClientSecret != "" || r.Data.ClientAssertion != "" {
		return nil, oidc.ErrInvalidClient().WithDescription("the client is not known")
	}
	return cliClient{}, nil
}

// DeviceAuthorization begins the login of a program on a machine without a browser. The address to open has no code in
// it: a person types the code, so that a link alone lets nothing in.
func (o oauth) DeviceAuthorization(
	ctx context.Context, r *op.ClientRequest[oidc.DeviceAuthorizationRequest],
) (*op.Response, error) {
	err := o.limit.takePlace(note(ctx).address)
	var d issuer.Device
	if err == nil {
		d, err = o.Issuer.BeginDevice(ctx, r.Form.Get("host"), note(ctx).address)
	}
	if err != nil {
		return nil, o.failed(ctx, err)
	}
	return op.NewResponse(&oidc.DeviceAuthorizationResponse{
		DeviceCode: d.Code.Reveal(), UserCode: d.UserCode, VerificationURI: o.Issuer.Site() + approvePath,
		ExpiresIn: int(d.Life / time.Second), Interval: int(d.Pause / time.Second),
	}), nil
}

// CodeExchange gives the program a token for the code that the browser has brought.
func (o oauth) CodeExchange(ctx context.Context, r *op.ClientRequest[oidc.AccessTokenRequest]) (*op.Response, error) {
	if err := o.limit.takePlace(note(ctx).address); err != nil {
		return nil, o.failed(ctx, err)
	}
	a, err := o.Issuer.Redeem(ctx, r.Data.Code, r.Data.CodeVerifier, r.Data.RedirectURI)
	if err != nil {
		_ = o.audited(ctx, "", "login", "User/", director.Errorf(
			director.KindUnauthenticated, "api.oauth", "the code is not good: %w", err,
		))
		return nil, o.failed(ctx, err)
	}
	return o.letIn(ctx, a)
}

// DeviceToken gives the program a token once a person has let it in.
func (o oauth) DeviceToken(
	ctx context.Context, r *op.ClientRequest[oidc.DeviceAccessTokenRequest],
) (*op.Response, error) {
	a, err := o.Issuer.Poll(ctx, r.Data.DeviceCode)
	if err != nil {
		return nil, o.failed(ctx, err)
	}
	return o.letIn(ctx, a)
}

func (o oauth) letIn(ctx context.Context, a issuer.Allowed) (*op.Response, error) {
	token, actor, err := o.Auth.LetIn(ctx, auth.Login{User: a.User, Address: note(ctx).address}, a.Session)
	// A login that cannot be recorded gets no token.
	aerr := o.recorded(ctx, audit.Attempt{
		Actor: actor.User, Action: "login", Object: "User/" + a.User, Detail: "directorctl on " + a.Host, Err: err,
	})
	if err == nil {
		err = aerr
	}
	if err != nil {
		if director.KindOf(err) == director.KindUnauthenticated {
			err = errors.Join(issuer.ErrGrant, err)
		}
		return nil, o.failed(ctx, err)
	}
	note(ctx).user = actor.User
	return op.NewResponse(&oidc.AccessTokenResponse{
		AccessToken: token.Reveal(), TokenType: oidc.BearerToken,
		ExpiresIn: uint64(max(0, int64(time.Until(actor.Expires)/time.Second))),
	}), nil
}

// failed is err in the words of OAuth. What only we can do something about is logged, and not shown.
func (o oauth) failed(ctx context.Context, err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, issuer.ErrGrant):
		return oidc.ErrInvalidGrant().WithDescription("the code is wrong, used or too old")
	case errors.Is(err, issuer.ErrPending):
		return oidc.ErrAuthorizationPending()
	case errors.Is(err, issuer.ErrSlowDown):
		return oidc.ErrSlowDown()
	case errors.Is(err, issuer.ErrExpired):
		return oidc.ErrExpiredDeviceCode()
	case errors.Is(err, issuer.ErrDenied):
		return oidc.ErrAccessDenied()
	}
	p := o.problem(ctx, err)
	answer := oidc.ErrServerError()
	if p.Status < http.StatusInternalServerError {
		answer = oidc.ErrInvalidRequest()
	}
	return op.NewStatusError(answer.WithDescription("%s", p.Detail), p.Status)
}
