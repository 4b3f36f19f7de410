package daemon

import (
	"context"
	"crypto/x509"
	"encoding/pem"
	"os"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/acme"
	"github.com/director-kaas/kaas/director/authorities"
	"github.com/director-kaas/kaas/director/certificates"
	"github.com/director-kaas/kaas/director/model"
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
	return s.Store.Machines(ctx, store.MachineFilter{Nodes: true})
}

// inventoryOf returns the inventory of certificates of this director and its clusters.
func (d *Daemon) inventoryOf(
	db *store.Store, env steps.Env, server *pki.Server, outer *authorities.Service,
) *certificates.Inventory {
	c := certificates.Config{
		Store: certificateStore{db}, PKI: env.ClusterPKI, Now: time.Now, Log: d.log,
		Keys:    env.KeysOf,
		OwnKeys: func(ctx context.Context) ([]director.Key, error) { return ownKeys(ctx, db, time.Now()) },
		Own:     func(ctx context.Context) ([]certificates.Own, error) { return d.ownCertificates(ctx, server, outer) },
	}
	if env.Connect == nil { // clusters that only pretend have none
		c.Read, c.Serving = env.SSH().Read, pki.Serving
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

// ownCertificates are those that the director itself serves with, that of the configuration, and those of outer
// authorities.
func (d *Daemon) ownCertificates(ctx context.Context, server *pki.Server, outer *authorities.Service) (
	[]certificates.Own, error,
) {
	own, err := ownAuthorities(server)
	if err != nil {
		return nil, err
	}
	var issued acme.State
	if d.acme != nil {
		issued = d.acme.State()
	}
	problem := "" // of the certificate that is shown in place of one that is not there
	switch {
	case issued.Certificate != nil:
		own = append(own, certificates.Own{
			Name: director.CertificateACME, Place: "tls/acme/" + acme.CertificateFile, PEM: pemOf(issued.Certificate),
			Problem: issued.Problem,
		})
	case issued.Problem != "":
		problem = "there is no certificate by ACME for " + strings.Join(d.cfg.ACME.Names, ", ") + ": " + issued.Problem
	}
	own = append(own, certificates.Own{
		Name: "director", Place: "tls/server.crt", PEM: pemOf(server.Leaf()), Problem: problem,
	})
	if file := d.cfg.CertificateFile; file != "" {
		text, err := os.ReadFile(file)
		own = append(own, certificates.Own{Name: "certificateFile", Place: file, PEM: string(text), Err: err})
	}
	chains, err := outer.Chains(ctx)
	for _, c := range chains {
		ref := model.Ref{Kind: model.KindCertificateAuthority, Name: c.Name}.String()
		own = append(own, certificates.Own{Name: ref, Place: ref, PEM: c.PEM, Err: c.Err})
	}
	return own, err
}

// ownAuthorities are those that the director's clients are to trust: two while it changes its own.
func ownAuthorities(server *pki.Server) ([]certificates.Own, error) {
	all, err := server.Authorities()
	var own []certificates.Own
	for i, a := range all {
		o := certificates.Own{Name: director.CertificateOwnCA, Place: "tls/ca.crt", PEM: a.PEM}
		if !a.Signs {
			o.Name += []string{"-former", "-next"}[i]
			o.Place += " (" + string(server.Stage()) + ")"
		}
		own = append(own, o)
	}
	return own, err
}

// ownKeys are those that the director signs tokens for clusters with, and requests to endpoints.
func ownKeys(ctx context.Context, db *store.Store, now time.Time) ([]director.Key, error) {
	var out []director.Key
	tokens, err := db.IssuerKeys(ctx)
	if err != nil {
		return nil, err
	}
	for i, k := range tokens {
		one := director.Key{
			Purpose: "token-key", Name: k.ID, ID: k.ID, State: director.KeyAccepted, Made: k.Published,
		}
		last := i == len(tokens)-1
		if !last {
			one.Ends = tokens[i+1].Starts
		}
		if !k.Starts.After(now) && (last || tokens[i+1].Starts.After(now)) {
			one.State = director.KeyUsed
		}
		out = append(out, one)
	}
	for _, kind := range []model.Kind{model.KindHook, model.KindNotification} {
		docs, err := db.Documents(ctx, kind)
		if err != nil {
			return nil, err
		}
		for _, doc := range docs {
			keys, err := db.HookKeys(ctx, doc.UID)
			if err != nil {
				return nil, err
			}
			for _, k := range keys {
				one := director.Key{
					Owner: doc.Ref().String(), Purpose: "webhook-key", Name: k.Algorithm, ID: k.ID,
					State: director.KeyAccepted, Made: k.Created, Ends: k.Ends,
				}
				if k.Ends.IsZero() {
					one.State = director.KeyUsed
				}
				out = append(out, one)
			}
		}
	}
	return out, nil
}

func pemOf(c *x509.Certificate) string {
	return string(pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: c.Raw}))
}
