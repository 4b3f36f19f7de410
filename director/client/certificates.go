package client

import (
	"context"
	"net/http"
	"net/url"
	"time"

	"github.com/director-kaas/kaas/director/wire"
)

// CertificateFilter narrows Certificates. What is empty does not narrow.
type CertificateFilter struct {
	Cluster, Node, Source, Name string
	Director                    bool // only the director's own
	EndsBefore                  time.Time
}

// Certificates lists the certificates of clusters and of the director as they were seen last, by their ends.
func (c *clusterCalls) Certificates(ctx context.Context, f CertificateFilter) ([]wire.SeenCertificate, error) {
	return all(func(q url.Values) ([]wire.SeenCertificate, string, error) {
		for key, value := range map[string]string{
			"cluster": f.Cluster, "node": f.Node, "source": f.Source, "name": f.Name,
		} {
			if value != "" {
				q.Set(key, value)
			}
		}
		if f.Director {
			q.Set("director", "true")
		}
		if !f.EndsBefore.IsZero() {
			q.Set("ends_before", f.EndsBefore.UTC().Format(time.RFC3339))
		}
		var l wire.SeenCertificates
		err := c.call(ctx, request{method: http.MethodGet, path: "/certificates", query: q}, &l)
		return l.Items, l.Continue, err
	})
}

// VerifyCertificates has the director look at the certificates of a cluster, or of all and its own, and say what is
// wrong with them.
func (c *clusterCalls) VerifyCertificates(ctx context.Context, cluster string) (wire.CertificateVerification, error) {
	q := url.Values{}
	if cluster != "" {
		q.Set("cluster", cluster)
	}
	var v wire.CertificateVerification
	err := c.call(ctx, request{method: http.MethodPost, path: "/certificates/verify", query: q}, &v)
	return v, err
}

// Keys lists the keys of the cluster that are no certificates, or of the director and all clusters.
func (c *clusterCalls) Keys(ctx context.Context, cluster string) (wire.Keys, error) {
	q := url.Values{}
	if cluster != "" {
		q.Set("cluster", cluster)
	}
	var l wire.Keys
	err := c.call(ctx, request{method: http.MethodGet, path: "/keys", query: q}, &l)
	return l, err
}
