package plan

import "context"

// Run is one attempt of a step, as its handler sees it.
type Run struct {
	Plan    *Plan
	Step    Step
	Attempt int
	// Note tells followers what the step is doing or waiting for. It is journaled, so it is for a change of state and
	// not for every poll; a note equal to the last one is dropped. Never nil.
	Note func(ctx context.Context, message string)
}

// Handler acts for one kind of step. Run must be idempotent: it may have been killed at any line before. Its error says
// what happens next; see OutcomeOf. It must return soon after ctx is done.
type Handler interface {
	Run(ctx context.Context, r Run) error
}

// Preparer is implemented by handlers that need something of this director that there may not be enough of for all,
// such as Ansible's forks. Prepare waits for it before the step's time begins to run, so that the wait costs neither
// time nor an attempt. Run gets the context that it returns. release gives back what was taken, and is nil if there is
// an error.
type Preparer interface {
	Prepare(ctx context.Context, r Run) (prepared context.Context, release func(), err error)
}

// Undoer is implemented by handlers that can undo what Run did, or what it had half done. Undo must be idempotent, and
// must not touch what Run found there. Its error means what Run's means, except that plan.Park fails it: a person is
// asked either way.
type Undoer interface {
	Undo(ctx context.Context, r Run) error
}

// Recorder is implemented by handlers that do nothing but write down what the plan has done. Their steps cannot be
// skipped: the director would not know what there is.
type Recorder interface {
	Records()
}

// Recording is a Handler that is a Recorder.
type Recording struct{ Handler }

// Records marks the handler as one that cannot be skipped.
func (Recording) Records() {}

// HandlerFunc is a function as a Handler.
type HandlerFunc func(ctx context.Context, r Run) error

// Run calls f.
func (f HandlerFunc) Run(ctx context.Context, r Run) error { return f(ctx, r) }

// Undoable is a handler made of two functions.
type Undoable struct {
	Do, TakeBack func(ctx context.Context, r Run) error
}

// Run calls Do.
func (u Undoable) Run(ctx context.Context, r Run) error { return u.Do(ctx, r) }

// Undo calls TakeBack.
func (u Undoable) Undo(ctx context.Context, r Run) error { return u.TakeBack(ctx, r) }
