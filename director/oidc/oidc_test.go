package oidc_test

import (
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/oidc"
	"github.com/director-kaas/kaas/director/oidc/oidctest"
)

const redirect = "https://director.example.org/back"

func setup(t *testing.T, adjust ...func(*oidc.Config)) (*oidctest.Server, *oidc.Provider) {
	t.Helper()
	s := oidctest.Start(t, redirect)
	s.Person("1", "ann", "right", "ops", "unmapped", "ops")
	c := oidc.Config{
		Issuer: s.Issuer, ClientID: oidctest.ClientID, Secret: oidctest.Secret, CA: s.CA, Redirect: redirect,
		Scopes: []string{"profile", "offline_access"}, Groups: []string{"ops", "dev"},
	}
	for _, f := range adjust {
		f(&c)
	}
	p, err := oidc.New(c)
	if err != nil {
		t.Fatal(err)
	}
	return s, p
}

// login goes to the provider and comes back with a code.
func login(t *testing.T, s *oidctest.Server, p *oidc.Provider) (oidc.Flow, string) {
	t.Helper()
	to, flow, err := p.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	back := s.LogIn(t, s.Browser(t, nil), to, "ann", "right")
	if !strings.HasPrefix(back.String(), redirect) || back.Query().Get("state") != flow.State {
		t.Fatalf("it comes back to %s", back)
	}
	return flow, back.Query().Get("code")
}

func wantKind(t *testing.T, what string, err error, want director.Kind) {
	t.Helper()
	if err == nil || director.KindOf(err) != want {
		t.Errorf("%s: %v, want %s", what, err, want)
	}
}

func TestLogin(t *testing.T) {
	t.Parallel()
	s, p := setup(t)
	flow, code := login(t, s, p)
	other := flow
	other.Verifier += "x"
	_, err := p.Finish(t.Context(), other, code)
	wantKind(t, "another verifier", err, director.KindUnauthenticated)
	flow, code = login(t, s, p)
	other = flow
	other.Nonce += "x"
	_, err = p.Finish(t.Context(), other, code)
	wantKind(t, "another nonce", err, director.KindUnauthenticated)
	flow, code = login(t, s, p)
	who, err := p.Finish(t.Context(), flow, code)
	if err != nil || who.Refresh == "" {
		t.Fatalf("%+v, %v", who, err)
	}
	refresh := who.Refresh
	who.Refresh = ""
	want := oidc.Person{Subject: "1", Name: "ann", FullName: "Ann Onymous", Groups: []string{"ops"}}
	if diff := cmp.Diff(want, who); diff != "" {
		t.Error(diff)
	}
	_, err = p.Finish(t.Context(), flow, code)
	wantKind(t, "a code for the second time", err, director.KindUnauthenticated)

	s.Person("1", "ann", "right", "dev")
	again, err := p.Again(t.Context(), "1", refresh)
	if err != nil || again.Refresh == "" || !cmp.Equal(again.Groups, []string{"dev"}) {
		t.Fatalf("%+v, %v", again, err)
	}
	s.Break(true)
	_, err = p.Again(t.Context(), "1", again.Refresh)
	wantKind(t, "a broken provider", err, director.KindUnavailable)
	s.Break(false)
	_, err = p.Again(t.Context(), "2", again.Refresh)
	wantKind(t, "another person", err, director.KindUnauthenticated)
	s.End(t, "1")
	_, err = p.Again(t.Context(), "1", again.Refresh)
	wantKind(t, "ended there", err, director.KindUnauthenticated)
}

// What a provider must not be believed.
func TestRefusals(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		adjust func(*oidc.Config)
		want   director.Kind
	}{
		"another client's secret": {func(c *oidc.Config) { c.Secret = "wrong" }, director.KindUnavailable},
		"our clock is a day slow": {func(c *oidc.Config) {
			c.Now = func() time.Time { return time.Now().Add(-24 * time.Hour) }
		}, director.KindUnauthenticated},
		"our clock is a day fast": {func(c *oidc.Config) {
			c.Now = func() time.Time { return time.Now().Add(24 * time.Hour) }
		}, director.KindUnauthenticated},
		"no such claim":           {func(c *oidc.Config) { c.UserName = "nickname" }, director.KindUnauthenticated},
		"an address that may lie": {func(c *oidc.Config) { c.UserName = "email" }, director.KindUnauthenticated},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, p := setup(t, c.adjust)
			flow, code := login(t, s, p)
			_, err := p.Finish(t.Context(), flow, code)
			wantKind(t, name, err, c.want)
		})
	}
	_, p := setup(t, func(c *oidc.Config) { c.CA = nil })
	_, _, err := p.Begin(t.Context())
	wantKind(t, "an unknown CA", err, director.KindUnavailable)
	for _, issuer := range []string{"", "http://a", "https://", "https://a?x=y", "https://u:p@a", "nonsense"} {
		if _, err := oidc.New(oidc.Config{Issuer: issuer}); director.KindOf(err) != director.KindInvalid {
			t.Errorf("issuer %q: %v", issuer, err)
		}
	}
}

// A provider that leads elsewhere, or never ends its answer, is given up.
func TestHostileProviders(t *testing.T) {
	t.Parallel()
	for name, handler := range map[string]http.HandlerFunc{
		"redirects": func(w http.ResponseWriter, r *http.Request) {
			http.Redirect(w, r, "https://127.0.0.1:1/", http.StatusFound)
		},
		"endless": func(w http.ResponseWriter, _ *http.Request) {
			for range 64 {
				if _, err := w.Write(make([]byte, 1<<16)); err != nil {
					return
				}
			}
		},
		"plain endpoints": func(w http.ResponseWriter, r *http.Request) {
			_, _ = w.Write([]byte(`{"issuer":"https://` + r.Host +
				`","authorization_endpoint":"http://a","token_endpoint":"http://a","jwks_uri":"http://a"}`))
		},
		"another issuer": func(w http.ResponseWriter, _ *http.Request) {
			_, _ = w.Write([]byte(`{"issuer":"https://other","authorization_endpoint":"https://a",` +
				`"token_endpoint":"https://a"}`))
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := httptest.NewTLSServer(handler)
			t.Cleanup(s.Close)
			p, err := oidc.New(oidc.Config{Issuer: s.URL, ClientID: "x", CA: pemOf(s)})
			if err != nil {
				t.Fatal(err)
			}
			_, _, err = p.Begin(t.Context())
			wantKind(t, name, err, director.KindUnavailable)
		})
	}
}

func TestStages(t *testing.T) {
	t.Parallel()
	stages := func(p *oidc.Provider) string {
		var out []string
		for _, f := range p.Test(t.Context()) {
			out = append(out, string(f.Stage)+map[bool]string{true: "+", false: "-"}[f.Passed])
			if !f.Passed && (f.Msg == "" || f.Hint == "") {
				t.Errorf("%+v says too little", f)
			}
		}
		return strings.Join(out, " ")
	}
	for name, c := range map[string]struct {
		adjust func(*oidc.Config)
		want   string
	}{
		"all is well": {func(*oidc.Config) {}, "discovery+ keys+ client+"},
		"the secret":  {func(c *oidc.Config) { c.Secret = "wrong" }, "discovery+ keys+ client-"},
		"the CA":      {func(c *oidc.Config) { c.CA = nil }, "discovery-"},
		"the issuer":  {func(c *oidc.Config) { c.Issuer += "/other" }, "discovery-"},
	} {
		_, p := setup(t, c.adjust)
		if got := stages(p); got != c.want {
			t.Errorf("%s: %s, want %s", name, got, c.want)
		}
	}
}

func pemOf(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}
