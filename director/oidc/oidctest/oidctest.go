// Package oidctest starts a real OpenID Connect provider in the test's own process, on loopback and over TLS.
package oidctest

import (
	"context"
	"encoding/pem"
	"io"
	"log/slog"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"regexp"
	"strings"
	"sync"
	"testing"

	"github.com/zitadel/oidc/v3/example/server/exampleop"
	"github.com/zitadel/oidc/v3/example/server/storage"
	"github.com/zitadel/oidc/v3/pkg/oidc"
	"github.com/zitadel/oidc/v3/pkg/op"
)

// The client that the provider knows.
const (
	ClientID = "director"
	Secret   = "the secret of the director"
)

// Server is a provider with people.
type Server struct {
	Issuer string
	CA     []byte // PEM
	store  *people
	http   *httptest.Server
}

// people adds groups to what the provider's own storage says.
type people struct {
	*storage.Storage
	mu     sync.Mutex
	users  map[string]*storage.User
	groups map[string][]string // by the user's id
	broken bool
}

func (p *people) GetUserByID(id string) *storage.User {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.users[id]
}

func (p *people) GetUserByUsername(name string) *storage.User {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, u := range p.users {
		if u.Username == name {
			return u
		}
	}
	return nil
}

func (p *people) ExampleClientID() string { return "" }

func (p *people) add(info *oidc.UserInfo) {
	p.mu.Lock()
	defer p.mu.Unlock()
	info.AppendClaims("groups", p.groups[info.Subject])
}

// SetUserinfoFromRequest is what an ID token says of a person.
func (p *people) SetUserinfoFromRequest(
	ctx context.Context, info *oidc.UserInfo, token op.IDTokenRequest, scopes []string,
) error {
	err := p.Storage.SetUserinfoFromRequest(ctx, info, token, scopes)
	p.add(info)
	return err
}

// SetUserinfoFromToken is what the userinfo endpoint says of a person.
func (p *people) SetUserinfoFromToken(
	ctx context.Context, info *oidc.UserInfo, tokenID, subject, origin string,
) error {
	err := p.Storage.SetUserinfoFromToken(ctx, info, tokenID, subject, origin)
	p.add(info)
	return err
}

// Start starts a provider whose client may redirect to these addresses. It ends with the test.
func Start(t *testing.T, redirects ...string) *Server {
	t.Helper()
	s := New(redirects...)
	t.Cleanup(s.Close)
	return s
}

// New starts a provider whose client may redirect to these addresses, until Close.
func New(redirects ...string) *Server {
	s := &Server{store: &people{users: map[string]*storage.User{}, groups: map[string][]string{}}}
	client := storage.WebClient(ClientID, Secret, redirects...)
	storage.RegisterClients(client)
	s.store.Storage = storage.NewStorageWithClients(s.store, map[string]*storage.Client{ClientID: client})
	var handler http.Handler
	s.http = httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.store.mu.Lock()
		broken := s.store.broken
		s.store.mu.Unlock()
		if broken {
			http.Error(w, "broken", http.StatusInternalServerError)
			return
		}
		handler.ServeHTTP(w, r)
	}))
	s.Issuer = s.http.URL
	s.CA = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.http.Certificate().Raw})
	handler = exampleop.SetupServer(s.Issuer, s.store, nil, false, op.WithLogger(slog.New(slog.DiscardHandler)))
	return s
}

// Close ends the provider.
func (s *Server) Close() { s.http.Close() }

// Person adds a person, or changes what there is of the person with the id.
func (s *Server) Person(id, name, password string, groups ...string) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.store.users[id] = &storage.User{ID: id, Username: name, Password: password, FirstName: "Ann", LastName: "Onymous"}
	s.store.groups[id] = groups
}

// End ends everything that the provider has given to the person.
func (s *Server) End(t *testing.T, id string) {
	t.Helper()
	if err := s.store.TerminateSession(t.Context(), id, ClientID); err != nil {
		t.Fatal(err)
	}
}

// Break lets the provider answer every request with a failure, or work again.
func (s *Server) Break(yes bool) {
	s.store.mu.Lock()
	defer s.store.mu.Unlock()
	s.store.broken = yes
}

// Browser returns a client that keeps cookies, trusts the provider and stops before it follows a redirect.
func (s *Server) Browser(t *testing.T, base *http.Transport) *http.Client {
	t.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	c := s.http.Client()
	if base != nil {
		c = &http.Client{Transport: base}
	}
	return &http.Client{
		Transport: c.Transport, Jar: jar,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
}

var hiddenID = regexp.MustCompile(`name="id" value="([^"]+)"`)

// LogIn does what a person does in a browser at the provider, and returns where the provider sends the browser.
func (s *Server) LogIn(t *testing.T, browser *http.Client, to, name, password string) *url.URL {
	t.Helper()
	// ask returns where an answer leads to, nil for nowhere, and its text
	ask := func(r *http.Request, err error) (*url.URL, string) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		resp, err := browser.Do(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		text, err := io.ReadAll(resp.Body)
		if err != nil {
			t.Fatal(err)
		}
		place, err := resp.Location()
		if err != nil {
			return nil, resp.Status + " " + string(text)
		}
		return place, ""
	}
	get := func(at string) (*url.URL, string) {
		t.Helper()
		return ask(http.NewRequestWithContext(t.Context(), http.MethodGet, at, http.NoBody))
	}
	place, text := get(to)
	if place == nil {
		t.Fatalf("the provider answers %s", text)
	}
	_, page := get(place.String())
	id := hiddenID.FindStringSubmatch(page)
	if id == nil {
		t.Fatalf("the provider shows no form: %s", page)
	}
	form := url.Values{"username": {name}, "password": {password}, "id": {id[1]}}
	r, err := http.NewRequestWithContext(t.Context(), http.MethodPost, s.Issuer+"/login/username",
		strings.NewReader(form.Encode()))
	if err == nil {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	place, text = ask(r, err)
	for place != nil && strings.HasPrefix(place.String(), s.Issuer) {
		place, text = get(place.String())
	}
	if place == nil {
		t.Fatalf("the provider answers %s", text)
	}
	return place
}
