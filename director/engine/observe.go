package engine

import (
	"context"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
)

// Observer is told what the engine does, for metrics. Its methods must return at once and are called from many
// goroutines.
type Observer interface {
	StepStarted(kind string)
	// StepEnded tells how an attempt ended and how long it took.
	StepEnded(kind string, outcome plan.EventKind, took time.Duration)
	// LeaseLost tells that a step was taken from an engine that was silent for too long, or is gone.
	LeaseLost()
}

type nobody struct{}

func (nobody) StepStarted(string)                              {}
func (nobody) StepEnded(string, plan.EventKind, time.Duration) {}
func (nobody) LeaseLost()                                      {}

// mostQueued is where QueueLength stops counting: River's lists end there.
const mostQueued = 10000

// QueueLength returns how many steps could start now and wait for a free worker.
func (e *Engine) QueueLength(ctx context.Context) (int, error) {
	jobs, err := e.queue.JobList(ctx, river.NewJobListParams().States(rivertype.JobStateAvailable).First(mostQueued))
	if err != nil {
		return 0, director.Errorf(director.KindUnavailable, "engine.queue", "the queue cannot be read: %w", err)
	}
	return len(jobs.Jobs), nil
}

// Held returns how many steps run here, each under a lease.
func (e *Engine) Held() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.running)
}

// Alive returns nil if the engine runs and renews its leases, and otherwise unavailable with the reason.
func (e *Engine) Alive() error {
	e.mu.Lock()
	started, stopping := e.stop != nil, e.stopping
	e.mu.Unlock()
	switch silence := e.cfg.Now().Sub(time.Unix(0, e.beat.Load())); {
	case !started:
		return director.Errorf(director.KindUnavailable, "engine.alive", "the engine has not started")
	case stopping:
		return director.Errorf(director.KindUnavailable, "engine.alive", "the engine is stopping")
	case silence > e.cfg.Lease:
		return director.Errorf(
			director.KindUnavailable, "engine.alive", "the engine could not renew its leases for %s",
			silence.Round(time.Second),
		).
			WithHint("check that the database can be written")
	}
	return nil
}
