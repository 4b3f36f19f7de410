package daemon

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"log/slog"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
)

// Who may pull without credentials.
const (
	anonymousExisting = "existing" // anyone, while there are clusters whose nodes were set up without
	anonymousNever    = "never"
)

// pullsFor is how long an answer about credentials holds: a layer is fetched in many requests, and a deleted cluster
// loses its access this fast.
const pullsFor = 10 * time.Second

// pullsAgain is how old an answer may be that refuses: nodes pull with another password as soon as they have it.
const pullsAgain = time.Second

// pulls says who may read from the registry: the nodes of each cluster with its password.
type pulls struct {
	db        *store.Store
	keys      steps.Keys
	anonymous string
	log       *slog.Logger
	now       func() time.Time

	mu    sync.Mutex
	known map[string]pullAnswer  // by user; "" for requests without
	shown map[[2]string]struct{} // user and address
}

type pullAnswer struct {
	passwords [][sha256.Size]byte // one, or two while the nodes are given another one
	allowed   bool
	at        time.Time
}

// read implements registry.Reader.
func (p *pulls) read(ctx context.Context, user string, password director.Secret, from string) bool {
	got := sha256.Sum256([]byte(password.Reveal()))
	for _, oldest := range []time.Duration{pullsFor, pullsAgain} {
		answer, ok := p.answer(ctx, user, oldest)
		if !ok || !answer.allowed || user == "" {
			return ok && answer.allowed
		}
		if answer.accepts(got) {
			p.note(ctx, user, from)
			return true
		}
	}
	return false
}

func (a pullAnswer) accepts(got [sha256.Size]byte) bool {
	right := 0
	for i := range a.passwords {
		right |= subtle.ConstantTimeCompare(got[:], a.passwords[i][:])
	}
	return right == 1
}

// note records that a node has shown the password of its cluster, once.
func (p *pulls) note(ctx context.Context, user, from string) {
	who := [2]string{user, from}
	p.mu.Lock()
	_, known := p.shown[who]
	p.mu.Unlock()
	if known || p.anonymous == anonymousNever {
		return
	}
	if err := p.db.NotePull(ctx, user, from); err != nil {
		p.log.WarnContext(ctx, "that a node has shown its password cannot be recorded", "user", user, "err", err)
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.shown == nil || len(p.shown) >= maxKnownPulls {
		p.shown = map[[2]string]struct{}{}
	}
	p.shown[who] = struct{}{}
}

// answer returns what is known of the user's credentials, at most that old.
func (p *pulls) answer(ctx context.Context, user string, oldest time.Duration) (pullAnswer, bool) {
	now := p.now()
	p.mu.Lock()
	answer, ok := p.known[user]
	p.mu.Unlock()
	if ok && now.Before(answer.at.Add(oldest)) {
		return answer, true
	}
	answer, err := p.look(ctx, user)
	if err != nil {
		p.log.WarnContext(ctx, "the credentials of a pull cannot be checked", "user", user, "err", err)
		return answer, false
	}
	answer.at = now
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.known) >= maxKnownPulls { // names that clients invent
		clear(p.known)
	}
	p.known[user] = answer
	return answer, true
}

// maxKnownPulls bounds what is remembered.
const maxKnownPulls = 4096

func (p *pulls) look(ctx context.Context, user string) (pullAnswer, error) {
	if user == "" {
		if p.anonymous == anonymousNever {
			return pullAnswer{}, nil
		}
		without, err := p.db.AnonymousPulls(ctx)
		return pullAnswer{allowed: len(without) > 0}, err
	}
	passwords, err := p.keys.PullPasswords(ctx, user)
	answer := pullAnswer{allowed: len(passwords) > 0}
	for _, password := range passwords {
		answer.passwords = append(answer.passwords, sha256.Sum256([]byte(password.Reveal())))
	}
	return answer, err
}
