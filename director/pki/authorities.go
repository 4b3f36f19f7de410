package pki

import (
	"encoding/json"
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director"
)

// AuthorityName says which authority of a cluster is meant.
type AuthorityName string

// The authorities of a cluster.
const (
	AuthorityCluster    AuthorityName = "cluster"
	AuthorityEtcd       AuthorityName = "etcd"
	AuthorityFrontProxy AuthorityName = "front-proxy"
)

// AuthorityNames returns all authorities of a cluster.
func AuthorityNames() []AuthorityName {
	return []AuthorityName{AuthorityCluster, AuthorityEtcd, AuthorityFrontProxy}
}

// NamedCA is an authority with its name among those that a cluster had for one purpose.
type NamedCA struct {
	Name string
	Pair Pair
}

// KeyName implements Named.
func (c NamedCA) KeyName() string { return c.Name }

// Authority are the authorities of one cluster for one purpose. Certificates of each are accepted.
type Authority struct{ Ring[NamedCA] }

// Authorities are those of a cluster that were changed, or are being changed.
type Authorities map[AuthorityName]Authority

// Authority returns the authorities of the cluster for the purpose if they were never changed.
func (p ClusterPKI) Authority(which AuthorityName) Authority {
	return Authority{Ring[NamedCA]{Keys: []NamedCA{{firstKey, *p.pair(which)}}}}
}

func (p *ClusterPKI) pair(which AuthorityName) *Pair {
	switch which {
	case AuthorityEtcd:
		return &p.EtcdCA
	case AuthorityFrontProxy:
		return &p.FrontProxyCA
	}
	return &p.CA
}

// With returns p with those authorities that were changed. The certificate of each is a bundle of all that are
// accepted, the one that signs first, and the key is that one's.
func (p ClusterPKI) With(changed Authorities) ClusterPKI {
	for which, a := range changed {
		*p.pair(which) = a.pair()
	}
	return p
}

func (a Authority) pair() Pair {
	var bundle strings.Builder
	for _, one := range a.Keys {
		bundle.WriteString(strings.TrimSpace(one.Pair.Cert) + "\n")
	}
	return Pair{Cert: bundle.String(), Key: a.Keys[0].Pair.Key}
}

// Set makes the pair the first authority of a new cluster for the purpose.
func (p *ClusterPKI) Set(which AuthorityName, pair Pair) { *p.pair(which) = pair }

// Add takes up an authority that make makes, under the name. It is trusted and signs nothing yet.
func (a *Authority) Add(name string, make func() (Pair, error)) error {
	if a.Has(name) {
		return nil
	}
	pair, err := make()
	if err == nil {
		a.Ring.Add(NamedCA{name, pair})
	}
	return err
}

// authorityWire is how an Authority looks inside its seal.
type authorityWire struct {
	CAs    []caWire `json:"cas"`
	Former []string `json:"former,omitempty"`
}

type caWire struct {
	Name string `json:"name"`
	Cert string `json:"cert"`
	Key  string `json:"key"`
}

// Seal returns a in a form that may be stored under that owner and name. UnsealAuthorities is its inverse.
func (a Authorities) Seal(s Sealer, owner, name string) ([]byte, error) {
	w := map[AuthorityName]authorityWire{}
	for which, one := range a {
		entry := authorityWire{Former: one.Former}
		for _, ca := range one.Keys {
			entry.CAs = append(entry.CAs, caWire{ca.Name, ca.Pair.Cert, ca.Pair.Key.Reveal()})
		}
		w[which] = entry
	}
	plain, err := json.Marshal(w)
	if err != nil {
		return nil, director.Errorf(director.KindInternal, "pki.seal", "cannot encode the authorities: %w", err)
	}
	return s.Seal(owner, name, plain)
}

// UnsealAuthorities returns what Authorities.Seal sealed. Its errors are the sealer's, and internal when what was
// sealed are no authorities.
func UnsealAuthorities(s Sealer, owner, name string, sealed []byte) (Authorities, error) {
	plain, err := s.Unseal(owner, name, sealed)
	if err != nil {
		return nil, err
	}
	unreadable := director.Errorf(
		director.KindInternal, "pki.unseal", "the stored authorities of the cluster cannot be read",
	)
	var w map[AuthorityName]authorityWire
	if json.Unmarshal(plain, &w) != nil { // the decoder's error is left out: it may quote what it read
		return nil, unreadable
	}
	all := Authorities{}
	for which, entry := range w {
		if len(entry.CAs) == 0 || !slices.Contains(AuthorityNames(), which) {
			return nil, unreadable
		}
		a := Authority{Ring[NamedCA]{Former: entry.Former}}
		for _, ca := range entry.CAs {
			a.Keys = append(a.Keys, NamedCA{ca.Name, Pair{Cert: ca.Cert, Key: director.Secret(ca.Key)}})
		}
		all[which] = a
	}
	return all, nil
}
