package authorities

import (
	"cmp"
	"context"
	"encoding/json"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/pki"
)

// secretRequest is what is kept of an authority of the type csr, sealed, for the UID of its document.
const secretRequest = "authority-request"

// below is the path length that is asked for: one authority below it, that of a cluster.
const below = 1

// kept is what the director has of an authority whose key it made.
type kept struct {
	Key         string   `json:"key,omitempty"`         // of Certificate
	Certificate string   `json:"certificate,omitempty"` // as it was imported, with those that signed it
	Request     string   `json:"request,omitempty"`     // that Certificate was issued for
	Next        *request `json:"next,omitempty"`        // whose certificate is waited for
}

// request is a key with the request for its certificate.
type request struct {
	Key     string `json:"key"`
	Request string `json:"request"`
}

func (s *Service) kept(ctx context.Context, d model.Stored) (k kept, err error) {
	sealed, err := s.Store.Secret(ctx, d.UID, secretRequest)
	if err != nil || sealed == nil {
		return kept{}, err
	}
	plain, err := s.Sealer.Unseal(d.UID, secretRequest, sealed)
	if err != nil {
		return kept{}, err
	}
	if json.Unmarshal(plain, &k) != nil { // the decoder's error is left out: it may quote what it read
		return kept{}, director.Errorf(
			director.KindInternal, "authorities.kept", "the stored key of %s cannot be read", d.Ref(),
		)
	}
	return k, nil
}

func (s *Service) keep(ctx context.Context, d model.Stored, k kept) error {
	plain, err := json.Marshal(k)
	if err != nil {
		return err
	}
	sealed, err := s.Sealer.Seal(d.UID, secretRequest, plain)
	if err != nil {
		return err
	}
	return s.Store.SetSecret(ctx, d.UID, secretRequest, sealed)
}

// requested returns the document of the name if its type is csr.
func (s *Service) requested(ctx context.Context, name string) (model.Stored, error) {
	d, err := s.document(ctx, name)
	if err != nil {
		return d, err
	}
	if d.CertificateAuthority.Type != model.AuthorityCSR {
		return d, director.Errorf(
			director.KindConflict, "authorities.request", "%s is of the type %s, which has no request", d.Ref(),
			d.CertificateAuthority.Type,
		).WithHint("set spec.type: csr, or leave it: directorctl ca test %s", name)
	}
	return d, nil
}

// Request returns the request for the certificate of an authority whose key the director keeps, in PEM. It is made at
// the first call; another call returns the same. With fresh there is another key once there is a certificate: it is
// used when its certificate is imported, and the former one until then.
func (s *Service) Request(ctx context.Context, name string, fresh bool) (string, error) {
	s.requests.Lock()
	defer s.requests.Unlock()
	d, err := s.requested(ctx, name)
	if err != nil {
		return "", err
	}
	k, err := s.kept(ctx, d)
	switch {
	case err != nil:
		return "", err
	case k.Next != nil:
		return k.Next.Request, nil
	case k.Certificate != "" && !fresh:
		return k.Request, nil
	}
	text, key, err := pki.Request(cmp.Or(d.CertificateAuthority.Subject, name), below)
	if err != nil {
		return "", err
	}
	k.Next = &request{Key: key.Reveal(), Request: text}
	return text, s.keep(ctx, d, k)
}

// Import takes the certificate that was issued for a request, in PEM; those that signed it may follow. It must be good
// for clusters. A renewed certificate of the key in use is taken, too. Errors: invalid, with what is wrong; conflict if
// the certificate is for none of the director's requests.
func (s *Service) Import(ctx context.Context, name, certificate string) (View, error) {
	const op = "authorities.import"
	s.requests.Lock()
	defer s.requests.Unlock()
	d, err := s.requested(ctx, name)
	if err != nil {
		return View{}, err
	}
	k, err := s.kept(ctx, d)
	if err != nil {
		return View{}, err
	}
	if k.Next == nil && k.Key == "" {
		return View{}, director.Errorf(director.KindConflict, op, "%s has made no request yet", d.Ref()).
			WithHint("directorctl ca csr %s", name)
	}
	after := k
	if k.Next != nil && belongs(certificate, k.Next.Key) {
		after = kept{Key: k.Next.Key, Request: k.Next.Request}
	} else if k.Key == "" {
		after.Key = k.Next.Key // so that it is said what is wrong, the key at last
	}
	fields := pki.CheckIssuer(pki.Pair{Cert: certificate, Key: director.Secret(after.Key)}, needOf(d), s.Now())
	for i := range fields {
		if fields[i].Path == pki.FieldKey {
			fields[i] = director.Field{
				Path: pki.FieldCertificate, Msg: "was issued for another key than that of the director's request",
				Hint: "have this request signed: directorctl ca csr " + name,
			}
		}
	}
	if err := director.Invalid(op, "nothing was imported: the certificate is of no use for "+d.Ref().String(),
		fields); err != nil {
		return View{}, err
	}
	after.Certificate = pki.Chain(certificate)
	if err := s.keep(ctx, d, after); err != nil {
		return View{}, err
	}
	return s.view(ctx, d), nil
}

// belongs tells whether the certificate is for the key.
func belongs(certificate, key string) bool {
	return pki.Belongs(pki.Pair{Cert: certificate, Key: director.Secret(key)})
}
