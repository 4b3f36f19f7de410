// Package webhookkeys keeps the keys that requests to endpoints are signed with: those of hooks and of notifications.
package webhookkeys

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"slices"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/webhook"
)

// Sealer keeps the secret halves of keys. seal.Box implements it.
type Sealer interface {
	Seal(owner, name string, plain []byte) ([]byte, error)
	Unseal(owner, name string, sealed []byte) ([]byte, error)
}

// Owner is a document whose requests are signed.
type Owner struct {
	model.Ref
	UID       string
	Algorithm string // ed25519 or hmac
}

// Keys makes, opens and replaces keys. It is safe for concurrent use.
type Keys struct {
	store  *store.Store
	sealer Sealer
	now    func() time.Time

	mu   sync.Mutex
	keys map[string]webhook.Key // opened, by id
}

// New returns the keys of a database.
func New(s *store.Store, sealer Sealer, now func() time.Time) *Keys {
	return &Keys{store: s, sealer: sealer, now: now, keys: map[string]webhook.Key{}}
}

// overlap is how long a key that was replaced still signs besides the new one. Receivers take the new one meanwhile.
const overlap = 24 * time.Hour

// mostSignatures is how many a request has: by the current key, and by the one before.
const mostSignatures = 2

// View is a key that receivers verify with.
type View struct {
	director.HookKey
	Shared director.Secret // of HMAC, if it was asked for
}

// List returns the keys that requests of the owner are signed with, the current one first. secrets also opens what
// receivers of an HMAC need; that is audited.
func (s *Keys) List(ctx context.Context, actor string, o Owner, secrets bool) ([]View, error) {
	keys, err := s.current(ctx, o)
	if err != nil {
		return nil, err
	}
	out := make([]View, len(keys))
	for i, k := range keys {
		out[i].HookKey = k
		if !secrets || k.Algorithm != model.SignHMAC {
			continue
		}
		opened, err := s.open(ctx, k)
		if err != nil {
			return nil, err
		}
		out[i].Shared = director.Secret(opened.Shared())
	}
	if !secrets {
		return out, nil
	}
	return out, s.store.Update(ctx, func(tx *store.Tx) error {
		return tx.Audit(s.now(), actor, "reveal key", o.String())
	})
}

// Rotate makes another key for the owner. The former one signs besides it for a day.
func (s *Keys) Rotate(ctx context.Context, actor string, o Owner) ([]View, error) {
	if err := s.edit(ctx, o, func(tx *store.Tx, _ []director.HookKey) (bool, error) {
		return true, tx.Audit(s.now(), actor, "rotate key", o.String())
	}); err != nil {
		return nil, err
	}
	return s.List(ctx, actor, o, false)
}

// current returns the keys that sign now. An owner without one of its algorithm gets one.
func (s *Keys) current(ctx context.Context, o Owner) ([]director.HookKey, error) {
	for range 2 {
		all, err := s.store.HookKeys(ctx, o.UID)
		if err != nil {
			return nil, err
		}
		now := s.now()
		all = slices.DeleteFunc(all, func(k director.HookKey) bool { return !k.Ends.IsZero() && k.Ends.Before(now) })
		if len(all) > 0 && all[0].Ends.IsZero() && all[0].Algorithm == o.Algorithm {
			return all[:min(len(all), mostSignatures)], nil
		}
		if err := s.edit(ctx, o, func(_ *store.Tx, have []director.HookKey) (bool, error) {
			there := slices.ContainsFunc(have, func(k director.HookKey) bool {
				return k.Ends.IsZero() && k.Algorithm == o.Algorithm
			})
			return !there, nil
		}); err != nil {
			return nil, err
		}
	}
	return nil, director.Errorf(
		director.KindUnavailable, "webhookkeys.key", "the keys of %s are being changed", o,
	).WithHint("try again")
}

// edit adds a key if wanted agrees.
func (s *Keys) edit(ctx context.Context, o Owner, wanted func(*store.Tx, []director.HookKey) (bool, error)) error {
	now := s.now()
	return s.store.EditHookKeys(ctx, o.UID, now, func(
		tx *store.Tx, have []director.HookKey,
	) (*director.HookKey, []byte, time.Time, error) {
		fail := func(err error) (*director.HookKey, []byte, time.Time, error) { return nil, nil, time.Time{}, err }
		if yes, err := wanted(tx, have); err != nil || !yes {
			return fail(err)
		}
		key, public, err := webhook.NewKey(o.Algorithm == model.SignEd25519)
		if err != nil {
			return fail(err)
		}
		k := &director.HookKey{
			ID: "k" + id(), Hook: o.UID, Algorithm: o.Algorithm, Public: public, Created: now,
		}
		sealed, err := s.sealer.Seal(store.HookKeyOwner, k.ID, key.Secret)
		return k, sealed, now.Add(overlap), err
	})
}

// Signers opens the keys that sign now.
func (s *Keys) Signers(ctx context.Context, o Owner) ([]webhook.Key, error) {
	keys, err := s.current(ctx, o)
	if err != nil {
		return nil, err
	}
	out := make([]webhook.Key, len(keys))
	for i, k := range keys {
		if out[i], err = s.open(ctx, k); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func (s *Keys) open(ctx context.Context, k director.HookKey) (webhook.Key, error) {
	s.mu.Lock()
	key, known := s.keys[k.ID]
	s.mu.Unlock()
	if known {
		return key, nil
	}
	sealed, err := s.store.Secret(ctx, store.HookKeyOwner, k.ID)
	if err != nil {
		return key, err
	}
	plain, err := s.sealer.Unseal(store.HookKeyOwner, k.ID, sealed)
	if err != nil {
		return key, director.Errorf(director.KindInternal, "webhookkeys.key", "a key cannot be opened: %w", err).
			WithHint("make another one: directorctl hooks rotate-key NAME, or notifications rotate-key NAME")
	}
	key = webhook.Key{Secret: plain, Pair: k.Algorithm == model.SignEd25519}
	s.mu.Lock()
	s.keys[k.ID] = key
	s.mu.Unlock()
	return key, nil
}

func id() string {
	b := make([]byte, 12)
	_, _ = rand.Read(b) // crypto/rand.Read never fails
	return hex.EncodeToString(b)
}
