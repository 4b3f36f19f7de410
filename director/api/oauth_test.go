package api_test

import (
	"crypto/x509"
	"encoding/json"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/oauth2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/api/apitest"
	"github.com/director-kaas/kaas/director/audit"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/client"
	"github.com/director-kaas/kaas/director/identity"
	"github.com/director-kaas/kaas/director/issuer"
	"github.com/director-kaas/kaas/director/seal"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/wire"
)

// doors is a director with an issuer, and a browser in which admin is logged in.
type doors struct {
	db      *store.Store
	users   *identity.Service
	url     string
	browser *http.Client
	bare    *http.Client // follows nothing, and has no cookies
	cert    *x509.Certificate

	mu    sync.Mutex
	ahead time.Duration
}

func (d *doors) now() time.Time {
	d.mu.Lock()
	defer d.mu.Unlock()
	return time.Now().Add(d.ahead)
}

func (d *doors) later(by time.Duration) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.ahead += by
}

func openDoors(t *testing.T) *doors {
	t.Helper()
	d := &doors{}
	dir, log := t.TempDir(), slog.New(slog.NewTextHandler(t.Output(), nil))
	var err error
	if d.db, err = store.Open(t.Context(), filepath.Join(dir, "director.db"), log); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = d.db.Close() })
	box, err := seal.Open(filepath.Join(dir, "sealing.key"), true)
	if err != nil {
		t.Fatal(err)
	}
	svc, err := auth.New(d.db, auth.Config{Hash: auth.Params{MemoryKiB: 64, Passes: 1}, Now: d.now})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := svc.EnsureAdmin(t.Context(), password); err != nil {
		t.Fatal(err)
	}
	trail, err := audit.New(t.Context(), audit.Config{Store: d.db, Sealer: box, Now: d.now})
	if err != nil {
		t.Fatal(err)
	}
	d.users = identity.New(identity.Config{Store: d.db, Passwords: svc, Now: d.now})
	srv := httptest.NewUnstartedServer(nil)
	d.url = "https://" + srv.Listener.Addr().String()
	c := api.Config{Ports: apitest.New().Ports(), Auth: svc, Log: log, Audit: trail, Now: d.now}
	c.Users, c.Trail = d.users, trail
	c.Issuer = issuer.New(issuer.Config{Store: d.db, Sealer: box, URL: d.url, Now: d.now})
	srv.Config = api.NewServer(api.New(c), nil, log)
	srv.StartTLS()
	t.Cleanup(srv.Close)
	d.cert = srv.Certificate()
	jar, _ := cookiejar.New(nil)
	stay := func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	d.browser = &http.Client{Transport: srv.Client().Transport, Jar: jar, CheckRedirect: stay}
	d.bare = &http.Client{Transport: srv.Client().Transport, CheckRedirect: stay}
	d.ask(t, d.browser, http.MethodPost, "/session", `{"user":"admin","password":"`+password+`"}`, http.StatusOK, nil)
	return d
}

// ask sends a request of the console.
func (d *doors) ask(t *testing.T, c *http.Client, method, path, body string, status int, out any) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, d.url+wire.Prefix+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("Origin", d.url)
	resp, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	raw, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != status {
		t.Errorf("%s %s: %s: %s", method, path, resp.Status, raw)
	}
	if out != nil {
		if err := json.Unmarshal(raw, out); err != nil {
			t.Fatal(err)
		}
	}
}

// post sends a form as a program does, and returns the token or the error of the answer.
func (d *doors) post(t *testing.T, path string, form url.Values) (token, problem string, out map[string]any) {
	t.Helper()
	form.Set("client_id", "directorctl")
	resp, err := d.bare.PostForm(d.url+"/oidc"+path, form)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = resp.Body.Close() }()
	if err := json.NewDecoder(resp.Body).Decode(&out); err != nil {
		t.Fatal(err)
	}
	token, _ = out["access_token"].(string)
	problem, _ = out["error"].(string)
	return token, problem, out
}

// directorctl is the client of the command line.
func (d *doors) directorctl(t *testing.T, token string) *client.Client {
	t.Helper()
	c, err := client.New(client.Config{
		Server: d.url, Fingerprint: client.Fingerprint(d.cert),
		Token: director.Secret(token),
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

const challenged = "0123456789012345678901234567890123456789012"

// authorize begins a login with a browser, and returns the id of the request.
func (d *doors) authorize(t *testing.T, change func(url.Values)) (id string, resp *http.Response) {
	t.Helper()
	q := url.Values{
		"client_id": {"directorctl"}, "response_type": {"code"}, "scope": {"openid"}, "state": {"state-of-a-login"},
		"redirect_uri": {"http://127.0.0.1:4711/callback"}, "host": {"laptop"}, "code_challenge_method": {"S256"},
		"code_challenge": {oauth2.S256ChallengeFromVerifier(challenged)},
	}
	if change != nil {
		change(q)
	}
	resp, err := d.browser.Get(d.url + "/oidc/authorize?" + q.Encode())
	if err != nil {
		t.Fatal(err)
	}
	_ = resp.Body.Close()
	to, err := url.Parse(resp.Header.Get("Location"))
	if err != nil || to.Host != "" || to.Path != "/approve" {
		return "", resp
	}
	return to.Query().Get("request"), resp
}

// The browser of a person on the same machine lets directorctl in, and the session can be ended at once.
func TestLoginWithBrowser(t *testing.T) {
	t.Parallel()
	d := openDoors(t)
	secret, err := d.directorctl(t, "").LoginWithBrowser(t.Context(), "lap<b>top", func(address string) {
		resp, err := d.browser.Get(address)
		if err != nil {
			t.Error(err)
			return
		}
		_ = resp.Body.Close()
		to, _ := url.Parse(resp.Header.Get("Location"))
		var a wire.Asking
		d.ask(t, d.browser, http.MethodGet, "/logins/"+to.Query().Get("request"), "", http.StatusOK, &a)
		if a.Host != "lapbtop" || a.Kind != "browser" || a.Address != "127.0.0.1" {
			t.Errorf("%+v", a)
		}
		var answered wire.Answered
		d.ask(t, d.browser, http.MethodPost, "/logins/"+a.ID+"/allow", "", http.StatusOK, &answered)
		d.ask(t, d.browser, http.MethodPost, "/logins/"+a.ID+"/allow", "", http.StatusNotFound, nil) // once
		wrong := strings.Replace(answered.Continue, "state=", "state=x", 1)
		for _, to := range []string{wrong, answered.Continue} { // what another page sends is no answer
			resp, err := d.bare.Get(to)
			if err != nil {
				t.Error(err)
				return
			}
			_ = resp.Body.Close()
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	ctl := d.directorctl(t, secret.Reveal())
	if me, err := ctl.Me(t.Context()); err != nil || me.User != "admin" || me.Kind != "login" {
		t.Errorf("%+v, %v", me, err)
	}
	sessions, err := d.users.Sessions(t.Context(), "admin")
	if err != nil || len(sessions) != 2 {
		t.Fatalf("%+v, %v", sessions, err)
	}
	for _, s := range sessions {
		if s.Kind == director.TokenLogin {
			if err := d.users.Revoke(t.Context(), "admin", "admin", s.ID()); err != nil {
				t.Error(err)
			}
		}
	}
	if _, err := ctl.Me(t.Context()); director.KindOf(err) != director.KindUnauthenticated {
		t.Errorf("a session that was ended: %v", err)
	}
	entries, _, err := d.db.AuditList(t.Context(), store.AuditQuery{Action: "login"}, director.Page{Limit: 10})
	if err != nil || !slices.ContainsFunc(entries, func(e store.AuditEntry) bool {
		return e.Diff == "directorctl on lapbtop" && e.Object == "User/admin" && e.Outcome == "ok"
	}) {
		t.Errorf("%+v, %v", entries, err)
	}
}

// Nothing is sent to an address that is not of the browser's own machine, and nothing without PKCE.
func TestAuthorizeRefusals(t *testing.T) {
	t.Parallel()
	d := openDoors(t)
	for name, redirect := range map[string]string{
		"another host": "https://evil.example/callback", "a name": "http://localhost:1/callback",
		"a name that begins well": "http://127.0.0.1.evil.example:1/callback",
		"a user":                  "http://127.0.0.1@evil.example:1/callback",
		"another path":            "http://127.0.0.1:1/other", "a query": "http://127.0.0.1:1/callback?x=y",
		"no port":  "http://127.0.0.1/callback",
		"a scheme": "javascript:alert(1)", "TLS": "https://127.0.0.1:1/callback", "empty": "",
		"a fragment":  "http://127.0.0.1:1/callback#x",
		"a backslash": `http://127.0.0.1:1\@evil.example/callback`,
	} {
		id, resp := d.authorize(t, func(q url.Values) { q.Set("redirect_uri", redirect) })
		if id != "" || resp.StatusCode != http.StatusBadRequest || resp.Header.Get("Location") != "" {
			t.Errorf("%s: %s to %q", name, resp.Status, resp.Header.Get("Location"))
		}
	}
	for name, c := range map[string][2]string{
		"no challenge": {"code_challenge", ""}, "a plain challenge": {"code_challenge_method", "plain"},
		"a short state": {"state", "x"}, "a token": {"response_type", "token"},
		"an ID token": {"response_type", "id_token"},
		"fragments":   {"response_mode", "fragment"}, "a request object": {"request", "e30.e30."},
		"another client": {"client_id", "other"}, "a challenge that is too short": {"code_challenge", "abc"},
	} {
		id, resp := d.authorize(t, func(q url.Values) { q.Set(c[0], c[1]) })
		if to := resp.Header.Get("Location"); id != "" || to != "" &&
			!strings.Contains(to, "127.0.0.1:4711/callback?error=") &&
			!strings.Contains(to, "127.0.0.1:4711/callback#error=") {
			t.Errorf("%s: %s to %q", name, resp.Status, to)
		}
	}
	if id, _ := d.authorize(t, nil); id == "" {
		t.Error("a good request is refused")
	}
}

// A code is good once, for a minute, with the verifier and the redirect of its request, as long as the session lives.
func TestCodeRefusals(t *testing.T) {
	t.Parallel()
	d := openDoors(t)
	code := func() string {
		id, _ := d.authorize(t, nil)
		var answered wire.Answered
		d.ask(t, d.browser, http.MethodPost, "/logins/"+id+"/allow", "", http.StatusOK, &answered)
		to, _ := url.Parse(answered.Continue)
		if to.Query().Get("state") != "state-of-a-login" || to.Query().Get("iss") != d.url+"/oidc" {
			t.Errorf("%s", answered.Continue)
		}
		return to.Query().Get("code")
	}
	form := func(code string) url.Values {
		return url.Values{
			"grant_type": {"authorization_code"}, "code": {code}, "code_verifier": {challenged},
			"redirect_uri": {"http://127.0.0.1:4711/callback"},
		}
	}
	good := code()
	if token, problem, _ := d.post(t, "/token", form(good)); token == "" {
		t.Error(problem)
	}
	if token, problem, _ := d.post(t, "/token", form(good)); token != "" || problem != "invalid_grant" {
		t.Errorf("used again: %q", problem)
	}
	for _, c := range [][2]string{
		{"code_verifier", strings.Repeat("x", 43)},
		{"code_verifier", ""},
		{"redirect_uri", "http://127.0.0.1:4712/callback"},
		{"code", "wrong"},
	} {
		one := code()
		f := form(one)
		f.Set(c[0], c[1])
		if token, problem, _ := d.post(t, "/token", f); token != "" || problem != "invalid_grant" {
			t.Errorf("%s: %q", c, problem)
		}
		if token, _, _ := d.post(t, "/token", form(one)); token != "" && c[0] != "code" {
			t.Errorf("%s: the code is good after a wrong try", c)
		}
	}
	late := code()
	d.later(time.Minute)
	if token, problem, _ := d.post(t, "/token", form(late)); token != "" || problem != "invalid_grant" {
		t.Errorf("too late: %q", problem)
	}
	ended := code()
	d.ask(t, d.browser, http.MethodPost, "/logout", "", http.StatusNoContent, nil)
	if token, problem, _ := d.post(t, "/token", form(ended)); token != "" || problem != "invalid_grant" {
		t.Errorf("after the session has ended: %q", problem)
	}
	for _, grant := range []string{
		"password", "client_credentials", "refresh_token", "urn:ietf:params:oauth:grant-type:jwt-bearer",
		"urn:ietf:params:oauth:grant-type:token-exchange", "implicit", "",
	} {
		if token, problem, _ := d.post(t, "/token", url.Values{
			"grant_type": {grant}, "username": {"admin"}, "password": {password}, "refresh_token": {"x"},
			"assertion": {"x"},
		}); token != "" || problem == "" {
			t.Errorf("%s: %q", grant, problem)
		}
	}
}

// A person types the code of a device at the console; the program polls at its pace.
func TestLoginWithDevice(t *testing.T) {
	t.Parallel()
	d := openDoors(t)
	begin := func() (code, typed string) {
		_, problem, out := d.post(t, "/device", url.Values{"host": {"build-7"}})
		if problem != "" || out["verification_uri"] != d.url+"/approve" || out["verification_uri_complete"] != nil {
			t.Fatalf("%v", out)
		}
		return out["device_code"].(string), out["user_code"].(string)
	}
	poll := func(code string) (token, problem string) {
		token, problem, _ = d.post(t, "/token", url.Values{
			"grant_type": {"urn:ietf:params:oauth:grant-type:device_code"}, "device_code": {code},
		})
		return token, problem
	}
	find := func(typed string, status int) (a wire.Asking) {
		d.ask(t, d.browser, http.MethodPost, "/logins/find", `{"code":"`+typed+`"}`, status, &a)
		return a
	}
	code, typed := begin()
	if _, problem := poll(code); problem != "authorization_pending" {
		t.Error(problem)
	}
	if _, problem := poll(code); problem != "slow_down" {
		t.Error(problem)
	}
	d.later(6 * time.Second) // the pause has become longer
	if _, problem := poll(code); problem != "slow_down" {
		t.Error(problem)
	}
	a := find(strings.ToLower(strings.ReplaceAll(typed, "-", "")), http.StatusOK)
	if a.Host != "build-7" || a.Kind != "device" {
		t.Errorf("%+v", a)
	}
	d.ask(t, d.browser, http.MethodPost, "/logins/"+a.ID+"/allow", "", http.StatusOK, nil)
	d.later(20 * time.Second)
	token, problem := poll(code)
	if token == "" {
		t.Fatal(problem)
	}
	if me, err := d.directorctl(t, token).Me(t.Context()); err != nil || me.User != "admin" {
		t.Errorf("%+v, %v", me, err)
	}
	d.later(time.Minute)
	if token, problem := poll(code); token != "" || problem != "invalid_grant" {
		t.Errorf("used again: %q", problem)
	}
	find(typed, http.StatusNotFound)

	code, typed = begin()
	d.ask(t, d.browser, http.MethodPost, "/logins/"+find(typed, http.StatusOK).ID+"/refuse", "", http.StatusOK, nil)
	if _, problem := poll(code); problem != "access_denied" {
		t.Error(problem)
	}
	code, typed = begin()
	d.later(10 * time.Minute)
	find(typed, http.StatusNotFound)
	if _, problem := poll(code); problem != "expired_token" {
		t.Error(problem)
	}
	if token, problem := poll("nonsense"); token != "" || problem != "invalid_grant" {
		t.Error(problem)
	}
	// A token of a program lets no other program in, and neither does another site with the browser's cookie.
	_, typed = begin()
	id := find(typed, http.StatusOK).ID
	if err := d.directorctl(t, token).AllowLogin(t.Context(), id); director.KindOf(err) != director.KindConflict {
		t.Error(err)
	}
	req, _ := http.NewRequestWithContext(t.Context(), http.MethodPost, d.url+wire.Prefix+"/logins/"+id+"/allow", nil)
	req.Header.Set("Origin", "https://evil.example")
	req.Header.Set("Sec-Fetch-Site", "cross-site")
	resp, err := d.browser.Do(req)
	if err != nil || resp.StatusCode != http.StatusForbidden {
		t.Errorf("%v, %v", resp, err)
	}
	_ = resp.Body.Close()
	if _, err := d.directorctl(t, "").LoginWithDevice(t.Context(), "h", func(_, code string, _ time.Time) {
		d.ask(t, d.browser, http.MethodPost, "/logins/"+find(code, http.StatusOK).ID+"/refuse", "", http.StatusOK, nil)
	}); director.KindOf(err) != director.KindUnauthenticated || errors.Is(err, io.EOF) {
		t.Errorf("refused: %v", err)
	}
}
