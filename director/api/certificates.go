package api

import (
	"context"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/auth"
	"github.com/director-kaas/kaas/director/certificates"
	"github.com/director-kaas/kaas/director/wire"
)

// Certificates is what the API offers of certificates.
type Certificates interface {
	// List lists what was seen of certificates; the usual order is by their ends.
	List(
		ctx context.Context, q director.CertificateQuery, p director.Page,
	) ([]director.Certificate, *director.Place, error)
	// Verify looks at the certificates and returns what is wrong with them, and how many there are; exhausted while
	// another verification runs.
	Verify(ctx context.Context, q director.CertificateQuery) ([]certificates.Finding, int, error)
	// ListKeys returns the keys that are no certificates: of the cluster, or of the director and all clusters.
	ListKeys(ctx context.Context, cluster string) ([]director.Key, error)
}

type listCertificatesInput struct {
	ListInput
	Cluster    string    `query:"cluster" maxLength:"64" doc:"Only those of this cluster."`
	Director   bool      `query:"director" doc:"Only the director's own."`
	Node       string    `query:"node" maxLength:"80" doc:"Only those of this node."`
	Source     string    `query:"source" enum:"tls,file,api,database" doc:"Only those that were seen so."`
	Name       string    `query:"name" maxLength:"64" doc:"Only those of this name, such as apiserver."`
	EndsBefore time.Time `query:"ends_before" doc:"Only those that end before this time."`
	Limit      int       `query:"limit" minimum:"1" maximum:"500" default:"200" doc:"At most so many."`
}

type verifyCertificatesInput struct {
	Cluster string `query:"cluster" maxLength:"64" doc:"Only those of this cluster. Left out, those of all clusters and of the director."`
}

func (s *accessRoutes) certificates(api huma.API) {
	tags := []string{"Certificates"}
	operation(s.server, api, ofSome(listing[wire.SeenCertificates](api, huma.Operation{
		OperationID: "list-certificates", Path: "/certificates", Tags: tags,
		Summary: "List the certificates of clusters and of the director",
		Description: "As they were seen last; the director looks every ten minutes. Sorted by ends_at, seen_at, " +
			"cluster, node or name.",
	}), ""), director.ActRead, kindCluster,
		func(ctx context.Context, a director.Actor, in *listCertificatesInput) (*anyOf, error) {
			return s.listCertificates(ctx, api, a, in)
		})
	operation(s.server, api, ofSome(huma.Operation{
		OperationID: "verify-certificates", Method: http.MethodPost, Path: "/certificates/verify", Tags: tags,
		Summary: "Look at certificates now, and say what is wrong with them",
		Description: "Nodes are asked over TLS and SSH, and clusters through their API. Nothing is changed on them. " +
			"One verification runs at a time.",
		Errors: []int{http.StatusNotFound, http.StatusTooManyRequests},
	}, ""), director.ActRead, kindCluster, s.verifyCertificates)
	operation(s.server, api, ofSome(huma.Operation{
		OperationID: "list-keys", Method: http.MethodGet, Path: "/keys", Tags: tags,
		Summary: "List the keys of clusters and of the director that are no certificates",
		Description: "Their names, ids and ages, never a key. Of clusters: the keys of service account tokens, those " +
			"that encrypt Secrets, and SSH authorities. Of the director: what signs tokens for clusters, and " +
			"requests to hooks and notifications.",
		Errors: []int{http.StatusNotFound},
	}, ""), director.ActRead, kindCluster, s.listKeys)
}

type listKeysInput struct {
	Cluster string `query:"cluster" maxLength:"64" doc:"Only those of this cluster. Left out, those of all clusters and of the director."`
}

func (s *accessRoutes) listKeys(ctx context.Context, a director.Actor, in *listKeysInput) (*body[wire.Keys], error) {
	if _, err := s.ofCluster(ctx, a, in.Cluster); err != nil {
		return nil, err
	}
	list, err := s.Certificates.ListKeys(ctx, in.Cluster)
	if err != nil {
		return nil, err
	}
	out := wire.Keys{Items: make([]wire.Key, len(list))}
	for i, k := range list {
		out.Items[i] = wire.Key{
			Cluster: k.Cluster, Owner: k.Owner, Purpose: k.Purpose, Name: k.Name, ID: k.ID, State: string(k.State),
			MadeAt: k.Made, EndsAt: k.Ends,
		}
	}
	return &body[wire.Keys]{out}, nil
}

// ofCluster lets through who may see the cluster, or all of them if it is empty. It returns what the actor may see.
func (s *accessRoutes) ofCluster(ctx context.Context, a director.Actor, cluster string) (*director.Visible, error) {
	visible := auth.VisibleTo(a, kindCluster)
	switch {
	case cluster != "":
		return visible, s.permit(ctx, a, asked{
			action: director.ActRead, object: director.Object{Kind: kindCluster, Name: cluster},
		})
	case visible != nil:
		return nil, invalidQuery("cluster", "is needed", "name a cluster that you may see")
	}
	return nil, nil
}

func (s *accessRoutes) listCertificates(
	ctx context.Context, api huma.API, a director.Actor, in *listCertificatesInput,
) (*anyOf, error) {
	filters := []any{in.Cluster, in.Director, in.Node, in.Source, in.Name, in.EndsBefore.UnixMicro()}
	p, err := in.page(in.Limit, "ends_at", filters...)
	if err == nil {
		err = oneOf(p, "ends_at", "seen_at", "cluster", "node", "name")
	}
	if err != nil {
		return nil, err
	}
	list, place, err := s.Certificates.List(ctx, director.CertificateQuery{
		Cluster: in.Cluster, Director: in.Director, Node: in.Node, Source: director.CertificateSource(in.Source),
		Name: in.Name, EndsBefore: in.EndsBefore, Visible: auth.VisibleTo(a, kindCluster),
	}, p)
	if err != nil {
		return nil, err
	}
	items := make([]wire.SeenCertificate, len(list))
	for i, c := range list {
		items[i] = certificateOf(c)
	}
	return listAnswer(api, items, in.Fields, next(p, place, filters...))
}

func (s *accessRoutes) verifyCertificates(
	ctx context.Context, a director.Actor, in *verifyCertificatesInput,
) (*body[wire.CertificateVerification], error) {
	visible, err := s.ofCluster(ctx, a, in.Cluster)
	if err != nil {
		return nil, err
	}
	found, looked, err := s.Certificates.Verify(ctx, director.CertificateQuery{Cluster: in.Cluster, Visible: visible})
	if err != nil {
		return nil, err
	}
	out := wire.CertificateVerification{Looked: looked, Findings: make([]wire.CertificateFinding, len(found))}
	for i, f := range found {
		out.Findings[i] = wire.CertificateFinding{
			SeenCertificate: certificateOf(f.Certificate), What: f.What, Next: f.Next,
		}
	}
	return &body[wire.CertificateVerification]{out}, nil
}

func certificateOf(c director.Certificate) wire.SeenCertificate {
	return wire.SeenCertificate{
		Cluster: c.Cluster, Node: c.Node, Name: c.Name, Source: string(c.Source), Place: c.Place, Authority: c.CA,
		Subject: c.Subject, Issuer: c.Issuer, Serial: c.Serial, Fingerprint: c.Fingerprint, BeginsAt: c.Begins,
		EndsAt: c.Ends, SeenAt: c.Seen, Stale: c.Stale(), Problem: c.Problem,
	}
}
