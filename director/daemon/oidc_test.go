package daemon

import (
	"crypto/tls"
	"crypto/x509"
	"io"
	"net/http"
	"net/netip"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/oidc/oidctest"
	"github.com/director-kaas/kaas/director/people"
	"github.com/director-kaas/kaas/test/loopback"
)

// browser is a person's browser, which trusts the provider and the director.
type browser struct {
	*http.Client
	director string
	provider *oidctest.Server
}

func (b browser) get(t *testing.T, at string) (*http.Response, string) {
	t.Helper()
	if strings.HasPrefix(at, "/") {
		at = b.director + at
	}
	req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, at, http.NoBody)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Accept", "text/html,*/*")
	resp, err := b.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp, string(text)
}

// arrive logs a person in at the provider and returns the address that the provider sends the browser to.
func (b browser) arrive(t *testing.T, name, next string) *url.URL {
	t.Helper()
	resp, text := b.get(t, "/api/v1/session/begin/corp?next="+url.QueryEscape(next))
	if resp.StatusCode != http.StatusSeeOther {
		t.Fatalf("%s: %s", resp.Status, text)
	}
	return b.provider.LogIn(t, b.Client, resp.Header.Get("Location"), name, "right")
}

// providerOf starts a provider and a director whose document corp names it.
func providerOf(t *testing.T) (*oidctest.Server, func() browser, func(status int, b browser) string,
	func(text string) error,
) {
	t.Helper()
	c := simulating(t, grantDocuments)
	c.Listen = loopback.FreeFor(t).String() // the provider has to know it before
	c.PublicURL = "https://" + c.Listen
	c.ProviderNetworks = confine.Networks{netip.MustParsePrefix("127.0.0.0/8")}
	s := oidctest.Start(t, c.PublicURL+people.CallbackPath)
	d, err := start(t, c, io.Discard)
	if err != nil {
		t.Fatal(err)
	}
	admin := connect(t, c, d)
	text := "apiVersion: kaas/v1\nkind: IdentityProvider\nmetadata: {name: corp}\nspec:\n  type: oidc\n" +
		"  title: The company\n  issuer: " + s.Issuer + "\n  credentials: corp\n  scopes: [profile, offline_access]\n" +
		"  roles:\n  - {group: ops, role: operator}\n  - {group: web, role: none}\n  ca: |\n    " +
		strings.ReplaceAll(strings.TrimSpace(string(s.CA)), "\n", "\n    ") + "\n"
	if err := applied(t.Context(), admin, text); err != nil {
		t.Fatal(err)
	}
	if _, err := admin.SetCredentials(t.Context(), "corp", oidctest.ClientID, oidctest.Secret); err != nil {
		t.Fatal(err)
	}
	found, err := admin.TestIdentityProvider(t.Context(), "corp", "")
	if err != nil || !found.OK || len(found.Probes) != 3 {
		t.Errorf("%+v, %v", found, err)
	}
	ca, err := os.ReadFile(filepath.Join(c.StateDir, "tls", "ca.crt"))
	if err != nil {
		t.Fatal(err)
	}
	pool := x509.NewCertPool()
	pool.AppendCertsFromPEM(ca)
	pool.AppendCertsFromPEM(s.CA)
	fresh := func() browser {
		return browser{s.Browser(t, &http.Transport{
			TLSClientConfig: &tls.Config{RootCAs: pool, MinVersion: tls.VersionTLS12},
		}), c.PublicURL, s}
	}
	me := func(status int, b browser) string {
		t.Helper()
		resp, text := b.get(t, "/api/v1/me")
		if resp.StatusCode != status {
			t.Errorf("me: %s: %s", resp.Status, text)
		}
		return text
	}
	return s, fresh, me, func(text string) error { return applied(t.Context(), admin, text) }
}

// A person logs in at an OpenID Connect provider, with everything that a browser does.
func TestPeopleOfAProvider(t *testing.T) {
	t.Parallel()
	s, fresh, me, apply := providerOf(t)
	s.Person("1", "Ann", "right", "ops")
	b := fresh()
	if _, text := b.get(t, "/api/v1/session/providers"); !strings.Contains(text, "/api/v1/session/begin/corp") ||
		!strings.Contains(text, "The company") {
		t.Errorf("the login page cannot offer it: %s", text)
	}
	back := b.arrive(t, "Ann", "/plans?status=parked")
	resp, text := b.get(t, back.String())
	if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/plans?status=parked" {
		t.Fatalf("%s to %s: %s", resp.Status, resp.Header.Get("Location"), text)
	}
	for _, c := range resp.Cookies() {
		strict := c.Name == "__Host-director" && c.SameSite == http.SameSiteStrictMode
		gone := c.Name == "__Host-director-login" && c.MaxAge < 0
		if !c.HttpOnly || !c.Secure || c.Path != "/" || !strict && !gone {
			t.Errorf("the cookie %s", c)
		}
	}
	if text := me(http.StatusOK, b); !strings.Contains(text, `"user":"ann","role":"operator"`) {
		t.Errorf("ann is %s", text)
	}
	resp, _ = b.get(t, back.String())
	if resp.StatusCode != http.StatusUnauthorized {
		t.Errorf("the second time: %s", resp.Status)
	}
	me(http.StatusOK, b) // which ends nothing

	s.Person("2", "ann", "right", "ops") // the name goes to another person
	s.Person("1", "old-ann", "right", "ops")
	other := fresh()
	resp, text = other.get(t, other.arrive(t, "ann", "").String())
	if resp.StatusCode != http.StatusUnauthorized || !strings.Contains(text, "belongs to another person") {
		t.Errorf("another person of the name: %s: %s", resp.Status, text)
	}
	s.Person("3", "zoe", "right", "web")
	if err := apply("apiVersion: kaas/v1\nkind: Grant\nmetadata: {name: web}\n" +
		"spec: {groups: [{provider: corp, group: web}], role: user, project: web}\n"); err != nil {
		t.Fatal(err)
	}
	zoe := fresh()
	zoe.get(t, zoe.arrive(t, "zoe", "//evil.example.org").String())
	if text := me(http.StatusOK, zoe); !strings.Contains(text, `"project":"web"`) {
		t.Errorf("zoe is %s", text)
	}
}

// What comes back from a provider, or pretends to, and is no login.
func TestWaysBackThatAreRefused(t *testing.T) {
	t.Parallel()
	s, fresh, me, _ := providerOf(t)
	s.Person("1", "ann", "right", "ops")
	s.Person("2", "eve", "right")
	refused := func(what string, b browser, at string, status int, says string) {
		t.Helper()
		resp, text := b.get(t, at)
		if resp.StatusCode != status || !strings.Contains(text, says) || strings.Contains(text, "<script") {
			t.Errorf("%s: %s: %s", what, resp.Status, text)
		}
		if strings.HasPrefix(resp.Header.Get("Content-Type"), "text/html") !=
			(resp.Header.Get("Content-Security-Policy") != "") {
			t.Errorf("%s: a page without a policy", what)
		}
		me(http.StatusUnauthorized, b)
	}
	victim, attacker := fresh(), fresh()
	back := attacker.arrive(t, "ann", "")
	refused("another browser's login", victim, back.String(), http.StatusUnauthorized, "not begun in this browser")
	forged := *back
	q := forged.Query()
	q.Set("state", "other")
	forged.RawQuery = q.Encode()
	refused("another state", attacker, forged.String(), http.StatusUnauthorized, "not begun in this browser")
	refused("nothing begun", fresh(), "/api/v1/session/callback?code=x&state=", http.StatusUnauthorized, "not begun")
	b := fresh()
	back = b.arrive(t, "ann", "")
	state := back.Query().Get("state")
	refused("the provider says no", b,
		"/api/v1/session/callback?error=access_denied&error_description=%3Cscript%3E&state="+state,
		http.StatusUnauthorized, "did not log you in")
	refused("after a no", b, back.String(), http.StatusUnauthorized, "")
	b = fresh()
	back = b.arrive(t, "ann", "")
	refused("another issuer", b, back.String()+"&iss=https%3A%2F%2Fevil", http.StatusUnauthorized, "another provider")
	b = fresh()
	refused("no group has a role", b, b.arrive(t, "eve", "").String(), http.StatusUnauthorized, "none of your groups")
	refused("no such provider", fresh(), "/api/v1/session/begin/none", http.StatusNotFound,
		"there is no identity provider")
	for _, next := range []string{"//evil", "https://evil", "/\\evil", "/a\nb", "javascript:x", "/\t/evil", "evil"} {
		b := fresh()
		resp, text := b.get(t, b.arrive(t, "ann", next).String())
		if resp.StatusCode != http.StatusSeeOther || resp.Header.Get("Location") != "/" {
			t.Errorf("it leads to %q: %s", resp.Header.Get("Location"), text)
		}
	}
}
