package apitest

import (
	"context"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	inventory "github.com/director-kaas/kaas/director/certificates"
)

// Certificates implements api.Certificates over a list.
type Certificates struct{ list []director.Certificate }

var _ api.Certificates = Certificates{}

// NewCertificates returns certificates of a cluster demo and of the director. One of them did not show itself.
func NewCertificates() Certificates {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	of := func(node, name string, from director.CertificateSource, place string, days int) director.Certificate {
		return director.Certificate{
			ClusterUID: "u1", Cluster: "demo", Node: node, Source: from, Place: place, Name: name, Serial: "1f",
			Fingerprint: "aa", Subject: "CN=" + name, Issuer: "CN=demo kubernetes", Begins: at,
			Ends: at.AddDate(0, 0, days), Seen: at, Asked: at,
		}
	}
	silent := of("demo-worker-1", "kubelet-server", director.CertificateTLS, "10.0.0.4:10250", 20)
	silent.Asked, silent.Problem = at.Add(time.Hour), "no TLS server answers at 10.0.0.4:10250"
	own := of("", "director", director.CertificateDatabase, "tls/server.crt", 365)
	own.Cluster, own.ClusterUID = "", ""
	return Certificates{[]director.Certificate{
		silent,
		of("demo-master-1", "apiserver", director.CertificateFile, "/etc/kubernetes/pki/apiserver.crt", 300),
		own,
	}}
}

// List returns those of the cluster that end before the time.
func (c Certificates) List(
	_ context.Context, q director.CertificateQuery, _ director.Page,
) ([]director.Certificate, *director.Place, error) {
	var out []director.Certificate
	for _, o := range c.list {
		if q.Cluster != "" && q.Cluster != o.Cluster || q.Director && o.Cluster != "" ||
			q.Node != "" && q.Node != o.Node || !q.EndsBefore.IsZero() && !o.Ends.Before(q.EndsBefore) {
			continue
		}
		out = append(out, o)
	}
	return out, nil, nil
}

// Verify finds the one that did not show itself.
func (c Certificates) Verify(
	ctx context.Context, q director.CertificateQuery,
) (found []inventory.Finding, looked int, err error) {
	list, _, err := c.List(ctx, q, director.Page{})
	for _, o := range list {
		if o.Stale() {
			found = append(found, inventory.Finding{
				Certificate: o, What: "was not seen: " + o.Problem, Next: "see whether the machine is up",
			})
		}
	}
	return found, len(list), err
}

// ListKeys returns a key of a cluster demo, and one of the director.
func (c Certificates) ListKeys(_ context.Context, cluster string) ([]director.Key, error) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 0, time.UTC)
	own := director.Key{
		Owner: "Hook/audit", Purpose: "webhook-key", Name: "ed25519", ID: "k-7", State: director.KeyAccepted, Made: at,
		Ends: at.AddDate(0, 0, 1),
	}
	demo := director.Key{
		Cluster: "demo", Purpose: "service-account-key", Name: "key1", ID: "0a1b", State: director.KeyUsed,
	}
	if cluster != "" {
		return []director.Key{demo}, nil
	}
	return []director.Key{own, demo}, nil
}
