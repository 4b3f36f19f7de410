// Package oidc lets people of an OpenID Connect provider log in: it sends a browser there, takes what comes back, and
// asks later whether the person still may be in.
package oidc

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	"golang.org/x/oauth2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
)

// Bounds of what a provider may make the director do.
const (
	timeout   = 5 * time.Second // of a request
	maxAnswer = 1 << 20         // bytes
	maxGroups = 5000            // of one person, in a claim
	leeway    = time.Minute     // that clocks may differ by
)

// Config says where a provider is and what it calls things.
type Config struct {
	Issuer   string // https://...
	ClientID string
	Secret   director.Secret
	CA       []byte   // PEM; the only authorities that the provider's certificate may be from. The system's if empty.
	Redirect string   // where the provider sends browsers back to
	Scopes   []string // that are asked for; openid is always among them
	UserName string   // claim with the name that the director uses; preferred_username if empty
	FullName string   // claim with the name that is shown; name if empty
	GroupsIn string   // claim with the groups; groups if empty
	Groups   []string // that count

	// Dial connects to host:port. It is where addresses are allowed or refused; a plain dialer if nil.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
	Now  func() time.Time // the clock; time.Now if nil
}

// Check returns what is wrong with the configuration.
func (c Config) Check() []director.Field {
	var out []director.Field
	u, err := url.Parse(c.Issuer)
	if err != nil || u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		out = append(out, director.Field{
			Path: "issuer", Msg: "is not the address of an issuer",
			Hint: "write https://HOST[:PORT][/PATH], as the provider's discovery document has it",
		})
	}
	if len(c.CA) > 0 && !x509.NewCertPool().AppendCertsFromPEM(c.CA) {
		out = append(out, director.Field{Path: "ca", Msg: "holds no certificate in PEM form"})
	}
	return out
}

// Provider is an OpenID Connect provider. It is safe for concurrent use.
type Provider struct {
	c    Config
	http *http.Client

	mu   sync.Mutex
	open *oidc.Provider // nil until its discovery document was read
}

// New returns a provider. It does not connect. Errors: invalid.
func New(c Config) (*Provider, error) {
	if err := director.Invalid("oidc.new", "the provider cannot be asked", c.Check()); err != nil {
		return nil, err
	}
	set := func(field *string, usual string) {
		if *field == "" {
			*field = usual
		}
	}
	set(&c.UserName, "preferred_username")
	set(&c.FullName, "name")
	set(&c.GroupsIn, "groups")
	if c.Dial == nil {
		c.Dial = (&net.Dialer{Timeout: timeout}).DialContext
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	conf := &tls.Config{MinVersion: tls.VersionTLS12}
	if len(c.CA) > 0 {
		conf.RootCAs = x509.NewCertPool()
		conf.RootCAs.AppendCertsFromPEM(c.CA)
	}
	return &Provider{c: c, http: &http.Client{
		Timeout: timeout,
		Transport: confine.Answers(&http.Transport{
			DialContext: c.Dial, TLSClientConfig: conf, TLSHandshakeTimeout: timeout, ForceAttemptHTTP2: true,
			MaxIdleConnsPerHost: 2, IdleConnTimeout: time.Minute,
		}, maxAnswer),
		// The provider's own addresses are in its discovery document: a redirect leads elsewhere.
		CheckRedirect: func(*http.Request, []*http.Request) error { return errors.New("the provider redirects") },
	}}, nil
}

// discovered returns the provider as its discovery document says. Errors: unavailable.
func (p *Provider) discovered(ctx context.Context) (*oidc.Provider, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.open != nil {
		return p.open, nil
	}
	// the keys are fetched with this context later
	found, err := oidc.NewProvider(oidc.ClientContext(context.WithoutCancel(ctx), p.http), p.c.Issuer)
	if err != nil {
		return nil, unavailable("oidc.discovery", err)
	}
	for what, at := range map[string]string{
		"authorization": found.Endpoint().AuthURL, "token": found.Endpoint().TokenURL,
	} {
		if u, err := url.Parse(at); err != nil || u.Scheme != "https" {
			return nil, unavailable("oidc.discovery", fmt.Errorf("the %s endpoint %q is not https", what, at))
		}
	}
	p.open = found
	return found, nil
}

func unavailable(op string, err error) error {
	return &director.Error{
		Kind: director.KindUnavailable, Op: op, Msg: "the identity provider does not answer correctly", Err: err,
	}
}

func (p *Provider) config(found *oidc.Provider) *oauth2.Config {
	scopes := []string{oidc.ScopeOpenID}
	for _, s := range p.c.Scopes {
		if !slices.Contains(scopes, s) {
			scopes = append(scopes, s)
		}
	}
	return &oauth2.Config{
		ClientID: p.c.ClientID, ClientSecret: p.c.Secret.Reveal(), Endpoint: found.Endpoint(),
		RedirectURL: p.c.Redirect, Scopes: scopes,
	}
}

// Flow is a login that is on its way. It belongs to one browser.
type Flow struct {
	State    string `json:"s"` // comes back with the browser
	Nonce    string `json:"n"` // comes back in the ID token
	Verifier string `json:"v"` // of PKCE (RFC 7636)
}

// Begin returns where the browser goes to log in.
func (p *Provider) Begin(ctx context.Context) (to string, f Flow, err error) {
	found, err := p.discovered(ctx)
	if err != nil {
		return "", f, err
	}
	f = Flow{State: oauth2.GenerateVerifier(), Nonce: oauth2.GenerateVerifier(), Verifier: oauth2.GenerateVerifier()}
	return p.config(found).AuthCodeURL(f.State, oidc.Nonce(f.Nonce), oauth2.S256ChallengeOption(f.Verifier)), f, nil
}

// Person is who has logged in.
type Person struct {
	Subject  string // the provider's own name, which never goes to another person
	Name     string
	FullName string
	Groups   []string        // of those that count
	Refresh  director.Secret // asks about the person later; empty if the provider gives none
}

// Finish returns who has logged in with the code that came back. Errors: unauthenticated, unavailable.
func (p *Provider) Finish(ctx context.Context, f Flow, code string) (Person, error) {
	found, err := p.discovered(ctx)
	if err != nil {
		return Person{}, err
	}
	ctx = oidc.ClientContext(ctx, p.http)
	token, err := p.config(found).Exchange(ctx, code, oauth2.VerifierOption(f.Verifier))
	if err != nil {
		return Person{}, refused("oidc.finish", err)
	}
	return p.person(ctx, found, token, f.Nonce, "")
}

// Again asks about a person who has logged in before, and returns the person as of today. Errors: unauthenticated when
// the provider does not let the person in any more, unavailable when it does not answer.
func (p *Provider) Again(ctx context.Context, subject string, refresh director.Secret) (Person, error) {
	found, err := p.discovered(ctx)
	if err != nil {
		return Person{}, err
	}
	ctx = oidc.ClientContext(ctx, p.http)
	token, err := p.config(found).TokenSource(ctx, &oauth2.Token{RefreshToken: refresh.Reveal()}).Token()
	if err != nil {
		return Person{}, refused("oidc.again", err)
	}
	return p.person(ctx, found, token, "", subject)
}

// refused tells a no from silence. What the provider says is left out: it may quote what it was sent.
func refused(op string, err error) error {
	if e, ok := errors.AsType[*oauth2.RetrieveError](err); ok && e.Response != nil &&
		e.Response.StatusCode >= http.StatusBadRequest && e.Response.StatusCode < http.StatusInternalServerError {
		if e.ErrorCode == "invalid_client" || e.ErrorCode == "unauthorized_client" {
			return &director.Error{
				Kind: director.KindUnavailable, Op: op, Msg: "the identity provider does not accept the director",
				Hint: "set the credentials of the client again: directorctl provider credentials set",
			}
		}
		return director.Errorf(director.KindUnauthenticated, op, "the identity provider refuses the login").
			WithHint("log in again")
	}
	return unavailable(op, errors.New("the token endpoint gives no tokens"))
}

// person verifies the tokens and reads the person from them. subject is who it has to be; empty for anyone. nonce is
// empty for an answer that belongs to no login.
func (p *Provider) person(
	ctx context.Context, found *oidc.Provider, token *oauth2.Token, nonce, subject string,
) (Person, error) {
	const op = "oidc.person"
	wrong := func(format string, args ...any) (Person, error) {
		return Person{}, director.Errorf(director.KindUnauthenticated, op, format, args...)
	}
	claims := map[string]any{}
	raw, _ := token.Extra("id_token").(string)
	if raw == "" && nonce != "" {
		return wrong("the identity provider sends no ID token")
	}
	if raw != "" {
		verifier := found.VerifierContext(oidc.ClientContext(context.WithoutCancel(ctx), p.http), &oidc.Config{
			ClientID: p.c.ClientID, Now: func() time.Time { return p.c.Now().Add(-leeway) },
		})
		id, err := verifier.Verify(ctx, raw)
		if err != nil {
			return wrong("the ID token is not valid: %s", plain(err))
		}
		switch {
		case nonce != "" && id.Nonce != nonce:
			return wrong("the ID token is for another login")
		case subject != "" && id.Subject != subject:
			return wrong("the ID token is for another person")
		case id.IssuedAt.After(p.c.Now().Add(5 * time.Minute)):
			return wrong("the ID token is from the future: compare the clocks of the director and the provider")
		}
		subject = id.Subject
		if err := id.Claims(&claims); err != nil {
			return wrong("the ID token cannot be read")
		}
	}
	if err := p.addUserInfo(ctx, found, token, subject, claims); err != nil {
		return Person{}, err
	}
	out := Person{Subject: subject, Refresh: director.Secret(token.RefreshToken)}
	out.FullName, _ = claims[p.c.FullName].(string)
	if out.Name, _ = claims[p.c.UserName].(string); out.Name == "" {
		return wrong("the identity provider says no %s", p.c.UserName)
	}
	if verified, said := claims["email_verified"].(bool); p.c.UserName == "email" && (!said || !verified) {
		return wrong("the identity provider has not verified the mail address")
	}
	out.Groups = p.groups(claims[p.c.GroupsIn])
	return out, nil
}

// addUserInfo asks for the claims that are not in the ID token.
func (p *Provider) addUserInfo(
	ctx context.Context, found *oidc.Provider, token *oauth2.Token, subject string, claims map[string]any,
) error {
	if claims[p.c.UserName] != nil && claims[p.c.GroupsIn] != nil || found.UserInfoEndpoint() == "" {
		return nil
	}
	info, err := found.UserInfo(ctx, oauth2.StaticTokenSource(token))
	if err != nil {
		return unavailable("oidc.userinfo", errors.New(plain(err)))
	}
	if info.Subject != subject {
		return director.Errorf(director.KindUnauthenticated, "oidc.userinfo", "the user info is for another person")
	}
	more := map[string]any{}
	if err := info.Claims(&more); err != nil {
		return unavailable("oidc.userinfo", err)
	}
	for k, v := range more {
		if _, there := claims[k]; !there {
			claims[k] = v
		}
	}
	return nil
}

// groups returns those of the claim that count. A claim is a list of texts, or a text.
func (p *Provider) groups(claim any) []string {
	var all []any
	switch v := claim.(type) {
	case string:
		all = []any{v}
	case []any:
		all = v[:min(len(v), maxGroups)]
	}
	var out []string
	for _, g := range all {
		if name, ok := g.(string); ok && slices.Contains(p.c.Groups, name) && !slices.Contains(out, name) {
			out = append(out, name)
		}
	}
	slices.Sort(out)
	return out
}

// plain is an error of the library as one short line.
func plain(err error) string {
	text := strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f {
			return ' '
		}
		return r
	}, err.Error())
	const most = 200
	if r := []rune(text); len(r) > most {
		text = string(r[:most])
	}
	return text
}

// Stage is a part of a test.
type Stage string

// The stages, in order.
const (
	StageDiscovery Stage = "discovery"
	StageKeys      Stage = "keys"
	StageClient    Stage = "client"
)

// Finding is what one stage of a test showed.
type Finding struct {
	Stage     Stage
	Passed    bool
	Msg, Hint string
}

// Test goes through the stages and tells how each went, up to the first that fails. No person logs in.
func (p *Provider) Test(ctx context.Context) []Finding {
	fresh := &Provider{c: p.c, http: p.http}
	found, err := fresh.discovered(ctx)
	if err != nil {
		return []Finding{{
			Stage: StageDiscovery, Msg: plain(errors.Unwrap(err)),
			Hint: "look at the name, the port, the certificates in ca, and the issuer as " + p.c.Issuer +
				"/.well-known/openid-configuration has it",
		}}
	}
	out := []Finding{{Stage: StageDiscovery, Passed: true, Msg: "the issuer is " + p.c.Issuer}}
	keys, err := fresh.countKeys(ctx, found)
	if err != nil {
		return append(out, Finding{Stage: StageKeys, Msg: plain(err), Hint: "the provider has to publish its keys"})
	}
	out = append(out, Finding{Stage: StageKeys, Passed: true, Msg: fmt.Sprintf("%d keys", keys)})
	// A refresh token that is none: a provider that knows the client refuses the token, and not the client.
	_, err = p.config(found).TokenSource(
		oidc.ClientContext(ctx, p.http), &oauth2.Token{RefreshToken: "a-test-of-the-director"},
	).Token()
	e, answered := errors.AsType[*oauth2.RetrieveError](err)
	if answered && e.ErrorCode == "invalid_grant" {
		return append(out, Finding{Stage: StageClient, Passed: true, Msg: "the client " + p.c.ClientID + " is known"})
	}
	msg := "the provider gives no answer about the client"
	if answered && e.ErrorCode != "" {
		msg = "the provider says " + plain(errors.New(e.ErrorCode))
	}
	return append(out, Finding{
		Stage: StageClient, Msg: msg,
		Hint: "compare the client's id and secret, and allow the redirect " + p.c.Redirect,
	})
}

// countKeys returns how many keys the provider publishes.
func (p *Provider) countKeys(ctx context.Context, found *oidc.Provider) (int, error) {
	var at struct {
		Keys string `json:"jwks_uri"`
	}
	if err := found.Claims(&at); err != nil {
		return 0, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, at.Keys, http.NoBody)
	if err != nil {
		return 0, err
	}
	resp, err := p.http.Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var set struct {
		Keys []json.RawMessage `json:"keys"`
	}
	if err := json.NewDecoder(resp.Body).Decode(&set); err != nil || len(set.Keys) == 0 {
		return 0, errors.New("there is no key at " + at.Keys)
	}
	return len(set.Keys), nil
}
