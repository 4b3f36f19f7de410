package daemon

import (
	"context"
	"crypto/x509"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/certificates"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
)

// certificatesEvery is how often the director looks whether certificates are to be looked at.
const certificatesEvery = 10 * time.Second

// certificateStore is the store as the inventory of certificates wants it.
type certificateStore struct{ *store.Store }

// Machines returns the machines of all clusters.
func (s certificateStore) Machines(ctx context.Context) ([]director.Machine, error) {
	return s.Store.Machines(ctx, store.MachineFilter{})
}

// inventoryOf returns the inventory of certificates of this director and its clusters.
func (d *Daemon) inventoryOf(db *store.Store, env steps.Env, server *pki.Server) *certificates.Inventory {
	c := certificates.Config{
		Store: certificateStore{db}, PKI: env.ClusterPKI, Now: time.Now, Log: d.log,
		Own: func() []certificates.Own { return ownCertificates(server) },
	}
	if env.Connect == nil { // clusters that only pretend have none
		c.Read, c.Serving = env.Read, pki.Serving
		c.Connect = func(ctx context.Context, uid, name, endpoint string) (certificates.Holder, error) {
			api, err := env.Cluster(ctx, uid, name, endpoint)
			if err != nil {
				return nil, err
			}
			if h, ok := api.(certificates.Holder); ok {
				return h, nil
			}
			api.Close()
			return nil, nil
		}
	}
	return certificates.NewInventory(c)
}

// ownCertificates are those that the director itself serves with.
func ownCertificates(server *pki.Server) []certificates.Own {
	var own []certificates.Own
	if ca, err := pki.ParseCert(server.CA()); err == nil {
		own = append(own, certificates.Own{Name: "director-ca", Place: "tls/ca.crt", Certificate: ca})
	}
	leaf := server.Leaf()
	if leaf.Raw == nil {
		return own
	}
	if whole, err := x509.ParseCertificate(leaf.Raw); err == nil {
		own = append(own, certificates.Own{Name: "director", Place: "tls/server.crt", Certificate: whole})
	}
	return own
}
