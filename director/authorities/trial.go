package authorities

import (
	"context"
	"fmt"
	"reflect"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/pki"
)

// Finding is one thing that a test of an authority looked at.
type Finding struct {
	What  string
	Found string // what was found, if it is well
	Err   error  // what is wrong, with what to do; nil if it is well
}

func needOf(d model.Stored) pki.Need {
	return pki.UsualNeed(time.Duration(d.CertificateAuthority.LeastLife))
}

// tryLimit is how long a trial may hold up the change of a document.
const tryLimit = 15 * time.Second

// peeking opens credentials for documents that are not stored yet.
type peeking struct{ Accounts }

// OpenAuthority implements Accounts.
func (p peeking) OpenAuthority(
	ctx context.Context, name string, a model.CertificateAuthority,
) (director.Credentials, error) {
	return p.PeekAuthority(ctx, name, a)
}

// Try has an authority signed on trial before the document is stored, if its credentials were set and the document
// differs from the stored one. It returns what is wrong with the document. A server that does not answer in time is no
// mistake of the document: List says so until an authority is signed.
func (s *Service) Try(ctx context.Context, name string, a model.CertificateAuthority) []director.Field {
	if a.Type != model.AuthorityUploaded && a.Type != model.AuthorityStepCA {
		return nil
	}
	if _, err := s.Accounts.PeekAuthority(ctx, name, a); err != nil {
		return nil // they are set afterwards
	}
	if was, err := s.document(ctx, name); err == nil && reflect.DeepEqual(*was.CertificateAuthority, a) {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, tryLimit)
	defer cancel()
	c := s.Config
	c.Accounts, c.Patience = peeking{s.Accounts}, min(c.Patience, tryLimit)
	d := model.Stored{Document: model.Document{
		Kind: model.KindCertificateAuthority, Metadata: model.Metadata{Name: name}, CertificateAuthority: &a,
	}}
	_, err := New(c).issue(ctx, d, "trial of "+name, pki.UsualNeed(0))
	fields := director.FieldsOf(err)
	for i := range fields {
		fields[i].Path = strings.TrimPrefix(fields[i].Path, d.Ref().String()+": ")
	}
	if len(fields) == 0 {
		s.remember(name, err)
	}
	return fields
}

func (s *Service) remember(name string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil {
		delete(s.tried, name)
		return
	}
	s.tried[name] = err
}

func (s *Service) untried(name string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.tried[name]
}

// Test looks at everything that the director needs of the authority, and has an authority signed on trial, whose key is
// forgotten. What depends on what is wrong is not looked at.
func (s *Service) Test(ctx context.Context, name string) ([]Finding, error) {
	d, err := s.document(ctx, name)
	if err != nil {
		return nil, err
	}
	var found []Finding
	add := func(what, well string, err error) bool {
		f := Finding{What: what, Err: err}
		if err == nil {
			f.Found = well
		}
		found = append(found, f)
		return err == nil
	}
	switch d.CertificateAuthority.Type {
	case model.AuthorityStepCA:
		if !s.testServer(ctx, d, add) {
			return found, nil
		}
	case model.AuthorityUploaded, model.AuthorityCSR:
		ca, err := s.issuer(ctx, d)
		well := ""
		if err == nil {
			well = described(ca)
		}
		if !add("certificate and key", well, err) {
			return found, nil
		}
	}
	pair, err := s.issue(ctx, d, "trial of "+name, pki.UsualNeed(0))
	well := ""
	if err == nil {
		well = described(pair)
	}
	add("an authority that is signed on trial", well, err)
	return found, nil
}

// testServer looks at what comes before a signature. Each part hides the next ones if it is wrong.
func (s *Service) testServer(ctx context.Context, d model.Stored, add func(what, well string, err error) bool) bool {
	spec := d.CertificateAuthority.StepCA
	account, err := s.Accounts.OpenAuthority(ctx, d.Metadata.Name, *d.CertificateAuthority)
	if !add("credentials "+spec.Credentials, "they can be read", err) {
		return false
	}
	c, err := s.connect(ctx, d)
	if !add("server "+spec.URL, "it has the root certificate", err) {
		return false
	}
	encrypted, err := c.find(ctx, s.Patience)
	if !add("provisioner "+spec.Provisioner, "it is there", err) {
		return false
	}
	_, err = c.open(encrypted, account.Password)
	return add("password of the provisioner", "it opens the provisioner's key", err)
}

func described(p pki.Pair) string {
	c, err := pki.ParseCert(p.Cert)
	if err != nil {
		return ""
	}
	return fmt.Sprintf("%s, until %s", c.Subject, c.NotAfter.UTC().Format(time.RFC3339))
}

// Ready returns an error if the authority could not issue for a cluster now, as far as that can be told without a
// signature of a server.
func (s *Service) Ready(ctx context.Context, name string) error {
	d, err := s.document(ctx, name)
	if err != nil {
		return err
	}
	switch d.CertificateAuthority.Type {
	case model.AuthorityUploaded, model.AuthorityCSR:
		_, err = s.issuer(ctx, d)
	case model.AuthorityStepCA:
		_, _, err = s.ready(ctx, d)
	}
	return err
}
