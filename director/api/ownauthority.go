package api

import (
	"context"
	"crypto/x509"
	"net/http"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/certificates"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/wire"
)

// OwnAuthority is what the API offers of the authority that signs the director's own certificate.
type OwnAuthority interface {
	// State returns how far the change of it is. With look, all nodes are asked what they trust.
	State(ctx context.Context, look bool) (certificates.OwnState, error)
	// Change brings the change to the stage; conflict while nodes are behind, unless forced.
	Change(ctx context.Context, to pki.Stage, force bool) (certificates.OwnState, error)
}

const kindOwnAuthority = "DirectorAuthority"

func (s *accessRoutes) ownAuthority(api huma.API) {
	tags := []string{"Certificate authorities"}
	operation(s.server, api, huma.Operation{
		OperationID: "get-director-authority", Method: http.MethodGet, Path: "/director-authority", Tags: tags,
		Summary:     "Show the authority of the director itself, and how far its change is",
		Description: "It signs the certificate of the API and of the registry. Clients trust all of `trusted`.",
	}, director.ActSelf, "",
		func(ctx context.Context, _ director.Actor, _ *empty) (*body[wire.DirectorAuthority], error) {
			return ownAuthorityOf(s.OwnAuthority.State(ctx, false))
		})
	operation(s.server, api, huma.Operation{
		OperationID: "verify-director-authority", Method: http.MethodPost, Path: "/director-authority/verify",
		Tags: tags, Summary: "Ask all nodes what they trust, while the director's authority changes",
		Description: "Nodes are asked over SSH. Nothing is changed on them.",
	}, director.ActRead, kindOwnAuthority,
		func(ctx context.Context, _ director.Actor, _ *empty) (*body[wire.DirectorAuthority], error) {
			return ownAuthorityOf(s.OwnAuthority.State(ctx, true))
		})
	operation(s.server, api, huma.Operation{
		OperationID: "change-director-authority", Method: http.MethodPost, Path: "/director-authority", Tags: tags,
		Summary: "Bring the change of the director's authority to its next stage",
		Description: "The stages are trust, use and none. A stage that it is in already is no error. Use and none " +
			"are refused while nodes do not trust the next authority. Directors on one database follow: a stage is " +
			"refused while one of them has not taken the stage before.",
		Errors: []int{http.StatusConflict},
	}, director.ActCredentials, kindOwnAuthority,
		func(
			ctx context.Context, _ director.Actor, in *struct{ Body wire.DirectorAuthorityChange },
		) (*body[wire.DirectorAuthority], error) {
			return ownAuthorityOf(s.OwnAuthority.Change(ctx, pki.Stage(in.Body.Stage), in.Body.Force))
		})
}

func ownAuthorityOf(s certificates.OwnState, err error) (*body[wire.DirectorAuthority], error) {
	if err != nil {
		return nil, err
	}
	out := wire.DirectorAuthority{
		Stage: string(s.Stage), Trusted: s.PEM, Certificate: fingerprintOf(s.Certificate),
		Authorities: []wire.TrustedAuthority{}, Behind: []wire.NodeBehind{},
	}
	for _, a := range s.Authorities {
		out.Authorities = append(out.Authorities, wire.TrustedAuthority{
			Subject: a.Cert.Subject.String(), Fingerprint: fingerprintOf(a.Cert), Ends: a.Cert.NotAfter,
			Signs: a.Signs,
		})
	}
	for _, b := range s.Behind {
		out.Behind = append(out.Behind, wire.NodeBehind{Cluster: b.Cluster, Node: b.Node, Why: b.Why})
	}
	for _, d := range s.Directors {
		out.Directors = append(out.Directors, wire.AuthorityFollower(d))
	}
	return &body[wire.DirectorAuthority]{out}, nil
}

// fingerprintOf writes a fingerprint as clients pin it.
func fingerprintOf(c *x509.Certificate) string { return "SHA256:" + certificates.Fingerprint(c) }
