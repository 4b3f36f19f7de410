// Package jobs runs work that outlives the request for it. Jobs live in memory: after a restart the same request starts
// the job again, or finds that it is done.
package jobs

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
)

// Life is how long the end of a job can be asked for.
const Life = time.Hour

// The stages that every job has; others are the work's own.
const (
	Checking = "checking"
	Done     = "done"
	Failed   = "failed"
)

// Job is work as it is at a moment. Result is set when it is done, and Err when it failed.
type Job[T any] struct {
	ID          string
	Stage       string
	Done, Total int64 // of the stage; Total 0 if that is not known
	Result      *T
	Err         error
}

// Ended tells whether nothing more will happen.
func (j Job[T]) Ended() bool { return j.Stage == Done || j.Stage == Failed }

// Progress begins a stage of a job, and returns what notes how far the stage is.
type Progress func(stage string) func(done, total int64)

// Table holds jobs. It is safe for concurrent use.
type Table[T any] struct {
	op     string
	log    *slog.Logger
	now    func() time.Time
	work   context.Context // ends with Close
	cancel context.CancelCauseFunc
	wait   sync.WaitGroup

	mu   sync.Mutex
	jobs map[string]*entry[T]
}

type entry[T any] struct {
	Job[T]
	ended  time.Time
	cancel context.CancelCauseFunc
	over   chan struct{} // closed at the end
}

// New returns a table without jobs. op is what errors of it name.
func New[T any](op string, log *slog.Logger, now func() time.Time) *Table[T] {
	t := &Table[T]{op: op, log: log, now: now, jobs: map[string]*entry[T]{}}
	t.work, t.cancel = context.WithCancelCause(context.Background())
	return t
}

// Close ends what runs and waits for it. It is idempotent.
func (t *Table[T]) Close(context.Context) error {
	t.cancel(errors.New("the director stops"))
	t.wait.Wait()
	return nil
}

// Job returns the job, or not_found.
func (t *Table[T]) Job(id string) (Job[T], error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if j := t.jobs[id]; j != nil {
		return j.Job, nil
	}
	return Job[T]{}, director.Errorf(director.KindNotFound, t.op, "there is no such job").
		WithHint("the director may have been started again: ask for the same work again")
}

// Cancel ends the job, and returns when it has ended. No error if there is none, or if it has ended before.
func (t *Table[T]) Cancel(ctx context.Context, id string) error {
	t.mu.Lock()
	j := t.jobs[id]
	t.mu.Unlock()
	if j == nil {
		return nil
	}
	j.cancel(errCancelled)
	select {
	case <-j.over:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

var errCancelled = errors.New("it was cancelled")

// Begin starts the work under the id and returns its job, or the job that runs under the id already. take is called
// before the work and gives what frees what the work is on, when that has ended; its error is the answer.
func (t *Table[T]) Begin(
	id string, take func() (release func(), err error), work func(context.Context, Progress) (T, error),
) (Job[T], error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	now := t.now()
	for k, j := range t.jobs {
		if j.Ended() && now.Sub(j.ended) > Life {
			delete(t.jobs, k)
		}
	}
	if j := t.jobs[id]; j != nil && !j.Ended() {
		return j.Job, nil
	}
	if t.work.Err() != nil {
		return Job[T]{}, director.Errorf(director.KindUnavailable, t.op, "the director stops").
			WithHint("try again when it runs")
	}
	release, err := take()
	if err != nil {
		return Job[T]{}, err
	}
	j := &entry[T]{Job: Job[T]{ID: id, Stage: Checking}, over: make(chan struct{})}
	var ctx context.Context
	ctx, j.cancel = context.WithCancelCause(t.work)
	t.jobs[id] = j
	t.wait.Go(func() {
		defer close(j.over)
		got, err := work(ctx, t.progress(j))
		release()
		t.end(j, got, err)
		j.cancel(nil)
	})
	return j.Job, nil
}

func (t *Table[T]) progress(j *entry[T]) Progress {
	return func(stage string) func(done, total int64) {
		set := func(done, total int64) {
			t.mu.Lock()
			defer t.mu.Unlock()
			j.Stage, j.Done, j.Total = stage, done, total
		}
		set(0, 0)
		return set
	}
}

func (t *Table[T]) end(j *entry[T], got T, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	j.ended = t.now()
	if err == nil {
		j.Stage, j.Result = Done, &got
		return
	}
	if _, ours := errors.AsType[*director.Error](err); !ours {
		err = director.Errorf(director.KindUnavailable, t.op, "the work was ended: %w", err).
			WithHint("ask for it again")
	}
	j.Stage, j.Err = Failed, err
	t.log.Warn("a job failed", "job", j.ID, "err", err)
}
