// Package providers looks after the accounts that hypervisors ask for, tests whether a provider works, and tells what
// documents may name of it.
package providers

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/hypervisor/keyed"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/store"
)

// Backends gives the back end of a provider.
type Backends interface {
	Backend(ctx context.Context, provider string) (hypervisor.Backend, error)
}

// Config is what New needs.
type Config struct {
	Vault     Vault
	Backends  Backends
	Director  string // id, in the stamps of its VMs
	Simulates bool   // passwords are sent nowhere
	Now       func() time.Time
	Patience  time.Duration // how long a discovery may take; 0 is DiscoveryPatience
	Testing   time.Duration // how long a test may take; 0 is TestPatience

	// Open opens the back end of a provider that is not stored. The caller closes it.
	Open Opener
	// Check returns everything that is wrong with a document by itself, as an apply does.
	Check func(*model.Document) error
}

// Service sets credentials, tests providers and tells what they have. It is safe for concurrent use.
type Service struct {
	Config
	discoveries keyed.Locks // by provider
	drafts      keyed.Locks // by who looks at them
}

// New returns the service.
func New(c Config) *Service {
	c.Patience, c.Testing = cmp.Or(c.Patience, DiscoveryPatience), cmp.Or(c.Testing, TestPatience)
	return &Service{Config: c}
}

// CredentialsView is credentials without their password, with the providers that name them.
type CredentialsView struct {
	director.Credentials
	Providers []string
}

// sealedCredentials is what is inside of the seal. The name is in it, so that one row's seal is of no use in another.
type sealedCredentials struct {
	Name     string   `json:"name"`
	Password string   `json:"password"`
	Places   []string `json:"places,omitempty"` // where the password may go, see Vault; none until the first use
}

// SetCredentials seals and stores an account for providers, or replaces the one of the name. They are for the addresses
// and certificates of the providers that name them now. Neither providers nor clusters change.
func (s *Service) SetCredentials(
	ctx context.Context, actor, name, user string, password director.Secret,
) (director.Credentials, error) {
	const op = "providers.set_credentials"
	var fields []director.Field
	if !model.ValidCredentialsName(name) {
		fields = append(fields, director.Field{
			Path: "name", Msg: "is not allowed",
			Hint: "letters a-z, digits and dashes, beginning with a letter, at most 40",
		})
	}
	if user == "" || len(user) > 256 || strings.ContainsAny(user, "\r\n\x00") {
		fields = append(fields, director.Field{Path: "user", Msg: "is empty, too long or of more than one line"})
	}
	if password == "" || len(password) > 4096 {
		fields = append(fields, director.Field{Path: "password", Msg: "is empty or too long"})
	}
	if err := director.Invalid(op, "the credentials were not stored", fields); err != nil {
		return director.Credentials{}, err
	}
	places, err := s.Vault.places(ctx, name)
	if err != nil {
		return director.Credentials{}, err
	}
	sealed, err := sealCredentials(s.Vault.Sealer, sealedCredentials{
		Name: name, Password: password.Reveal(), Places: places,
	})
	if err != nil {
		return director.Credentials{}, err
	}
	var c director.Credentials
	err = s.Vault.Store.Update(ctx, func(tx *store.Tx) error {
		if c, err = tx.PutCredentials(name, user, sealed, actor, s.Now()); err != nil {
			return err
		}
		return tx.Audit(s.Now(), actor, "set credentials", "Credentials/"+name)
	})
	return c, err
}

// ListCredentials returns all credentials without their passwords, each with the providers that name it.
func (s *Service) ListCredentials(ctx context.Context) ([]CredentialsView, error) {
	list, err := s.Vault.Store.ListCredentials(ctx)
	if err != nil {
		return nil, err
	}
	docs, err := s.Vault.naming(ctx)
	if err != nil {
		return nil, err
	}
	out := make([]CredentialsView, len(list))
	for i, c := range list {
		out[i] = CredentialsView{Credentials: c, Providers: naming(docs, c.Name)}
	}
	return out, nil
}

// naming returns the documents that name the credentials: providers by their names, others with their kind.
func naming(docs []model.Stored, name string) []string {
	var out []string
	for _, d := range docs {
		switch {
		case !d.NamesCredentials(name):
		case d.Provider != nil:
			out = append(out, d.Metadata.Name)
		default:
			out = append(out, d.Ref().String())
		}
	}
	return out
}

// DeleteCredentials removes credentials that no provider names.
func (s *Service) DeleteCredentials(ctx context.Context, actor, name string) error {
	return s.Vault.Store.Update(ctx, func(tx *store.Tx) error {
		docs, err := tx.Documents()
		if err != nil {
			return err
		}
		if used := naming(docs, name); len(used) > 0 {
			return director.Errorf(
				director.KindConflict, "providers.delete_credentials", "credentials %s are used by %s", name,
				strings.Join(used, ", "),
			).
				WithHint("let the provider name others first")
		}
		if err := tx.DeleteCredentials(name); err != nil {
			return err
		}
		return tx.Audit(s.Now(), actor, "delete credentials", "Credentials/"+name)
	})
}

// TestProvider connects to the provider and looks at what the director needs of it: everything that is wrong comes back
// at once, also that it hangs. Nothing is changed.
func (s *Service) TestProvider(ctx context.Context, name string) ([]hypervisor.Probe, error) {
	doc, err := s.Vault.Store.Document(ctx, model.Ref{Kind: model.KindProvider, Name: name})
	if err != nil {
		return nil, err
	}
	var out []hypervisor.Probe
	if c := doc.Provider.CredentialsName(); c != "" {
		p := hypervisor.Probe{What: "credentials " + c}
		if p.Err = s.tryCredentials(ctx, name, *doc.Provider); p.Err == nil {
			p.Found = "they can be read"
		}
		if out = append(out, p); p.Err != nil {
			return out, nil // what follows would say the same in worse words
		}
	}
	b, err := s.Backends.Backend(ctx, name)
	if err != nil {
		return append(out, hypervisor.Probe{What: "settings", Err: err}), nil
	}
	soon, cancel := context.WithTimeout(ctx, s.Testing)
	defer cancel()
	probes, err := s.probe(soon, b)
	if soon.Err() != nil && ctx.Err() == nil {
		late := director.Errorf(
			director.KindUnavailable, "providers.test", "not everything has answered within %s", s.Testing,
		).
			WithHint("look at the hypervisor itself, and at the network between it and the director")
		return append(append(out, probes...), hypervisor.Probe{What: "answers", Err: late}), nil
	}
	return append(out, probes...), err
}

func (s *Service) probe(ctx context.Context, b hypervisor.Backend) ([]hypervisor.Probe, error) {
	if p, ok := hypervisor.Capability[hypervisor.Prober](b); ok {
		return p.Probe(ctx)
	}
	_, err := b.List(ctx, hypervisor.Filter{Director: s.Director})
	return []hypervisor.Probe{{What: "list VMs", Err: err}}, ctx.Err()
}

// tryCredentials opens the credentials of a provider. A director that simulates sends them nowhere.
func (s *Service) tryCredentials(ctx context.Context, name string, p model.Provider) error {
	if p.VSphere == nil || s.Simulates {
		_, err := s.Vault.Reveal(ctx, p.CredentialsName())
		return err
	}
	_, err := s.Vault.Open(ctx, name, *p.VSphere)
	return err
}
