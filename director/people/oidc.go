package people

import (
	"context"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/ldap"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/oidc"
	"github.com/director-kaas/kaas/director/store"
)

// CallbackPath is where OpenID Connect providers send browsers back to, below the director's own address.
const CallbackPath = "/api/v1/session/callback"

// refreshToken is the name of the sealed refresh token of a person.
const refreshToken = "refresh token"

// usualScopes are what a provider is asked for when its document does not say.
var usualScopes = []string{"profile", "email", "groups", "offline_access"}

// Choice is a provider that people can choose at the login.
type Choice struct{ Name, Title string }

// Choices returns the providers where people log in with a browser, in their order.
func (s *Service) Choices(ctx context.Context) ([]Choice, error) {
	docs, err := s.providers(ctx, "")
	if err != nil {
		return nil, err
	}
	var out []Choice
	for _, d := range docs {
		if d.IdentityProvider.Type != model.IdentityOIDC {
			continue
		}
		c := Choice{d.Metadata.Name, d.IdentityProvider.Title}
		if c.Title == "" {
			c.Title = c.Name
		}
		out = append(out, c)
	}
	return out, nil
}

// Redirects reports whether people of the provider log in there, with a browser. A provider that is gone does not.
func (s *Service) Redirects(ctx context.Context, provider string) (bool, error) {
	docs, err := s.providers(ctx, provider)
	if err != nil || provider == "" || len(docs) == 0 {
		return false, err
	}
	return docs[0].IdentityProvider.Type == model.IdentityOIDC, nil
}

// way is a login that is on its way, as its browser keeps it.
type way struct {
	oidc.Flow
	Provider string    `json:"p"`
	Next     string    `json:"x"` // where in the console it continues
	Began    time.Time `json:"t"`
}

// wayLife is how long a person may take to log in at the provider.
const wayLife = 10 * time.Minute

// Begin returns where a browser goes to log in, and what it has to show when it comes back. next is where it continues
// afterwards: a path of the director, or empty. Errors: not_found, unavailable.
func (s *Service) Begin(ctx context.Context, provider, next string) (to string, keep director.Secret, err error) {
	doc, p, err := s.relyOn(ctx, provider)
	if err != nil {
		return "", "", err
	}
	to, flow, err := p.Begin(ctx)
	if err != nil {
		return "", "", s.broken(ctx, doc, err)
	}
	text, err := json.Marshal(way{flow, provider, localPath(next), s.Now().UTC()})
	return to, director.Secret(base64.RawURLEncoding.EncodeToString(text)), err
}

// localPath is a path that leads to this director alone, or "/".
func localPath(next string) string {
	const most = 1024
	if len(next) > most || !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") ||
		strings.ContainsFunc(next, func(r rune) bool { return r <= ' ' || r == '\\' || r >= 0x7f }) {
		return "/"
	}
	return next
}

// Answer is what a provider sends with the browser.
type Answer struct{ State, Code, Error, Issuer string }

// Arrival is a person who comes back from a provider.
type Arrival struct {
	User director.User
	Next string // where the browser continues
	// Admitted has to be called when the user may be in, before there is a token. It keeps what asks the provider
	// about the person later.
	Admitted func(context.Context) error
}

// Finish returns who comes back with a browser that shows what Begin has returned. It works once. Errors:
// unauthenticated, conflict, unavailable.
func (s *Service) Finish(ctx context.Context, kept director.Secret, a Answer) (Arrival, error) {
	const op = "people.login"
	w, err := readWay(kept)
	if err != nil || w.State == "" || w.State != a.State || s.Now().Sub(w.Began) > wayLife {
		return Arrival{}, director.Errorf(
			director.KindUnauthenticated, op, "this login was not begun in this browser, or too long ago",
		).WithHint("log in again")
	}
	doc, p, err := s.relyOn(ctx, w.Provider)
	if err != nil {
		return Arrival{}, err
	}
	if a.Issuer != "" && a.Issuer != doc.IdentityProvider.Issuer { // RFC 9207
		return Arrival{}, director.Errorf(director.KindUnauthenticated, op, "another provider answers").
			WithHint("log in again")
	}
	sum := sha256.Sum256([]byte(w.State))
	if err := s.Store.UseLogin(ctx, hex.EncodeToString(sum[:]), s.Now()); err != nil {
		return Arrival{}, err
	}
	if a.Error != "" || a.Code == "" {
		return Arrival{}, director.Errorf(
			director.KindUnauthenticated, op, "the identity provider %s did not log you in", w.Provider,
		).WithHint("log in again, or ask an administrator of the provider")
	}
	person, err := p.Finish(ctx, w.Flow, a.Code)
	if director.KindOf(err) == director.KindUnavailable {
		err = s.broken(ctx, doc, err)
	}
	if err != nil {
		return Arrival{}, err
	}
	u, err := s.user(doc, ldap.Person{Name: person.Name, FullName: person.FullName, Groups: person.Groups})
	if err != nil {
		return Arrival{}, err
	}
	u.Subject = person.Subject
	return Arrival{u, w.Next, func(ctx context.Context) error {
		return s.keepRefresh(ctx, u.Name, person.Refresh)
	}}, nil
}

func readWay(kept director.Secret) (w way, err error) {
	text, err := base64.RawURLEncoding.DecodeString(kept.Reveal())
	if err == nil {
		err = json.Unmarshal(text, &w)
	}
	w.Next = localPath(w.Next)
	return w, err
}

// keepRefresh keeps what asks the provider about the person, and forgets what there was; empty for nothing.
func (s *Service) keepRefresh(ctx context.Context, user string, refresh director.Secret) error {
	owner := store.OwnerOfPerson(user)
	var sealed []byte
	if refresh != "" {
		var err error
		if sealed, err = s.Sealer.Seal(owner, refreshToken, []byte(refresh.Reveal())); err != nil {
			return err
		}
	}
	return s.Store.SetSecret(ctx, owner, refreshToken, sealed)
}

// relied is a provider as its document and its client were when it was opened.
type relied struct {
	uid                  string
	generation, revision int64
	*oidc.Provider
}

// relyOn returns the provider of the name with its client of today.
func (s *Service) relyOn(ctx context.Context, name string) (model.Stored, *oidc.Provider, error) {
	docs, err := s.providers(ctx, name)
	if err != nil {
		return model.Stored{}, nil, err
	}
	docs = slices.DeleteFunc(docs, func(d model.Stored) bool { return d.IdentityProvider.Type != model.IdentityOIDC })
	if name == "" || len(docs) == 0 {
		return model.Stored{}, nil, director.Errorf(
			director.KindNotFound, "people.provider", "there is no identity provider %s to log in at", name,
		).WithHint("choose one of the login page")
	}
	doc := docs[0]
	client, err := s.Accounts.OpenIdentity(ctx, name, *doc.IdentityProvider)
	if err != nil {
		return doc, nil, s.broken(ctx, doc, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	had := s.relied[name]
	if had.Provider != nil && had.uid == doc.UID && had.generation == doc.Generation &&
		had.revision == client.Revision {
		return doc, had.Provider, nil
	}
	c := oidcConfigOf(*doc.IdentityProvider)
	c.ClientID, c.Secret, c.Now, c.Dial = client.User, client.Password, s.Now, s.Networks.Dialer().DialContext
	c.Redirect = s.URL + CallbackPath
	p, err := oidc.New(c)
	if err != nil {
		return doc, nil, err
	}
	s.relied[name] = relied{doc.UID, doc.Generation, client.Revision, p}
	return doc, p, nil
}

func oidcConfigOf(p model.IdentityProvider) oidc.Config {
	c := oidc.Config{
		Issuer: p.Issuer, CA: []byte(p.CA), Scopes: p.Scopes, UserName: p.UserName, FullName: p.FullName,
		GroupsIn: p.GroupsClaim,
	}
	if len(c.Scopes) == 0 {
		c.Scopes = usualScopes
	}
	for _, r := range p.Roles {
		c.Groups = append(c.Groups, r.Group)
	}
	return c
}

// again asks the provider about a user. Of several directors, the one that takes the user first asks: a refresh token
// may be good for one use alone.
func (s *Service) again(ctx context.Context, doc model.Stored, u director.User) error {
	_, p, err := s.relyOn(ctx, doc.Metadata.Name)
	if err != nil {
		return err
	}
	now := s.Now().UTC().Truncate(time.Microsecond)
	if taken, err := s.take(ctx, u, u.Checked, now); err != nil || !taken {
		return err
	}
	owner := store.OwnerOfPerson(u.Name)
	sealed, err := s.Store.Secret(ctx, owner, refreshToken)
	if err != nil {
		return err
	}
	if sealed == nil {
		return s.end(ctx, u, "the provider gave no way to ask about the person again")
	}
	refresh, err := s.Sealer.Unseal(owner, refreshToken, sealed)
	if err != nil {
		return err
	}
	person, err := p.Again(ctx, u.Subject, director.Secret(refresh))
	switch director.KindOf(err) {
	case director.KindUnauthenticated:
		_ = s.Store.SetSecret(ctx, owner, refreshToken, nil) // it is good for nothing
		return s.end(ctx, u, "the provider does not let the person in any more")
	case director.KindUnavailable:
		// The others are asked the next time, and this one too.
		_, back := s.take(ctx, u, now, u.Checked)
		return errors.Join(err, back)
	}
	if err != nil {
		return err
	}
	if person.Refresh != "" {
		if err := s.keepRefresh(ctx, u.Name, person.Refresh); err != nil {
			return err
		}
	}
	today, err := s.user(doc, ldap.Person{Name: person.Name, FullName: person.FullName, Groups: person.Groups})
	if err != nil || today.Name != u.Name {
		return s.end(ctx, u, "no group of the person has a role, or the name has changed")
	}
	today.Subject = person.Subject
	return s.Store.EditUser(ctx, u.Name, func(e *director.UserEdit) error {
		if e.User.Provider == u.Provider && e.User.Subject == u.Subject {
			e.Confirm(today)
		}
		return nil
	})
}

// take sets when the user was confirmed, if that is as it was seen, and reports whether it was.
func (s *Service) take(ctx context.Context, u director.User, from, to time.Time) (taken bool, err error) {
	err = s.Store.EditUser(ctx, u.Name, func(e *director.UserEdit) error {
		if taken = e.User.Checked.Equal(from) && e.User.Provider == u.Provider; taken {
			e.User.Checked = to
		}
		return nil
	})
	return taken, err
}

// testOIDC is Test for an OpenID Connect provider, where no person can be looked up.
func (s *Service) testOIDC(ctx context.Context, provider, name string) ([]ldap.Finding, error) {
	doc, p, err := s.relyOn(ctx, provider)
	if err != nil {
		return nil, err
	}
	var out []ldap.Finding
	for _, f := range p.Test(ctx) {
		out = append(out, ldap.Finding{
			Server: doc.IdentityProvider.Issuer, Stage: ldap.Stage(f.Stage), Passed: f.Passed, Msg: f.Msg, Hint: f.Hint,
		})
	}
	if name != "" {
		out = append(out, ldap.Finding{
			Stage: StageRole, Msg: "an OpenID Connect provider cannot be asked about people",
			Hint: "let " + name + " log in with a browser",
		})
	}
	return out, nil
}
