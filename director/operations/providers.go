package operations

import (
	"context"
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/store"
)

var _ api.Providers = (*Operations)(nil)

// sealedCredentials is what is inside of the seal. The name is in it, so that one row's seal is of no use in another.
type sealedCredentials struct {
	Name     string   `json:"name"`
	Password string   `json:"password"`
	Places   []string `json:"places,omitempty"` // where the password may go, see Vault; none until the first use
}

// OpenCredentials returns the credentials with their password, for no place in particular. Back ends ask Vault.
func OpenCredentials(ctx context.Context, db *store.Store, box pki.Sealer, name string) (director.Credentials, error) {
	row, err := openSealed(ctx, db, box, name)
	return row.Credentials, err
}

// vault opens credentials for the providers.
func (o *Operations) vault() Vault {
	return Vault{Store: o.Store, Sealer: o.Env.Sealer, Files: o.Confine.ProviderFiles}
}

// SetCredentials seals and stores an account for providers, or replaces the one of the name. They are for the addresses
// and certificates of the providers that name them now. Neither providers nor clusters change.
func (o *Operations) SetCredentials(ctx context.Context, actor, name, user string, password director.Secret) (director.Credentials, error) {
	const op = "operations.set_credentials"
	var fields []director.Field
	if !model.ValidCredentialsName(name) {
		fields = append(fields, director.Field{Path: "name", Msg: "is not allowed", Hint: "letters a-z, digits and dashes, beginning with a letter, at most 40"})
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
	places, err := o.vault().places(ctx, name)
	if err != nil {
		return director.Credentials{}, err
	}
	sealed, err := sealCredentials(o.Env.Sealer, sealedCredentials{Name: name, Password: password.Reveal(), Places: places})
	if err != nil {
		return director.Credentials{}, err
	}
	var c director.Credentials
	err = o.Store.Update(ctx, func(tx *store.Tx) error {
		if c, err = tx.PutCredentials(name, user, sealed, actor, o.Now()); err != nil {
			return err
		}
		return tx.Audit(o.Now(), actor, "set credentials", "Credentials/"+name)
	})
	return c, err
}

// ListCredentials returns all credentials without their passwords, each with the providers that name it.
func (o *Operations) ListCredentials(ctx context.Context) ([]api.CredentialsView, error) {
	list, err := o.Store.ListCredentials(ctx)
	if err != nil {
		return nil, err
	}
	docs, err := o.Store.Documents(ctx, model.KindProvider)
	if err != nil {
		return nil, err
	}
	out := make([]api.CredentialsView, len(list))
	for i, c := range list {
		out[i] = api.CredentialsView{Credentials: c, Providers: naming(docs, c.Name)}
	}
	return out, nil
}

// naming returns the providers that name the credentials.
func naming(docs []model.Stored, name string) []string {
	var out []string
	for _, d := range docs {
		if d.Provider != nil && d.Provider.CredentialsName() == name {
			out = append(out, d.Metadata.Name)
		}
	}
	return out
}

// DeleteCredentials removes credentials that no provider names.
func (o *Operations) DeleteCredentials(ctx context.Context, actor, name string) error {
	return o.Store.Update(ctx, func(tx *store.Tx) error {
		docs, err := tx.Documents()
		if err != nil {
			return err
		}
		if used := naming(docs, name); len(used) > 0 {
			return director.Errorf(director.KindConflict, "operations.delete_credentials", "credentials %s are used by Provider/%s", name, strings.Join(used, ", Provider/")).
				WithHint("let the provider name others first")
		}
		if err := tx.DeleteCredentials(name); err != nil {
			return err
		}
		return tx.Audit(o.Now(), actor, "delete credentials", "Credentials/"+name)
	})
}

// TestProvider connects to the provider and looks at what the director needs of it: everything that is wrong comes back at once. Nothing is changed.
func (o *Operations) TestProvider(ctx context.Context, name string) ([]hypervisor.Probe, error) {
	doc, err := o.Store.Document(ctx, model.Ref{Kind: model.KindProvider, Name: name})
	if err != nil {
		return nil, err
	}
	var out []hypervisor.Probe
	if c := doc.Provider.CredentialsName(); c != "" {
		p := hypervisor.Probe{What: "credentials " + c}
		if p.Err = o.tryCredentials(ctx, name, *doc.Provider); p.Err == nil {
			p.Found = "they can be read"
		}
		if out = append(out, p); p.Err != nil {
			return out, nil // what follows would say the same in worse words
		}
	}
	b, err := o.Env.Backends.Backend(ctx, name)
	if err != nil {
		return append(out, hypervisor.Probe{What: "settings", Err: err}), nil
	}
	if p, ok := hypervisor.Capability[hypervisor.Prober](b); ok {
		probes, err := p.Probe(ctx)
		return append(out, probes...), err
	}
	_, err = b.List(ctx, hypervisor.Filter{Director: o.Director.ID})
	return append(out, hypervisor.Probe{What: "list VMs", Err: err}), ctx.Err()
}

// tryCredentials opens the credentials of a provider. A director that simulates sends them nowhere.
func (o *Operations) tryCredentials(ctx context.Context, name string, p model.Provider) error {
	if p.VSphere == nil || slices.Contains(o.ProviderTypes, model.ProviderSim) {
		_, err := OpenCredentials(ctx, o.Store, o.Env.Sealer, p.CredentialsName())
		return err
	}
	_, err := o.vault().Open(ctx, name, *p.VSphere)
	return err
}
