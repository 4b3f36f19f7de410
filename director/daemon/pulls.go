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

// pullsFor is how long an answer about credentials holds: a layer is fetched in many requests, and a deleted cluster loses its access this fast.
const pullsFor = 10 * time.Second

// pulls says who may read from the registry: the nodes of each cluster with its password.
type pulls struct {
	db        *store.Store
	env       steps.Env
	anonymous string
	log       *slog.Logger
	now       func() time.Time

	mu    sync.Mutex
	known map[string]pullAnswer // by user; "" for requests without
}

type pullAnswer struct {
	password [sha256.Size]byte
	allowed  bool
	until    time.Time
}

// read implements registry.Reader.
func (p *pulls) read(ctx context.Context, user string, password director.Secret) bool {
	got := sha256.Sum256([]byte(password.Reveal()))
	answer, ok := p.answer(ctx, user)
	return ok && answer.allowed && (user == "" || subtle.ConstantTimeCompare(got[:], answer.password[:]) == 1)
}

func (p *pulls) answer(ctx context.Context, user string) (pullAnswer, bool) {
	now := p.now()
	p.mu.Lock()
	answer, ok := p.known[user]
	p.mu.Unlock()
	if ok && now.Before(answer.until) {
		return answer, true
	}
	answer, err := p.look(ctx, user)
	if err != nil {
		p.log.WarnContext(ctx, "the credentials of a pull cannot be checked", "user", user, "err", err)
		return answer, false
	}
	answer.until = now.Add(pullsFor)
	p.mu.Lock()
	defer p.mu.Unlock()
	if len(p.known) >= maxKnownPulls { // names that somebody makes up
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
	password, err := p.env.PullPassword(ctx, user)
	return pullAnswer{password: sha256.Sum256([]byte(password.Reveal())), allowed: password != ""}, err
}
