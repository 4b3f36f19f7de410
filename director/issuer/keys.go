package issuer

import (
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"time"

	"github.com/go-jose/go-jose/v4"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/store"
)

// How keys come and go. While one key signs, the next one is published already, so clusters have it long before its
// first token. A key stays published behind its time until the last of its tokens has ended.
const (
	keyLife  = 30 * 24 * time.Hour
	minAhead = 24 * time.Hour // a key is published at least so long before it signs, apart from the first one
	keepPast = time.Hour      // more than tokenLife and what clocks may differ by
)

// rotation says what has to change at now: when new keys start, and which ones go. have is in the order of starting.
func rotation(have []store.IssuerKey, now time.Time, life time.Duration) (starts []time.Time, gone []string) {
	current := -1
	for i, k := range have {
		if !k.Starts.After(now) {
			current = i
		}
	}
	if current < 0 { // the first start, or a clock that went back
		starts = append(starts, now)
	}
	if current == len(have)-1 {
		starts = append(starts, now.Add(max(life, minAhead)))
	}
	for i := range current {
		if now.Sub(have[i+1].Starts) > keepPast {
			gone = append(gone, have[i].ID)
		}
	}
	return starts, gone
}

// Tick makes the keys that are due and removes those whose tokens have ended. Several directors may run it at once.
func (s *Service) Tick(ctx context.Context) error {
	now := s.Now().UTC()
	have, err := s.Store.IssuerKeys(ctx)
	if err != nil {
		return err
	}
	if starts, gone := rotation(have, now, s.KeyLife); len(starts) == 0 && len(gone) == 0 {
		return nil
	}
	return s.Store.EditIssuerKeys(ctx, now, "director", func(
		have []store.IssuerKey,
	) (add []store.NewIssuerKey, remove []string, err error) {
		starts, remove := rotation(have, now, s.KeyLife)
		for _, at := range starts {
			k, err := s.newKey(now, at)
			if err != nil {
				return nil, nil, err
			}
			add = append(add, k)
		}
		return add, remove, nil
	})
}

func (s *Service) newKey(now, starts time.Time) (store.NewIssuerKey, error) {
	fail := func(err error) (store.NewIssuerKey, error) {
		return store.NewIssuerKey{}, director.Errorf(
			director.KindInternal, "issuer.key", "a signing key cannot be made: %w", err,
		)
	}
	private, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		return fail(err)
	}
	public := jose.JSONWebKey{Key: private.Public(), Algorithm: string(Algorithm), Use: "sig"}
	sum, err := public.Thumbprint(crypto.SHA256)
	if err != nil {
		return fail(err)
	}
	public.KeyID = base64.RawURLEncoding.EncodeToString(sum)
	text, err := json.Marshal(public)
	if err != nil {
		return fail(err)
	}
	der, err := x509.MarshalPKCS8PrivateKey(private)
	if err != nil {
		return fail(err)
	}
	sealed, err := s.Sealer.Seal(store.IssuerOwner, public.KeyID, der)
	return store.NewIssuerKey{
		IssuerKey: store.IssuerKey{ID: public.KeyID, Public: text, Published: now, Starts: starts}, Sealed: sealed,
	}, err
}

// signer signs with the key of now.
func (s *Service) signer(ctx context.Context) (jose.Signer, error) {
	const op = "issuer.signer"
	now := s.Now()
	for range 2 {
		keys, err := s.Store.IssuerKeys(ctx)
		if err != nil {
			return nil, err
		}
		var current *store.IssuerKey
		for i := range keys {
			if !keys[i].Starts.After(now) {
				current = &keys[i]
			}
		}
		if current != nil {
			return s.signerOf(ctx, current.ID)
		}
		if err := s.Tick(ctx); err != nil {
			return nil, err
		}
	}
	return nil, director.Errorf(director.KindUnavailable, op, "there is no key to sign with").
		WithHint("check the director's clock")
}

func (s *Service) signerOf(ctx context.Context, id string) (jose.Signer, error) {
	const op = "issuer.signer"
	s.mu.Lock()
	defer s.mu.Unlock()
	if known := s.signers[id]; known != nil {
		return known, nil
	}
	sealed, err := s.Store.Secret(ctx, store.IssuerOwner, id)
	if err != nil {
		return nil, err
	}
	der, err := s.Sealer.Unseal(store.IssuerOwner, id, sealed)
	if err != nil {
		return nil, err
	}
	private, err := x509.ParsePKCS8PrivateKey(der)
	if err != nil {
		return nil, director.Errorf(director.KindInternal, op, "the signing key %s cannot be read", id)
	}
	signer, err := jose.NewSigner(
		jose.SigningKey{Algorithm: Algorithm, Key: jose.JSONWebKey{Key: private, KeyID: id}},
		(&jose.SignerOptions{}).WithType("JWT"),
	)
	if err != nil {
		return nil, director.Errorf(director.KindInternal, op, "the signing key %s cannot be used: %w", id, err)
	}
	s.signers[id] = signer
	return signer, nil
}
