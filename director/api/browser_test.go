package api_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/wire"
)

// browser logs a browser in and returns its cookie.
func (b *bundle) browser(t *testing.T, header ...string) *http.Cookie {
	t.Helper()
	b.token = ""
	resp := b.send(t, http.MethodPost, "/session", `{"user":"admin","password":"`+password+`"}`, header...)
	text, err := io.ReadAll(resp.Body)
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s, %v", resp.Status, text, err)
	}
	cookies := resp.Cookies()
	if len(cookies) != 1 || strings.Contains(string(text), cookies[0].Value) {
		t.Fatalf("cookies %v, body %s", cookies, text)
	}
	return cookies[0]
}

// The token of a browser is in a cookie that no script and no other host can read or plant. It works for all
// operations, and logging out ends it.
func TestBrowserSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	c := b.browser(t)
	if c.Name != "__Host-director" || !c.Secure || !c.HttpOnly || c.SameSite != http.SameSiteStrictMode ||
		c.Path != "/" || c.Domain != "" || c.MaxAge <= 0 {
		t.Errorf("%+v", c)
	}
	with := []string{"Cookie", c.Name + "=" + c.Value}
	var me wire.Me
	decode(t, b.send(t, http.MethodGet, "/me", "", with...), http.StatusOK, &me)
	if me.User != "admin" || me.Kind != "browser" || me.Scope != "all" {
		t.Errorf("%+v", me)
	}
	decode(t, b.send(t, http.MethodPost, "/apply?dry_run=true", cluster, with...), http.StatusOK, nil)
	second := b.browser(t, with...) // logging in again ends the session from before
	decode(t, b.send(t, http.MethodGet, "/me", "", with...), http.StatusUnauthorized, nil)
	with = []string{"Cookie", second.Name + "=" + second.Value}
	out := b.send(t, http.MethodPost, "/logout", "", with...)
	if gone := out.Cookies(); out.StatusCode != http.StatusNoContent || len(gone) != 1 || gone[0].MaxAge >= 0 ||
		gone[0].Name != c.Name || gone[0].Value != "" {
		t.Errorf("%s, %v", out.Status, gone)
	}
	decode(t, b.send(t, http.MethodGet, "/me", "", with...), http.StatusUnauthorized, nil)
}

// A change that another site asks for is refused, whatever cookie the browser adds. Programs are not browsers.
func TestCrossOrigin(t *testing.T) {
	t.Parallel()
	b := setup(t)
	bearer := b.token
	c := b.browser(t)
	with := func(more ...string) []string { return append([]string{"Cookie", c.Name + "=" + c.Value}, more...) }
	own := strings.TrimSuffix(b.url, wire.Prefix)
	for name, headers := range map[string][]string{
		"cross-site":      with("Sec-Fetch-Site", "cross-site"),
		"same-site":       with("Sec-Fetch-Site", "same-site"),
		"foreign origin":  with("Origin", "https://evil.example"),
		"no origin":       with("Origin", "null"),
		"another port":    with("Origin", strings.Replace(own, ":", ":1", 2)),
		"without session": {"Sec-Fetch-Site", "cross-site"},
	} {
		for _, path := range []string{"/logout", "/apply", "/session"} {
			resp := b.send(t, http.MethodPost, path, "", headers...)
			if p := problemOf(t, resp); resp.StatusCode != http.StatusForbidden || p.Hint == "" {
				t.Errorf("%s: %s: %+v", name, path, p)
			}
		}
	}
	for name, headers := range map[string][]string{
		"same-origin": with("Sec-Fetch-Site", "same-origin"), "own origin": with("Origin", own), "program": with(),
		"typed": with("Sec-Fetch-Site", "none"),
	} {
		if resp := b.send(t, http.MethodPost, "/apply?dry_run=true", cluster,
			headers...); resp.StatusCode != http.StatusOK {
			t.Errorf("%s: %s", name, resp.Status)
		}
	}
	// A bad bearer token is not made good by a cookie.
	decode(t, b.send(t, http.MethodGet, "/me", "", with("Authorization", "Bearer no")...), http.StatusUnauthorized, nil)
	decode(t, b.send(t, http.MethodGet, "/me", "", with("Authorization", "Basic YTpi")...),
		http.StatusUnauthorized, nil)
	b.token = bearer
	if resp := b.send(t, http.MethodPost, "/apply?dry_run=true", cluster, "Sec-Fetch-Site",
		"cross-site"); resp.StatusCode !=
		http.StatusOK {
		t.Errorf("a bearer token: %s", resp.Status)
	}
	if api.SessionCookie != c.Name {
		t.Error(c.Name)
	}
}
