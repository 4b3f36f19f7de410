// Package authorities issues the certificate authorities of clusters from outer ones: some that the director has the
// key of, and servers that it asks.
package authorities

import (
	"cmp"
	"context"
	"slices"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/pki"
)

// Store is the database, as far as this package reads and writes it.
type Store interface {
	Documents(ctx context.Context, kind model.Kind) ([]model.Stored, error)
	Document(ctx context.Context, ref model.Ref) (model.Stored, error)
	Secret(ctx context.Context, owner, name string) ([]byte, error)
	SetSecret(ctx context.Context, owner, name string, sealed []byte) error
}

// Accounts opens the credentials that a CertificateAuthority names.
type Accounts interface {
	OpenAuthority(ctx context.Context, name string, a model.CertificateAuthority) (director.Credentials, error)
	// PeekAuthority is OpenAuthority for a document that may not be stored yet, and binds the credentials to nothing.
	PeekAuthority(ctx context.Context, name string, a model.CertificateAuthority) (director.Credentials, error)
}

// Config is what the service works with.
type Config struct {
	Store    Store
	Accounts Accounts
	Sealer   pki.Sealer
	Networks confine.Networks // that servers may be in
	Now      func() time.Time
	Patience time.Duration // how long a server may take to answer; 0 is a usual time
}

const usualPatience = 20 * time.Second

// Service issues authorities, and looks after those whose key the director made. It is safe for concurrent use.
type Service struct {
	Config
	requests sync.Mutex // changes of what is kept of requests

	mu    sync.Mutex
	tried map[string]error // why a trial at the last change could not be made, by name
}

// New returns the service.
func New(c Config) *Service {
	c.Patience = cmp.Or(c.Patience, usualPatience)
	return &Service{Config: c, tried: map[string]error{}}
}

// View is a CertificateAuthority with what the director knows of it without asking anyone.
type View struct {
	Name    string
	Type    string
	Subject string    // of the certificate that signs; empty without one
	Ends    time.Time // zero without a certificate
	Waiting bool      // for a certificate to be imported
	Problem string    // why it cannot issue; empty as far as the director knows
	Hint    string
}

// List returns all CertificateAuthorities by name. No server is asked.
func (s *Service) List(ctx context.Context) ([]View, error) {
	docs, err := s.Store.Documents(ctx, model.KindCertificateAuthority)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(docs, func(a, b model.Stored) int { return cmp.Compare(a.Metadata.Name, b.Metadata.Name) })
	out := make([]View, len(docs))
	for i, d := range docs {
		out[i] = s.view(ctx, d)
	}
	return out, nil
}

// Chain is the certificate of an outer authority, followed by those that signed it, as far as the director has them.
type Chain struct {
	Name, PEM string
	Err       error // why it cannot be read
}

// Chains returns the certificates of the authorities that were uploaded or imported, by name.
func (s *Service) Chains(ctx context.Context) ([]Chain, error) {
	docs, err := s.Store.Documents(ctx, model.KindCertificateAuthority)
	if err != nil {
		return nil, err
	}
	var out []Chain
	for _, d := range docs {
		if chain, _, err := s.chain(ctx, d); chain != "" || err != nil {
			out = append(out, Chain{d.Metadata.Name, chain, err})
		}
	}
	slices.SortFunc(out, func(a, b Chain) int { return cmp.Compare(a.Name, b.Name) })
	return out, nil
}

// chain returns the certificates of the authority, and whether another one is waited for.
func (s *Service) chain(ctx context.Context, d model.Stored) (chain string, waiting bool, err error) {
	switch d.CertificateAuthority.Type {
	case model.AuthorityUploaded:
		return d.CertificateAuthority.Certificate, false, nil
	case model.AuthorityCSR:
		k, err := s.kept(ctx, d)
		return k.Certificate, k.Next != nil, err
	}
	return "", false, nil
}

func (s *Service) view(ctx context.Context, d model.Stored) View {
	v := View{Name: d.Metadata.Name, Type: d.CertificateAuthority.Type}
	chain, waiting, err := s.chain(ctx, d)
	if err == nil {
		v.Waiting = waiting
	}
	if c, err := pki.ParseCert(chain); err == nil {
		v.Subject, v.Ends = c.Subject.String(), c.NotAfter
	}
	if err := s.untried(v.Name); err != nil {
		v.Problem, v.Hint = "when it was applied: "+director.MessageOf(err), director.HintOf(err)
	}
	if v.Type == model.AuthorityStepCA || v.Type == model.AuthoritySelf {
		return v
	}
	if _, err := s.issuer(ctx, d); err != nil {
		v.Problem, v.Hint = director.MessageOf(err), director.HintOf(err)
		if fields := director.FieldsOf(err); len(fields) > 0 {
			v.Problem, v.Hint = fields[0].Path+" "+fields[0].Msg, fields[0].Hint
		}
	}
	return v
}

// Issue returns a new authority for a cluster, alone: without the certificates of those that signed it. It is good for
// all that the cluster needs. A call that was cut off leaves nothing in the director; a server may have signed a
// certificate whose key is gone. Errors: not_found without the document; invalid, with fields, if what is issued is of
// no use for the cluster; conflict while a certificate is missing; unavailable if a server does not answer.
func (s *Service) Issue(ctx context.Context, name, subject string, n pki.Need) (pki.Pair, error) {
	d, err := s.document(ctx, name)
	if err != nil {
		return pki.Pair{}, err
	}
	pair, err := s.issue(ctx, d, subject, n)
	if err != nil {
		return pki.Pair{}, err
	}
	return pki.Alone(pair)
}

// issue returns an authority, followed by those that signed it.
func (s *Service) issue(ctx context.Context, d model.Stored, subject string, n pki.Need) (pki.Pair, error) {
	a := d.CertificateAuthority
	n.Left = time.Duration(a.LeastLife)
	var pair, issuer pki.Pair
	var err error
	switch a.Type {
	case model.AuthoritySelf:
		pair, err = pki.NewSelfSigned(subject, time.Duration(a.Life))
	case model.AuthorityStepCA:
		pair, err = s.ask(ctx, d, subject)
	default:
		if issuer, err = s.issuer(ctx, d); err == nil {
			pair, err = pki.IssueCA(issuer, subject, time.Duration(a.Life), s.Now())
			pair.Cert += issuer.Cert
		}
	}
	if err != nil {
		return pki.Pair{}, err
	}
	err = problemsOf(d, pki.CheckCluster(pair, n, s.Now()))
	if err == nil {
		s.remember(d.Metadata.Name, nil)
	}
	return pair, err
}

// issuer returns the outer authority that the director has the key of, once it can sign for clusters.
func (s *Service) issuer(ctx context.Context, d model.Stored) (pki.Pair, error) {
	a := d.CertificateAuthority
	var ca pki.Pair
	switch a.Type {
	case model.AuthorityUploaded:
		account, err := s.Accounts.OpenAuthority(ctx, d.Metadata.Name, *a)
		if err != nil {
			return pki.Pair{}, err
		}
		ca = pki.Pair{Cert: a.Certificate, Key: account.Password}
	case model.AuthorityCSR:
		k, err := s.kept(ctx, d)
		if err != nil {
			return pki.Pair{}, err
		}
		if k.Certificate == "" {
			return pki.Pair{}, director.Errorf(
				director.KindConflict, "authorities.issuer", "CertificateAuthority/%s has no certificate yet",
				d.Metadata.Name,
			).WithHint("have its request signed (directorctl ca csr %s), and bring the certificate back: "+
				"directorctl ca import %s FILE", d.Metadata.Name, d.Metadata.Name)
		}
		ca = pki.Pair{Cert: k.Certificate, Key: director.Secret(k.Key)}
	}
	return ca, problemsOf(d, pki.CheckIssuer(ca, pki.UsualNeed(time.Duration(a.LeastLife)), s.Now()))
}

func (s *Service) document(ctx context.Context, name string) (model.Stored, error) {
	return s.Store.Document(ctx, model.Ref{Kind: model.KindCertificateAuthority, Name: name})
}

// Check returns what can be said to be wrong with a document before it is stored.
func (s *Service) Check(a model.CertificateAuthority) []director.Field {
	if a.Type != model.AuthorityUploaded {
		return nil
	}
	fields := pki.CheckIssuer(pki.Pair{Cert: a.Certificate}, pki.UsualNeed(time.Duration(a.LeastLife)), s.Now())
	for i := range fields {
		fields[i].Path = "spec." + fields[i].Path
	}
	return fields
}

// problemsOf returns an invalid error that names the fields of the document, or nil.
func problemsOf(d model.Stored, fields []director.Field) error {
	a := d.CertificateAuthority
	for i, f := range fields {
		path := "spec." + f.Path
		switch {
		case a.Type == model.AuthorityUploaded && f.Path == pki.FieldKey:
			path = "spec.credentials"
		case a.Type == model.AuthorityCSR:
			path = "the imported " + f.Path
		case a.Type == model.AuthorityStepCA && f.Path == pki.FieldKey:
			path = "spec.stepCA.url"
			fields[i].Msg = "leads to a server that answered with a certificate of another key"
			fields[i].Hint = "check what answers there: it must be step-ca, with nothing in between"
		case a.Type == model.AuthorityStepCA:
			path = "spec.stepCA.provisioner"
			fields[i].Msg = "issues an authority that " + f.Msg
			fields[i].Hint = "correct the template or the claims of the provisioner, see the manual: " + f.Hint
		case a.Type == model.AuthoritySelf:
			path = "spec.life"
		}
		fields[i].Path = d.Ref().String() + ": " + path
	}
	return director.Invalid("authorities.check", d.Ref().String()+" cannot issue authorities for clusters", fields)
}
