package api

import (
	"context"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/authorities"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/wire"
)

// Authorities is what the API offers of CertificateAuthorities besides their documents.
type Authorities interface {
	// List returns all of them by name. No server is asked.
	List(ctx context.Context) ([]authorities.View, error)
	// Test looks at everything that the director needs of the authority, and has one signed on trial.
	Test(ctx context.Context, name string) ([]authorities.Finding, error)
	// Request returns the request for the certificate of an authority whose key the director keeps.
	Request(ctx context.Context, name string, fresh bool) (string, error)
	// Import takes the certificate that was issued for a request.
	Import(ctx context.Context, name, certificate string) (authorities.View, error)
}

const kindAuthority = string(model.KindCertificateAuthority)

type authorityRef struct {
	Name string `path:"name" maxLength:"64" doc:"Name of the CertificateAuthority."`
}

func (s *accessRoutes) authorities(api huma.API) {
	tags := []string{"Certificate authorities"}
	operation(s.server, api, huma.Operation{
		OperationID: "list-certificate-authorities", Method: http.MethodGet, Path: "/certificate-authorities",
		Tags: tags, Summary: "List the authorities that issue those of clusters",
		Description: "No server is asked.",
	}, director.ActRead, kindAuthority, s.listAuthorities)
	operation(s.server, api, huma.Operation{
		OperationID: "test-certificate-authority", Method: http.MethodPost,
		Path: "/certificate-authorities/{name}/test", Tags: tags,
		Summary:     "Test an authority, and have one signed on trial",
		Description: "The key of what is signed is forgotten. A server of step-ca issues one certificate.",
		Errors:      []int{http.StatusNotFound},
	}, director.ActCredentials, kindAuthority, s.testAuthority)
	operation(s.server, api, huma.Operation{
		OperationID: "request-certificate-authority", Method: http.MethodPost,
		Path: "/certificate-authorities/{name}/request", Tags: tags,
		Summary:     "Get the request for the certificate of an authority",
		Description: "For the type csr. The key is made at the first call and stays in the director, sealed.",
		Errors:      []int{http.StatusNotFound, http.StatusConflict},
	}, director.ActCredentials, kindAuthority, s.requestAuthority)
	operation(s.server, api, huma.Operation{
		OperationID: "import-certificate-authority", Method: http.MethodPost,
		Path: "/certificate-authorities/{name}/certificate", Tags: tags,
		Summary:     "Import the certificate of an authority",
		Description: "For the type csr. The certificate is checked, and an authority is signed on trial.",
		Errors:      []int{http.StatusNotFound, http.StatusConflict},
	}, director.ActCredentials, kindAuthority, s.importAuthority)
}

func authorityOf(v authorities.View) wire.Authority {
	return wire.Authority{
		Name: v.Name, Type: v.Type, Subject: v.Subject, Ends: wire.Optional(v.Ends), Waiting: v.Waiting,
		Problem: v.Problem, Hint: v.Hint,
	}
}

func (s *accessRoutes) listAuthorities(
	ctx context.Context, _ director.Actor, _ *empty,
) (*body[wire.Authorities], error) {
	list, err := s.Authorities.List(ctx)
	if err != nil {
		return nil, err
	}
	out := wire.Authorities{Items: make([]wire.Authority, len(list))}
	for i, v := range list {
		out.Items[i] = authorityOf(v)
	}
	return &body[wire.Authorities]{out}, nil
}

func (s *accessRoutes) testAuthority(
	ctx context.Context, _ director.Actor, in *authorityRef,
) (*body[wire.ProviderTest], error) {
	findings, err := s.Authorities.Test(ctx, in.Name)
	if err != nil {
		return nil, err
	}
	out := wire.ProviderTest{OK: true, Probes: []wire.Probe{}}
	for _, f := range findings {
		p := wire.Probe{What: f.What, OK: f.Err == nil, Found: f.Found}
		if f.Err == nil {
			out.Probes = append(out.Probes, p)
			continue
		}
		out.OK = false
		p.Problem, p.Hint = publicMessage(f.Err), director.HintOf(f.Err)
		for _, field := range director.FieldsOf(f.Err) {
			p.Problem, p.Hint = field.Path+" "+field.Msg, field.Hint
			out.Probes = append(out.Probes, p)
		}
		if len(director.FieldsOf(f.Err)) == 0 {
			out.Probes = append(out.Probes, p)
		}
	}
	return &body[wire.ProviderTest]{out}, nil
}

func (s *accessRoutes) requestAuthority(
	ctx context.Context, _ director.Actor, in *struct {
		Name string `path:"name" maxLength:"64" doc:"Name of the CertificateAuthority."`
		Body wire.AuthorityRequestQuery
	},
) (*body[wire.AuthorityRequest], error) {
	text, err := s.Authorities.Request(ctx, in.Name, in.Body.New)
	if err != nil {
		return nil, err
	}
	return &body[wire.AuthorityRequest]{wire.AuthorityRequest{Request: text}}, nil
}

func (s *accessRoutes) importAuthority(
	ctx context.Context, _ director.Actor, in *struct {
		Name string `path:"name" maxLength:"64" doc:"Name of the CertificateAuthority."`
		Body wire.AuthorityImport
	},
) (*body[wire.Authority], error) {
	v, err := s.Authorities.Import(ctx, in.Name, in.Body.Certificate)
	if err != nil {
		return nil, err
	}
	return &body[wire.Authority]{authorityOf(v)}, nil
}
