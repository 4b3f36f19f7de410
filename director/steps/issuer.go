package steps

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/netip"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/pki"
	"github.com/director-kaas/kaas/director/step"
)

// SecretIssuerCert is the certificate with which the masters of a cluster serve the issuer's documents to their own API
// servers.
const SecretIssuerCert = "issuer-certificate"

// IssuerDocuments are what API servers accept tokens of the director with.
type IssuerDocuments interface {
	// Documents returns the discovery document and the keys, published a day before they are used.
	Documents(ctx context.Context) (discovery, jwks []byte, err error)
}

// Access keeps which token keys the masters of clusters have.
type Access interface {
	// SetTokenKeys records that all masters have the keys.
	SetTokenKeys(ctx context.Context, uid, digest string) error
	// StartTokenKeys records that a master has keys, and others may have none. What is recorded already stays.
	StartTokenKeys(ctx context.Context, uid string) error
}

// The life of the certificate of issuers' documents, and how much of it is left at least.
const (
	issuerCertLife = pki.AuthorityLife - 365*24*time.Hour
	issuerCertLeft = 365 * 24 * time.Hour
)

// KeysDigest tells documents of the issuer apart.
func KeysDigest(discovery, jwks []byte) string {
	sum := sha256.New()
	_, _ = sum.Write(discovery)
	_, _ = sum.Write([]byte{0})
	_, _ = sum.Write(jwks)
	return hex.EncodeToString(sum.Sum(nil))
}

// issuerVars adds what masters accept tokens of the director with, and returns its digest. It is not secret, but of the
// moment: a plan that has waited gets the keys of today.
func (e playSteps) issuerVars(ctx context.Context, uid string, vars map[string]string) (string, error) {
	if e.Issuer == nil {
		return "", nil
	}
	discovery, jwks, err := e.Issuer.Documents(ctx)
	if err != nil {
		return "", err
	}
	pair, err := e.issuerCert(ctx, uid)
	if err != nil {
		return "", err
	}
	vars["issuer_discovery"], vars["issuer_keys"] = string(discovery), string(jwks)
	vars["issuer_certificate"], vars["issuer_certificate_key"] = pair.Cert, pair.Key.Reveal()
	return KeysDigest(discovery, jwks), nil
}

// issuerCert returns the certificate for 127.0.0.1 on the cluster's masters, followed by the authority that signed it
// and has no key any more. It is made, and made again a year before it ends.
func (e playSteps) issuerCert(ctx context.Context, uid string) (pki.Pair, error) {
	type stored struct {
		Cert string `json:"cert"`
		Key  string `json:"key"`
	}
	sealed, err := e.Secrets.Secret(ctx, uid, SecretIssuerCert)
	if err != nil {
		return pki.Pair{}, err
	}
	var s stored
	if sealed != nil {
		if s, err = unsealJSON[stored](e.Sealer, uid, SecretIssuerCert, sealed); err != nil {
			return pki.Pair{}, err
		}
		if end, err := pki.Expiry(s.Cert); err == nil && time.Until(end) > issuerCertLeft {
			return pki.Pair{Cert: s.Cert, Key: director.Secret(s.Key)}, nil
		}
		if err := e.Secrets.SetSecret(ctx, uid, SecretIssuerCert, nil); err != nil {
			return pki.Pair{}, err
		}
	}
	ca, err := pki.NewCA("kaas issuer")
	if err != nil {
		return pki.Pair{}, err
	}
	loopback := []netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}
	pair, err := pki.ServerCert(ca, nil, loopback, issuerCertLife)
	if err != nil {
		return pki.Pair{}, err
	}
	plain, err := json.Marshal(stored{Cert: pair.Cert + ca.Cert, Key: pair.Key.Reveal()})
	if err != nil {
		return pki.Pair{}, err
	}
	if sealed, err = e.Sealer.Seal(uid, SecretIssuerCert, plain); err != nil {
		return pki.Pair{}, err
	}
	if sealed, err = e.Secrets.AddSecret(ctx, uid, SecretIssuerCert, sealed); err != nil {
		return pki.Pair{}, err
	}
	if s, err = unsealJSON[stored](e.Sealer, uid, SecretIssuerCert, sealed); err != nil {
		return pki.Pair{}, err
	}
	return pki.Pair{Cert: s.Cert, Key: director.Secret(s.Key)}, nil
}

func unsealJSON[T any](s pki.Sealer, owner, name string, sealed []byte) (T, error) {
	var out T
	plain, err := s.Unseal(owner, name, sealed)
	if err == nil {
		err = json.Unmarshal(plain, &out)
	}
	if err != nil {
		return out, director.Errorf(director.KindInternal, "steps.secret", "secret %s cannot be read: %w", name, err)
	}
	return out, nil
}

// noteKeys records which keys the masters have after a playbook has brought them.
func (e playSteps) noteKeys(ctx context.Context, uid string, p step.PlayParams, digest string) error {
	if e.Access == nil || digest == "" {
		return nil
	}
	switch p.Playbook {
	case "cluster_users.yml", "install/control_plane.yml": // of all masters
		return e.Access.SetTokenKeys(ctx, uid, digest)
	case "upgrade_master.yml", "rejoin_master.yml": // of one, of a cluster that may have had none before
		return e.Access.StartTokenKeys(ctx, uid)
	}
	return nil
}
