// Package people knows the users whom directories keep: it checks their passwords there, gives them the role that their
// groups have, and ends what they have open when the directory does not confirm them any more.
package people

import (
	"cmp"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/ldap"
	"github.com/director-kaas/kaas/director/model"
)

// Store keeps documents and users. All methods are safe for concurrent use and return *director.Error.
type Store interface {
	Documents(ctx context.Context, kind model.Kind) ([]model.Stored, error)
	Document(ctx context.Context, ref model.Ref) (model.Stored, error)
	EditUser(ctx context.Context, name string, edit func(*director.UserEdit) error) error
	PeopleToCheck(ctx context.Context, provider string, before, now time.Time) ([]director.User, error)
	PeopleProviders(ctx context.Context, now time.Time) ([]string, error)
	UseLogin(ctx context.Context, hash string, at time.Time) error
	Secret(ctx context.Context, owner, name string) ([]byte, error)
	SetSecret(ctx context.Context, owner, name string, sealed []byte) error
}

// Sealer keeps what asks providers about people again. seal.Box implements it.
type Sealer interface {
	Seal(owner, name string, plain []byte) ([]byte, error)
	Unseal(owner, name string, sealed []byte) ([]byte, error)
}

// Accounts opens the account that searches in the directory of an IdentityProvider.
type Accounts interface {
	OpenIdentity(ctx context.Context, provider string, p model.IdentityProvider) (director.Credentials, error)
}

// Config is what New needs. All fields must be set.
type Config struct {
	Store    Store
	Accounts Accounts
	Sealer   Sealer
	URL      string           // of the director, for browsers
	Networks confine.Networks // where directories may be
	// CheckName returns what is wrong with the name of a user of this director.
	CheckName func(name string) []director.Field
	Now       func() time.Time
	Log       *slog.Logger
}

// Service asks directories. It is safe for concurrent use.
type Service struct {
	Config
	asking chan struct{} // holds an entry for each login that asks a directory

	mu     sync.Mutex
	open   map[string]opened
	relied map[string]relied
}

// opened is a directory as its document and its account were when it was opened. It remembers which server is down.
type opened struct {
	uid                  string
	generation, revision int64
	*ldap.Directory
}

// mostLogins bounds how many logins wait for directories at once: one that hangs must not take all memory.
const mostLogins = 64

// New returns the service.
func New(c Config) *Service {
	return &Service{
		Config: c, asking: make(chan struct{}, mostLogins), open: map[string]opened{}, relied: map[string]relied{},
	}
}

// Login returns the user whose name and password these are in a directory, with the role of their groups. ok is false
// if no directory says so. provider narrows to the one that keeps the user; otherwise the first one that has a person
// of the name decides. Errors: unauthenticated for a person whose groups have no role, or whose name cannot be used;
// unavailable for a directory that does not answer; exhausted while too many logins wait.
func (s *Service) Login(
	ctx context.Context, name string, password director.Secret, provider string,
) (u director.User, ok bool, err error) {
	docs, err := s.providers(ctx, provider)
	docs = slices.DeleteFunc(docs, func(d model.Stored) bool { return d.IdentityProvider.Type == model.IdentityOIDC })
	if err != nil || len(docs) == 0 {
		return u, false, err
	}
	select {
	case s.asking <- struct{}{}:
		defer func() { <-s.asking }()
	default:
		return u, false, director.Errorf(
			director.KindExhausted, "people.login", "too many logins wait for a directory",
		).WithHint("try again in a moment; a local user can log in meanwhile")
	}
	for _, doc := range docs {
		d, err := s.directory(ctx, doc)
		if err != nil {
			return u, false, s.broken(ctx, doc, err)
		}
		p, err := d.Login(ctx, name, password)
		switch {
		case err == nil:
			u, err := s.user(doc, p)
			return u, err == nil, err
		case errors.Is(err, ldap.ErrNoPerson):
			continue
		case director.KindOf(err) == director.KindUnauthenticated:
			return u, false, nil
		}
		return u, false, s.broken(ctx, doc, err)
	}
	return u, false, nil
}

// broken logs why a directory cannot be asked, and returns what the person may know of it. A later provider is not
// asked: it could have another person of the name.
func (s *Service) broken(ctx context.Context, doc model.Stored, err error) error {
	s.Log.ErrorContext(ctx, "a directory cannot be asked", "provider", doc.Metadata.Name, "err", err)
	return director.Errorf(
		director.KindUnavailable, "people.login", "the directory %s does not answer", doc.Metadata.Name,
	).WithHint("ask an administrator to run: directorctl provider test-identity %s", doc.Metadata.Name)
}

// providers returns the providers in the order in which they are asked, or the one of the name.
func (s *Service) providers(ctx context.Context, name string) ([]model.Stored, error) {
	docs, err := s.Store.Documents(ctx, model.KindIdentityProvider)
	if err != nil {
		return nil, err
	}
	docs = slices.DeleteFunc(docs, func(d model.Stored) bool {
		return d.IdentityProvider == nil || name != "" && d.Metadata.Name != name
	})
	slices.SortStableFunc(docs, func(a, b model.Stored) int {
		return cmp.Or(cmp.Compare(a.IdentityProvider.Order, b.IdentityProvider.Order),
			strings.Compare(a.Metadata.Name, b.Metadata.Name))
	})
	return docs, nil
}

// directory returns the directory of the document with its account of today.
func (s *Service) directory(ctx context.Context, doc model.Stored) (*ldap.Directory, error) {
	account, err := s.Accounts.OpenIdentity(ctx, doc.Metadata.Name, *doc.IdentityProvider)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	had := s.open[doc.Metadata.Name]
	if had.Directory != nil && had.uid == doc.UID && had.generation == doc.Generation &&
		had.revision == account.Revision {
		return had.Directory, nil
	}
	c := configOf(*doc.IdentityProvider)
	c.BindDN, c.Password, c.Now, c.Dial = account.User, account.Password, s.Now, s.Networks.Dialer().DialContext
	d, err := ldap.New(c)
	if err != nil {
		return nil, err
	}
	s.open[doc.Metadata.Name] = opened{doc.UID, doc.Generation, account.Revision, d}
	return d, nil
}

func configOf(p model.IdentityProvider) ldap.Config {
	c := ldap.Config{
		Kind: ldap.Kind(p.Type), Servers: p.Servers, StartTLS: p.StartTLS, CA: []byte(p.CA), UserBase: p.UserBase,
		UserFilter: p.UserFilter, UserName: p.UserName, FullName: p.FullName, Mail: p.Mail, GroupBase: p.GroupBase,
		GroupFilter: p.GroupFilter, Member: p.Member,
	}
	for _, r := range p.Roles {
		c.Groups = append(c.Groups, r.Group)
	}
	return c
}

// Check returns what is wrong with a document beyond what the model can tell. It does not connect.
func Check(p model.IdentityProvider) []director.Field {
	if p.Type == model.IdentityOIDC {
		fields := oidcConfigOf(p).Check()
		for i := range fields {
			fields[i].Path = "spec." + fields[i].Path
		}
		return fields
	}
	c := configOf(p)
	c.BindDN, c.Password = "cn=checked,dc=later", "checked later" // the account is in the credentials
	var out []director.Field
	for _, f := range c.Check() {
		path, rest, ok := strings.Cut(f.Path, "groups[")
		if ok {
			path = "roles[" + strings.Replace(rest, "]", "].group", 1)
		}
		f.Path = "spec." + path
		out = append(out, f)
	}
	return out
}

// strength sorts the roles that the groups of one person have.
var strength = []director.UserRole{
	director.RoleAdmin, director.RoleOperator, director.RoleAuditor, director.RoleUser, director.RoleNone,
}

// role returns the strongest role of the groups, or "".
func role(p model.IdentityProvider, groups []string) director.UserRole {
	for _, r := range strength {
		for _, mapped := range p.Roles {
			if mapped.Role == string(r) && slices.Contains(groups, mapped.Group) {
				return r
			}
		}
	}
	return ""
}

// user returns the user that the person is.
func (s *Service) user(doc model.Stored, p ldap.Person) (director.User, error) {
	const op = "people.login"
	name := strings.ToLower(p.Name)
	if f := s.CheckName(name); len(f) > 0 {
		return director.User{}, director.Errorf(
			director.KindUnauthenticated, op, "the name %q of the directory %s %s", p.Name, doc.Metadata.Name, f[0].Msg,
		).WithHint("ask an administrator; %s", f[0].Hint)
	}
	r := role(*doc.IdentityProvider, p.Groups)
	if r == "" {
		return director.User{}, director.Errorf(
			director.KindUnauthenticated, op, "none of your groups in the directory %s may use the director",
			doc.Metadata.Name,
		).WithHint("ask an administrator for a group that IdentityProvider/%s names", doc.Metadata.Name)
	}
	now := s.Now().UTC()
	return director.User{
		Name: name, Role: r, Provider: doc.Metadata.Name, FullName: plain(p.FullName), Groups: sorted(p.Groups),
		Checked: now, Created: now, Updated: now,
	}, nil
}

func sorted(groups []string) []string {
	groups = slices.Clone(groups)
	slices.Sort(groups)
	return slices.Compact(groups)
}

// plain is a full name as it can be shown: a directory's administrator may not write to other people's terminals.
func plain(name string) string {
	const most = 128
	if director.CheckLine(name) != nil {
		return ""
	}
	if r := []rune(name); len(r) > most {
		return string(r[:most])
	}
	return name
}
