package providers

import (
	"context"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/chain"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/store"
)

// Accounts opens the account of a vCenter.
type Accounts func(ctx context.Context, provider string, s model.VSphere) (director.Credentials, error)

// Opener opens a back end that the caller closes. It asks accounts for the account of a vCenter.
type Opener func(provider string, p model.Provider, accounts Accounts) (hypervisor.Backend, error)

// Draft is a provider that is not stored.
type Draft struct {
	Text     []byte // its document; only type, addresses and account have to be right
	User     string // of the account that is used instead of the one that the document names; empty for that one
	Password director.Secret
}

// unknown is the name of what is not needed to ask a provider what it has.
const unknown = "unknown"

// DiscoverDraft is Discover for a provider that need not be stored. Only its type, its addresses and its account are
// looked at. Nothing is stored but who looked where, in the audit trail. One draft of a person is looked at at a time.
// An account of the request is used for this call alone. Credentials that were set for other places are not opened:
// the caller has made sure that actor may set credentials. Errors: those of Discover, and invalid with all problems of
// the addresses and the account.
func (s *Service) DiscoverDraft(ctx context.Context, actor string, d Draft) (hypervisor.Discovery, error) {
	const op = "providers.discover_draft"
	doc, err := s.draft(d)
	if err != nil {
		return hypervisor.Discovery{}, err
	}
	name, p := doc.Metadata.Name, *doc.Provider
	accounts, err := s.accounts(ctx, name, p, d)
	if err != nil {
		return hypervisor.Discovery{}, err
	}
	err = s.Vault.Store.AddAudit(ctx, store.AuditEntry{
		At: s.Now(), Actor: actor, Action: "discover at " + addresses(p), Object: doc.Ref().String(), Outcome: chain.OK,
	})
	if err != nil {
		return hypervisor.Discovery{}, err
	}
	soon, cancel := context.WithTimeout(ctx, s.Patience)
	defer cancel()
	found, err := s.discoverDraft(soon, op, actor, name, p, accounts)
	return found, hypervisor.Late(ctx, soon, op, name, s.Patience, err)
}

func (s *Service) discoverDraft(
	ctx context.Context, op, actor, name string, p model.Provider, accounts Accounts,
) (hypervisor.Discovery, error) {
	release, err := s.drafts.Lock(ctx, actor)
	if err != nil {
		return hypervisor.Discovery{}, director.Errorf(director.KindUnavailable, op, "interrupted: %w", err)
	}
	defer release()
	b, err := s.Open(name, p, accounts)
	if err != nil {
		return hypervisor.Discovery{}, err
	}
	found, err := tell(ctx, op, name, b)
	if closed := b.Close(); err == nil {
		err = closed
	}
	return found, err
}

// accounts opens the account of the request, or the one that the provider names. A director that simulates sends it
// nowhere.
func (s *Service) accounts(ctx context.Context, name string, p model.Provider, d Draft) (Accounts, error) {
	open := s.Vault.Peek
	switch {
	case d.User != "":
		open = func(context.Context, string, model.VSphere) (director.Credentials, error) {
			return director.Credentials{Name: unknown, User: d.User, Password: d.Password}, nil
		}
	case s.Simulates:
		open = func(ctx context.Context, _ string, v model.VSphere) (director.Credentials, error) {
			return s.Vault.Reveal(ctx, v.Credentials)
		}
	}
	if p.CredentialsName() == "" {
		return open, nil
	}
	_, err := open(ctx, name, *p.VSphere) // it is refused before anything is asked
	return open, err
}

// draft reads the one document of the text. What is not needed to ask is left out, so that nothing is wrong with it.
func (s *Service) draft(d Draft) (model.Document, error) {
	const op = "providers.discover_draft"
	docs, err := model.ParsePart(d.Text, "input")
	if err != nil {
		return model.Document{}, err
	}
	if len(docs) != 1 || docs[0].Provider == nil {
		return model.Document{}, director.Errorf(director.KindInvalid, op, "the document is not one Provider").
			WithHint("send the document of one provider")
	}
	doc := docs[0]
	var fields []director.Field
	if doc.Provider.VSphere == nil && (d.User != "" || d.Password != "") {
		fields = append(fields, director.Field{
			Path: "user", Msg: "is for a vCenter alone", Hint: "leave it out; libvirt reads its keys from files",
		})
	}
	if (d.User == "") != (d.Password == "") {
		fields = append(fields, director.Field{Path: "user", Msg: "and password belong together"})
	}
	if err := director.Invalid(op, "the provider was not asked", fields); err != nil {
		return model.Document{}, err
	}
	doc.Provider = bare(*doc.Provider, d.User != "")
	model.Default(&doc)
	return doc, s.Check(&doc)
}

// bare is the provider with its addresses and its account alone, and with stand-ins for what documents must name.
func bare(p model.Provider, account bool) *model.Provider {
	out := &model.Provider{Type: p.Type, Sim: p.Sim}
	if l := p.Libvirt; l != nil {
		out.Libvirt = &model.Libvirt{}
		for _, h := range l.Hosts {
			out.Libvirt.Hosts = append(out.Libvirt.Hosts, model.LibvirtHost{Name: h.Name, URI: h.URI})
		}
	}
	if v := p.VSphere; v != nil {
		out.VSphere = &model.VSphere{
			URL: v.URL, Thumbprint: v.Thumbprint, CAFile: v.CAFile, Credentials: v.Credentials, User: v.User,
			PasswordFile: v.PasswordFile, Datacenter: unknown, Cluster: unknown, Datastores: []string{unknown},
		}
		if account {
			out.VSphere.Credentials, out.VSphere.User, out.VSphere.PasswordFile = unknown, "", ""
		}
	}
	return out
}

// addresses says where the provider is.
func addresses(p model.Provider) string {
	switch {
	case p.VSphere != nil:
		return p.VSphere.URL
	case p.Libvirt != nil:
		all := make([]string, len(p.Libvirt.Hosts))
		for i, h := range p.Libvirt.Hosts {
			all[i] = h.URI
		}
		return strings.Join(all, " ")
	}
	return p.Type
}
