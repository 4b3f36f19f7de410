package pki

import (
	"encoding/json"
	"time"

	"github.com/director-kaas/kaas/director"
)

// ClusterPKI is everything that the control plane of one cluster must agree on: it is placed on every master before
// kubeadm runs, so that none of them is special.
type ClusterPKI struct {
	CA           Pair // signs the API server, the kubelets and their clients
	FrontProxyCA Pair // signs the API server's client certificate towards extension API servers
	EtcdCA       Pair // signs etcd's servers, peers and clients

	ServiceAccountKey    director.Secret // the first key that signs service account tokens; see SigningKeys
	ServiceAccountPublic string          // its public key

	EncryptionKey director.Secret // the first key for encryption at rest; see EncryptionKeys
}

// NewCluster returns new authorities and keys for the named cluster. The name ends up in the subjects of the
// authorities, for people who look at them; nothing depends on it.
func NewCluster(name string) (ClusterPKI, error) {
	ca, err := NewCA(name + " kubernetes")
	if err != nil {
		return ClusterPKI{}, err
	}
	return NewClusterWithCA(name, ca)
}

// NewClusterWithCA is NewCluster with a given cluster authority, which must satisfy ValidateCA.
func NewClusterWithCA(name string, ca Pair) (ClusterPKI, error) {
	p := ClusterPKI{CA: ca}
	err := ValidateCA(ca, time.Now())
	if err != nil {
		return ClusterPKI{}, err
	}
	if p.FrontProxyCA, err = NewCA(name + " front-proxy"); err != nil {
		return ClusterPKI{}, err
	}
	if p.EtcdCA, err = NewCA(name + " etcd"); err != nil {
		return ClusterPKI{}, err
	}

	sa, err := newSigningKey(firstKey)
	if err != nil {
		return ClusterPKI{}, err
	}
	p.ServiceAccountKey, p.ServiceAccountPublic = sa.Key, sa.Public

	p.EncryptionKey = newEncryptionKey()
	return p, nil
}

// Vars returns the variables of the playbooks that carry this PKI to the masters, by name, without those of encryption
// at rest. The service account key is the first one. The values are secrets: they belong into a file of mode 0600 and
// nowhere else.
func (p ClusterPKI) Vars() map[string]string {
	return map[string]string{
		"pki_ca_crt":             p.CA.Cert,
		"pki_ca_trusted":         trusted(p.CA.Cert),
		"pki_ca_key":             p.CA.Key.Reveal(),
		"pki_front_proxy_ca_crt": p.FrontProxyCA.Cert,
		"pki_front_proxy_ca_key": p.FrontProxyCA.Key.Reveal(),
		"pki_etcd_ca_crt":        p.EtcdCA.Cert,
		"pki_etcd_ca_key":        p.EtcdCA.Key.Reveal(),
		"pki_sa_key":             p.ServiceAccountKey.Reveal(),
		"pki_sa_pub":             p.ServiceAccountPublic,
	}
}

// Sealer encrypts what is stored for the row of one owner and name, and opens it for no other; seal.Box is one.
type Sealer interface {
	Seal(owner, name string, plain []byte) ([]byte, error)
	Unseal(owner, name string, sealed []byte) ([]byte, error)
}

// clusterWire is how a ClusterPKI looks inside its seal. Fields are only ever added.
type clusterWire struct {
	CACert         string `json:"ca_cert"`
	CAKey          string `json:"ca_key"`
	FrontProxyCert string `json:"front_proxy_ca_cert"`
	FrontProxyKey  string `json:"front_proxy_ca_key"`
	EtcdCert       string `json:"etcd_ca_cert"`
	EtcdKey        string `json:"etcd_ca_key"`
	SAKey          string `json:"sa_key"`
	SAPublic       string `json:"sa_pub"`
	Encryption     string `json:"encryption_key"`
}

// Seal returns p in a form that may be stored under that owner and name. UnsealCluster is its inverse.
func (p ClusterPKI) Seal(s Sealer, owner, name string) ([]byte, error) {
	plain, err := json.Marshal(clusterWire{
		CACert: p.CA.Cert, CAKey: p.CA.Key.Reveal(),
		FrontProxyCert: p.FrontProxyCA.Cert, FrontProxyKey: p.FrontProxyCA.Key.Reveal(),
		EtcdCert: p.EtcdCA.Cert, EtcdKey: p.EtcdCA.Key.Reveal(),
		SAKey: p.ServiceAccountKey.Reveal(), SAPublic: p.ServiceAccountPublic,
		Encryption: p.EncryptionKey.Reveal(),
	})
	if err != nil {
		return nil, director.Errorf(director.KindInternal, "pki.seal", "cannot encode the cluster's keys: %w", err)
	}
	return s.Seal(owner, name, plain)
}

// UnsealCluster returns what ClusterPKI.Seal sealed. Its errors are the sealer's, and internal when what was sealed is
// no cluster PKI.
func UnsealCluster(s Sealer, owner, name string, sealed []byte) (ClusterPKI, error) {
	plain, err := s.Unseal(owner, name, sealed)
	if err != nil {
		return ClusterPKI{}, err
	}
	var w clusterWire
	if json.Unmarshal(plain, &w) != nil || w.CACert == "" {
		// The decoder's error is left out: it may quote what it read.
		return ClusterPKI{}, director.Errorf(
			director.KindInternal, "pki.unseal", "the stored keys of the cluster cannot be read",
		)
	}
	return ClusterPKI{
		CA:                   Pair{Cert: w.CACert, Key: director.Secret(w.CAKey)},
		FrontProxyCA:         Pair{Cert: w.FrontProxyCert, Key: director.Secret(w.FrontProxyKey)},
		EtcdCA:               Pair{Cert: w.EtcdCert, Key: director.Secret(w.EtcdKey)},
		ServiceAccountKey:    director.Secret(w.SAKey),
		ServiceAccountPublic: w.SAPublic,
		EncryptionKey:        director.Secret(w.Encryption),
	}, nil
}
