package steps

import (
	"context"
	"crypto/sha256"
	"maps"
	"sync"
	"time"
)

// Standing keeps the director's clients of clusters for as long as their certificates are good, for those who look at
// the same clusters again and again. A cluster gets another client when its authorities or its address have changed.
// The zero value is ready; it is safe for concurrent use.
type Standing struct {
	mu sync.Mutex
	of map[string]standing // by the cluster's uid
}

type standing struct {
	of    origin
	until time.Time // the end of its certificate
	api   API
}

// origin is what a client is made of: checksums of the sealed authorities of its cluster, and where that is.
type origin struct {
	pki, changed   [sha256.Size]byte
	name, endpoint string
}

// spareLife is how much longer the certificate of a client that is kept lives than was asked for.
const spareLife = 10 * time.Minute

// find returns the cluster's client if it was made of that and its certificate is good until then; else nil.
func (s *Standing) find(uid string, of origin, until time.Time) API {
	s.mu.Lock()
	defer s.mu.Unlock()
	if has, ok := s.of[uid]; ok && has.of == of && !has.until.Before(until) {
		return has.api
	}
	return nil
}

// keep keeps the client, and not the cluster's former one any more. It forgets those whose certificates have ended.
func (s *Standing) keep(uid string, c standing) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	maps.DeleteFunc(s.of, func(_ string, has standing) bool { return has.until.Before(now) })
	if s.of == nil {
		s.of = map[string]standing{}
	}
	s.of[uid] = c
}

// origin returns what a client of the cluster would be made of now.
func (e Keys) origin(ctx context.Context, uid, name, endpoint string) (origin, error) {
	sealed, err := e.Secrets.SecretsOf(ctx, []string{uid}, []string{SecretPKI, SecretAuthorities})
	return origin{
		pki: sha256.Sum256(sealed[[2]string{uid, SecretPKI}]), name: name, endpoint: endpoint,
		changed: sha256.Sum256(sealed[[2]string{uid, SecretAuthorities}]),
	}, err
}

// Cluster connects to a cluster as the director, for a look. Its certificate is good for longer than ctx has time, and
// for ten minutes if ctx has no deadline. Others may use the same client: it can be used after it was closed.
func (e Clusters) Cluster(ctx context.Context, uid, name, endpoint string) (API, error) {
	if e.Standing == nil {
		return e.connect(ctx, uid, name, endpoint, 0)
	}
	of, err := e.origin(ctx, uid, name, endpoint)
	if err != nil {
		return nil, err
	}
	until := time.Now().Add(credentialLife(ctx, 0))
	if api := e.Standing.find(uid, of, until); api != nil {
		return api, nil
	}
	api, err := e.connect(ctx, uid, name, endpoint, spareLife)
	if err == nil {
		e.Standing.keep(uid, standing{of: of, until: until.Add(spareLife), api: api})
	}
	return api, err
}
