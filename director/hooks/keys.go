package hooks

import (
	"context"
	"slices"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/webhook"
)

// overlap is how long a key that was replaced still signs besides the new one. Receivers take the new one meanwhile.
const overlap = 24 * time.Hour

// mostSignatures is how many a request has: by the current key, and by the one before.
const mostSignatures = 2

// allowed are the ranges of addresses that the hook may lead to.
func allowed(h model.Hook) confine.Networks {
	if len(h.Allow) == 0 {
		return confine.Private()
	}
	return confine.Networks(h.Allow)
}

// KeyView is a key that receivers verify with.
type KeyView struct {
	director.HookKey
	Shared director.Secret // of HMAC, if it was asked for
}

// Keys returns the keys that requests of the hook are signed with, the current one first. secrets also opens what
// receivers of an HMAC need; that is audited.
func (s *Service) Keys(ctx context.Context, actor, name string, secrets bool) ([]KeyView, error) {
	doc, err := s.document(ctx, name)
	if err != nil {
		return nil, err
	}
	keys, err := s.current(ctx, doc)
	if err != nil {
		return nil, err
	}
	out := make([]KeyView, len(keys))
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
	return out, s.c.Store.Update(ctx, func(tx *store.Tx) error {
		return tx.Audit(s.c.Now(), actor, "reveal key", "Hook/"+name)
	})
}

// RotateKey makes another key for the hook. The former one signs besides it for a day.
func (s *Service) RotateKey(ctx context.Context, actor, name string) ([]KeyView, error) {
	doc, err := s.document(ctx, name)
	if err != nil {
		return nil, err
	}
	if err := s.edit(ctx, doc, func(tx *store.Tx, _ []director.HookKey) (bool, error) {
		return true, tx.Audit(s.c.Now(), actor, "rotate key", "Hook/"+name)
	}); err != nil {
		return nil, err
	}
	return s.Keys(ctx, actor, name, false)
}

// current returns the keys that sign now. A hook without one of its algorithm gets one.
func (s *Service) current(ctx context.Context, doc model.Stored) ([]director.HookKey, error) {
	for range 2 {
		all, err := s.c.Store.HookKeys(ctx, doc.UID)
		if err != nil {
			return nil, err
		}
		now := s.c.Now()
		all = slices.DeleteFunc(all, func(k director.HookKey) bool { return !k.Ends.IsZero() && k.Ends.Before(now) })
		if len(all) > 0 && all[0].Ends.IsZero() && all[0].Algorithm == doc.Hook.Signature {
			return all[:min(len(all), mostSignatures)], nil
		}
		if err := s.edit(ctx, doc, func(_ *store.Tx, have []director.HookKey) (bool, error) {
			there := slices.ContainsFunc(have, func(k director.HookKey) bool {
				return k.Ends.IsZero() && k.Algorithm == doc.Hook.Signature
			})
			return !there, nil
		}); err != nil {
			return nil, err
		}
	}
	return nil, director.Errorf(
		director.KindUnavailable, "hooks.key", "the keys of Hook/%s are being changed", doc.Metadata.Name,
	).WithHint("try again")
}

// edit adds a key if wanted agrees.
func (s *Service) edit(
	ctx context.Context, doc model.Stored, wanted func(*store.Tx, []director.HookKey) (bool, error),
) error {
	now := s.c.Now()
	return s.c.Store.EditHookKeys(ctx, doc.UID, now, func(
		tx *store.Tx, have []director.HookKey,
	) (*director.HookKey, []byte, time.Time, error) {
		fail := func(err error) (*director.HookKey, []byte, time.Time, error) { return nil, nil, time.Time{}, err }
		if yes, err := wanted(tx, have); err != nil || !yes {
			return fail(err)
		}
		key, public, err := webhook.NewKey(doc.Hook.Signature == model.SignEd25519)
		if err != nil {
			return fail(err)
		}
		k := &director.HookKey{
			ID: "k" + randomID(), Hook: doc.UID, Algorithm: doc.Hook.Signature, Public: public, Created: now,
		}
		sealed, err := s.c.Sealer.Seal(store.HookKeyOwner, k.ID, key.Secret)
		return k, sealed, now.Add(overlap), err
	})
}

// signers opens the keys that sign now.
func (s *Service) signers(ctx context.Context, doc model.Stored) ([]webhook.Key, error) {
	keys, err := s.current(ctx, doc)
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

func (s *Service) open(ctx context.Context, k director.HookKey) (webhook.Key, error) {
	s.mu.Lock()
	key, known := s.keys[k.ID]
	s.mu.Unlock()
	if known {
		return key, nil
	}
	sealed, err := s.c.Store.Secret(ctx, store.HookKeyOwner, k.ID)
	if err != nil {
		return key, err
	}
	plain, err := s.c.Sealer.Unseal(store.HookKeyOwner, k.ID, sealed)
	if err != nil {
		return key, director.Errorf(director.KindInternal, "hooks.key", "a key cannot be opened: %w", err).
			WithHint("make another one: directorctl hooks rotate-key NAME")
	}
	key = webhook.Key{Secret: plain, Pair: k.Algorithm == model.SignEd25519}
	s.mu.Lock()
	s.keys[k.ID] = key
	s.mu.Unlock()
	return key, nil
}
