// Package audit keeps the trail of attempts: it records those that changed nothing, signs checkpoints of the chain, and
// verifies it. Changes are recorded by the transactions that make them, see store.Tx.Audit.
package audit

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/chain"
	"github.com/director-kaas/kaas/director/store"
)

// When a checkpoint is signed: after so many entries, and after so long.
const (
	checkpointEntries = 1000
	checkpointAge     = time.Hour
)

// The place of the sealed key that signs checkpoints. Directors on one database share it.
const (
	keyOwner = "Audit"
	keyName  = "checkpoint key"
)

// Sealer encrypts what is stored for the row of one owner and name, and opens it for no other.
type Sealer interface {
	Seal(owner, name string, plain []byte) ([]byte, error)
	Unseal(owner, name string, sealed []byte) ([]byte, error)
}

// Config is what New needs.
type Config struct {
	Store  *store.Store
	Sealer Sealer
	Now    func() time.Time
}

// Service keeps the audit trail. It is safe for concurrent use.
type Service struct {
	store *store.Store
	key   ed25519.PrivateKey
	now   func() time.Time

	mu sync.Mutex
	minute
	signing   sync.Mutex
	verifying sync.Mutex
	signed    chain.Checkpoint // the newest one that this process knows
}

// New returns the service. It makes the key of the checkpoints if there is none.
func New(ctx context.Context, c Config) (*Service, error) {
	key, err := openKey(ctx, c.Store, c.Sealer)
	if err != nil {
		return nil, err
	}
	s := &Service{store: c.Store, key: key, now: c.Now}
	_, s.signed, err = s.store.AuditProgress(ctx)
	return s, err
}

func openKey(ctx context.Context, db *store.Store, box Sealer) (ed25519.PrivateKey, error) {
	sealed, err := db.Secret(ctx, keyOwner, keyName)
	if err != nil {
		return nil, err
	}
	if sealed == nil {
		seed := make([]byte, ed25519.SeedSize)
		_, _ = rand.Read(seed) // never fails
		if sealed, err = box.Seal(keyOwner, keyName, seed); err != nil {
			return nil, err
		}
		if sealed, err = db.AddSecret(ctx, keyOwner, keyName, sealed); err != nil {
			return nil, err
		}
	}
	seed, err := box.Unseal(keyOwner, keyName, sealed)
	if err == nil && len(seed) != ed25519.SeedSize {
		err = director.Errorf(
			director.KindInternal, "audit.key", "the key of the audit trail's checkpoints is damaged",
		).
			WithHint("restore the database from a backup")
	}
	if err != nil {
		return nil, err
	}
	return ed25519.NewKeyFromSeed(seed), nil
}

// Public returns the key that verifies checkpoints.
func (s *Service) Public() ed25519.PublicKey { return s.key.Public().(ed25519.PublicKey) }

// Tick writes the counts of the minutes that are over, and signs a checkpoint if it is time for one.
func (s *Service) Tick(ctx context.Context) error {
	if err := s.flush(ctx, false); err != nil {
		return err
	}
	seq, last, err := s.store.AuditProgress(ctx)
	if err != nil || seq == 0 {
		return err
	}
	fresh := seq - last.Seq
	if fresh >= checkpointEntries || fresh != 0 && s.now().Sub(last.At) >= checkpointAge {
		return s.Checkpoint(ctx, seq)
	}
	return nil
}

// Close writes the counts that are in memory.
func (s *Service) Close(ctx context.Context) error { return s.flush(ctx, true) }

// Checkpoint signs the trail at the entry. It signs no trail that lost or changed what this process signed before.
func (s *Service) Checkpoint(ctx context.Context, seq int64) error {
	s.signing.Lock()
	defer s.signing.Unlock()
	if err := s.unchanged(ctx); err != nil {
		return err
	}
	hash, err := s.store.AuditHash(ctx, seq)
	if err != nil {
		return err
	}
	c := chain.Checkpoint{Director: s.store.DirectorID(), Seq: seq, Hash: hash, At: s.now()}.Sign(s.key)
	if err := s.store.AddCheckpoint(ctx, c); err != nil {
		return err
	}
	if seq > s.signed.Seq {
		s.signed = c
	}
	return nil
}

// unchanged compares the trail with the newest checkpoint that this process knows.
func (s *Service) unchanged(ctx context.Context) error {
	if s.signed.Seq == 0 {
		return nil
	}
	found, err := s.store.AuditCheckpoints(ctx, s.signed.Seq)
	if err != nil {
		return err
	}
	if len(found) == 0 || found[0].Seq != s.signed.Seq || found[0].Hash != s.signed.Hash {
		return director.Errorf(
			director.KindInternal, "audit.checkpoint",
			"the checkpoint of the audit trail at entry %d is gone or was changed", s.signed.Seq,
		).WithHint("find out who can write to the database, and compare it with a backup")
	}
	hash, err := s.store.AuditHash(ctx, s.signed.Seq)
	if director.KindOf(err) == director.KindNotFound {
		// It was archived; or the tail was cut, and then the head is behind.
		seen, serr := s.store.SeeAudit(ctx)
		if serr != nil {
			return serr
		}
		hash, err = s.signed.Hash, nil
		if seen.Head.Seq < s.signed.Seq {
			hash = chain.Hash{}
		}
	}
	if err == nil && hash != s.signed.Hash {
		return director.Errorf(
			director.KindInternal, "audit.checkpoint", "the audit trail up to entry %d was changed", s.signed.Seq,
		).WithHint("find out who can write to the database, and compare it with a backup")
	}
	return err
}

// Verify reads the whole trail that is in the database. One runs at a time; a second one is exhausted.
func (s *Service) Verify(ctx context.Context) (chain.Result, error) {
	const page = 1000
	if !s.verifying.TryLock() {
		return chain.Result{}, director.Errorf(
			director.KindExhausted, "audit.verify", "the audit trail is being verified for someone else",
		).WithHint("try again in a minute")
	}
	defer s.verifying.Unlock()
	seen, err := s.store.SeeAudit(ctx)
	if err != nil {
		return chain.Result{}, err
	}
	v := chain.NewVerifier(s.Public(), s.store.DirectorID(), seen.Head.BeforeID, seen.Checkpoints)
	for after := int64(0); ; {
		entries, err := s.store.AuditPage(ctx, after, seen.LastID, page)
		if err != nil {
			return chain.Result{}, err
		}
		for _, e := range entries {
			v.Add(e)
			after = e.ID
		}
		if len(entries) < page {
			return v.End(seen.Head.Seq), nil
		}
	}
}
