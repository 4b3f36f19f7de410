package engine

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/riverqueue/river"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
)

// worker runs steps for its engine.
type worker struct {
	river.WorkerDefaults[stepArgs]
	*Engine
}

// Work runs one invitation. It returns nil always: the journal, not River, says what happens next.
func (w *worker) Work(ctx context.Context, job *river.Job[stepArgs]) error {
	w.run(context.WithoutCancel(ctx), job.Args.StepRef)
	return nil
}

// run claims the attempt, lets the handler act and journals the outcome.
func (w *worker) run(ctx context.Context, ref plan.StepRef) {
	log := w.cfg.Log.With("plan_id", ref.Plan, "step", ref.Step, "attempt", ref.Attempt)
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	w.mu.Lock()
	if _, twice := w.running[ref]; w.stopping || w.held || twice {
		w.mu.Unlock()
		return // nothing is claimed: the keeper queues it again, or the same invitation is being followed
	}
	w.running[ref] = cancel
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		delete(w.running, ref)
		delete(w.claimed, ref)
		w.mu.Unlock()
	}()

	p, step, claimed, err := w.claim(ctx, ref)
	if err != nil {
		log.ErrorContext(ctx, "claiming a step failed, will retry", "err", err)
		w.wakeAt(ref.Plan, ref.Step, ref.Attempt-1, w.cfg.Now().Add(min(time.Second, tickOf(w.cfg.Lease))))
		return
	}
	if claimed == no {
		return
	}
	w.signal.send()
	w.cfg.Observer.StepStarted(step.Kind)
	began := w.cfg.Now()
	err = w.act(ctx, p, step, ref, claimed == takeBack)
	ev := w.outcome(ctx, step, err)
	w.cfg.Observer.StepEnded(step.Kind, ev.Kind, w.cfg.Now().Sub(began))
	if err != nil {
		log.Log(ctx, levelOf(ev.Kind), "step did not finish", "outcome", string(ev.Kind), "err", err)
	}
	w.journal(ctx, log, ref, ev)
}

// claim is what an attempt may do.
type claim int

const (
	no claim = iota
	do
	takeBack
)

// claim commits that the attempt has started, or says that it may not.
func (w *worker) claim(ctx context.Context, ref plan.StepRef) (p plan.Plan, step plan.Step, claimed claim, err error) {
	err = w.cfg.Store.Update(ctx, func(tx Tx) error {
		claimed = no // the transaction may run twice
		var s plan.State
		var err error
		if p, s, err = tx.Plan(ref.Plan); err != nil {
			return err
		}
		st := s.Step(ref.Step)
		var known bool
		step, known = p.Step(ref.Step)
		if !known || st == nil || ref.Attempt != st.Attempt+1 ||
			!slices.Contains(plan.Ready(&p, &s, w.cfg.Now()), ref.Step) {
			return w.leaveLine(ctx, tx, ref, step.Budgets)
		}
		undo := st.Status == plan.UndoDue
		if !undo {
			usedUp, err := tx.TakeBudgets(ref, step.Budgets, w.cfg.Budget, w.cfg.Now())
			if err != nil || usedUp != "" {
				return err
			}
		}
		kind := plan.Started
		if undo {
			kind = plan.UndoStarted
		}
		if err := w.append(tx, &s, plan.Event{
			Plan: ref.Plan, Step: ref.Step, Kind: kind, Attempt: ref.Attempt,
		}); err != nil {
			return err
		}
		if claimed = do; undo {
			claimed = takeBack
		}
		return tx.Lease(ref.Plan, ref.Step, w.owner, w.leaseNow().Add(w.cfg.Lease))
	})
	if err != nil {
		claimed = no
	}
	if claimed != no {
		w.mu.Lock()
		w.claimed[ref] = struct{}{}
		w.mu.Unlock()
	}
	return p, step, claimed, err
}

// leaveLine makes room in a line for the next when a step that stood in it may no longer run.
func (w *worker) leaveLine(ctx context.Context, tx Tx, ref plan.StepRef, budgets []string) error {
	if len(budgets) == 0 {
		return nil
	}
	if err := tx.LeaveLine(ref); err != nil {
		return err
	}
	return w.callNext(ctx, tx, budgets)
}

// act calls the handler within the step's time, and turns a panic into an abort.
func (w *worker) act(ctx context.Context, p plan.Plan, step plan.Step, ref plan.StepRef, undo bool) (err error) {
	if err := p.Readable(); err != nil {
		return plan.Park(err, director.HintOf(err))
	}
	handler := w.cfg.Handlers[step.Kind]
	undoer, undoable := handler.(plan.Undoer)
	if handler == nil || (undo && !undoable) {
		return plan.Park(director.Errorf(
			director.KindInternal, "engine.run", "this director does not know steps of kind %q", step.Kind,
		),
			"the plan was made by another version: upgrade the director and retry, or discard the plan")
	}
	defer func() {
		if r := recover(); r != nil {
			err = plan.Abort(&director.Error{
				Kind: director.KindInternal, Op: "engine.run", Msg: "the step hit a defect of the director",
				Hint: "report it with the director's log", Err: fmt.Errorf("panic: %v\n%s", r, debug.Stack()),
			})
		}
	}()
	var mu sync.Mutex
	var last string
	note := func(ctx context.Context, message string) {
		mu.Lock()
		defer mu.Unlock()
		if message == last {
			return
		}
		last = message
		if err := w.finish(ctx, ref, ending{Event: plan.Event{Kind: plan.Noted, Message: message}}); err != nil {
			w.cfg.Log.DebugContext(ctx, "a note was not journaled", "plan_id", ref.Plan, "step", ref.Step, "err", err)
		}
	}
	r := plan.Run{Plan: &p, Step: step, Attempt: ref.Attempt, Note: note}
	if preparer, ok := handler.(plan.Preparer); ok && !undo {
		prepared, release, err := preparer.Prepare(ctx, r)
		if err != nil {
			return err
		}
		defer release()
		ctx = prepared
	}
	if step.Timeout > 0 { // from here on: what it had to wait for is not its fault
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, step.Timeout)
		defer cancel()
	}
	if undo {
		return undoer.Undo(ctx, r)
	}
	return handler.Run(ctx, r)
}

// outcome turns the handler's error into the event that it means.
func (w *worker) outcome(ctx context.Context, step plan.Step, err error) ending {
	o := plan.OutcomeOf(err)
	ev := ending{Event: plan.Event{Kind: o.Kind}, last: o.Last, most: o.Most}
	if err == nil {
		return ev
	}
	cause := context.Cause(ctx)
	if cause != nil && (o.Kind == plan.Retry || o.Kind == plan.NotReady || o.Kind == plan.Interrupted) {
		wanted := errors.Is(cause, errStopping) || errors.Is(cause, errCancelled)
		return ending{Event: plan.Event{Kind: plan.Interrupted, Message: cause.Error(), Counted: !wanted}}
	}
	switch o.Kind {
	case plan.Interrupted:
		ev.Counted, ev.pause = true, true
	case plan.NotReady:
		ev.Message, ev.NotBefore = o.Text, w.cfg.Now().Add(o.After)
		return ev
	case plan.Retry:
		if _, told := errors.AsType[*director.Error](err); !told && errors.Is(err, context.DeadlineExceeded) {
			err = director.Errorf(director.KindUnavailable, step.Kind, "it took longer than %s: %w", step.Timeout, err)
		}
	}
	ev.Message, ev.Hint = w.cfg.Explain(err)
	if o.Text != "" {
		sep := ": "
		if strings.Contains(ev.Message, "\n") {
			sep = "\n" // below the lines of detail
		}
		ev.Message += sep + o.Text
	}
	return ev
}

// backoff is the wait before retry n (from 1): 2 s doubling up to a minute, with a fifth of jitter so that many do not
// come back together.
func backoff(n int) time.Duration {
	d := min(time.Minute, time.Second<<min(n, 6))
	return d + time.Duration(rand.Int64N(int64(d/5)))
}

// ending is an event of an attempt with what a retry becomes when the attempts are used up.
type ending struct {
	plan.Event
	last  plan.EventKind
	most  time.Duration // how long the step may be not ready in all
	pause bool          // an interruption that is not tried again at once when it repeats
}

// interruption is the end of an attempt whose engine went away.
func interruption(why string) ending {
	return ending{Event: plan.Event{Kind: plan.Interrupted, Message: why, Counted: true}}
}

// finish appends an event of the attempt, whatever it is, if every guard agrees. A retry becomes its last resort when
// the attempts are used up. An event of an attempt that is no longer current is dropped: others have the step now.
func (e *Engine) finish(ctx context.Context, ref plan.StepRef, event ending, guards ...func(Tx) (bool, error)) error {
	var wake, refused bool
	var ev plan.Event
	err := e.cfg.Store.Update(ctx, func(tx Tx) error {
		ev, wake, refused = event.Event, false, false // the transaction may run twice
		p, s, err := tx.Plan(ref.Plan)
		if err != nil {
			return err
		}
		st := s.Step(ref.Step)
		if st == nil || !st.Status.Leased() || st.Attempt != ref.Attempt {
			refused = true
			return nil
		}
		for _, agrees := range guards {
			if ok, err := agrees(tx); err != nil || !ok {
				return err
			}
		}
		step, _ := p.Step(ref.Step)
		ev = e.limited(step, st, event)
		ev.Plan, ev.Step, ev.Attempt = ref.Plan, ref.Step, ref.Attempt
		if st.Status == plan.Undoing {
			ev.Kind = whileUndoing(ev.Kind)
		}
		if step.Back() && ev.Kind == plan.Aborted {
			ev = stranded(p, step, ev)
		}
		if err := e.append(tx, &s, ev); err != nil {
			return err
		}
		if ev.Kind == plan.Noted {
			return nil
		}
		if len(step.Budgets) > 0 {
			if err := errors.Join(tx.GiveBack(ref), e.callNext(ctx, tx, step.Budgets)); err != nil {
				return err
			}
		}
		if _, can := e.cfg.Handlers[step.Kind].(plan.Undoer); can && step.UndoOnFailure && ev.Kind == plan.Aborted {
			if err := e.append(tx, &s, plan.Event{Plan: ref.Plan, Step: ref.Step, Kind: plan.UndoAsked}); err != nil {
				return err
			}
		}
		wake = (st.Status == plan.Waiting || st.Status == plan.UndoDue) && ev.NotBefore.After(e.cfg.Now())
		ready := plan.Ready(&p, &s, e.cfg.Now())
		return e.settle(ctx, tx, &p, &s, affected(&p, &step, &s, ready))
	})
	if err == nil && wake {
		e.wakeAt(ref.Plan, ref.Step, ref.Attempt, ev.NotBefore)
	}
	if err == nil && refused && event.Kind != plan.Noted && event.Kind != plan.Interrupted {
		e.cfg.Log.WarnContext(ctx, "a late outcome was refused", "plan_id", ref.Plan, "step", ref.Step, "attempt",
			ref.Attempt,
			"outcome", string(event.Kind))
	}
	e.signal.send()
	return err
}

// limited returns the event that the end of an attempt is: what is tried again has a bound.
func (e *Engine) limited(step plan.Step, st *plan.StepState, end ending) plan.Event {
	ev, now := end.Event, e.cfg.Now()
	switch ev.Kind {
	case plan.Retry:
		if st.Failures+1 >= step.Attempts {
			ev.Kind = end.last
		} else {
			ev.NotBefore = now.Add(backoff(st.Failures + 1))
		}
	case plan.Interrupted:
		if !ev.Counted {
			break
		}
		n := st.Interruptions + 1
		if n >= e.cfg.Interruptions {
			ev.Kind, ev.Counted = plan.NeedsHuman, false
			ev.Message = fmt.Sprintf("it was interrupted %d times in a row, the last time because: %s", n, ev.Message)
			ev.Hint = "check the director's log and dmesg for what interrupts it, such as a lack of memory; fix " +
				"that, then retry the step"
		} else if end.pause && n > 1 {
			ev.NotBefore = now.Add(backoff(n - 1))
		}
	case plan.NotReady:
		if ev.Deadline = st.Deadline; ev.Deadline.IsZero() {
			ev.Deadline = now.Add(end.most)
		}
		if now.After(ev.Deadline) {
			ev.Kind, ev.NotBefore, ev.Deadline = plan.NeedsHuman, time.Time{}, time.Time{}
			ev.Message = fmt.Sprintf("it was not ready for %s: %s", end.most, ev.Message)
			ev.Hint = "fix what it waits for, then retry the step"
		}
	}
	return ev
}

// whileUndoing returns the event that means for a step that is undone what k means for one that runs.
func whileUndoing(k plan.EventKind) plan.EventKind {
	switch k {
	case plan.Succeeded:
		return plan.UndoSucceeded
	case plan.Aborted, plan.NeedsHuman:
		return plan.UndoFailed
	}
	return k
}

// stranded is the end of a rollback step that failed: the node is neither here nor there, so the plan keeps its cluster
// and asks a person.
func stranded(p plan.Plan, step plan.Step, ev plan.Event) plan.Event {
	ev.Kind, ev.Message = plan.NeedsHuman, step.Node+" could not be rolled back: "+ev.Message
	if ev.Hint != "" {
		ev.Hint += "; "
	}
	if p.Operation.OnDirector() {
		ev.Hint += "fix the cause and continue: directorctl retry " + p.ID
		return ev
	}
	ev.Hint += fmt.Sprintf("fix the cause and continue: directorctl retry %s; or give the plan up and recreate the "+
		"node: directorctl discard %s, directorctl node replace %s %s",
		p.ID, p.ID, p.Cluster, step.Node)
	return ev
}

// affected keeps of the ready steps the one that just ended and those that may have waited for it: by a need, a window,
// or the order of undoing. The others are queued already.
func affected(p *plan.Plan, ended *plan.Step, s *plan.State, ready []string) []string {
	var out []string
	next := 0 // ready is in the plan's order
	for i := range p.Steps {
		step := &p.Steps[i]
		if next == len(ready) {
			break
		}
		if step.ID != ready[next] {
			continue
		}
		next++
		if step.ID == ended.ID || slices.Contains(step.Needs, ended.ID) ||
			(step.Window != "" && step.Window == ended.Window) ||
			s.Steps[i].Status == plan.UndoDue {
			out = append(out, step.ID)
		}
	}
	return out
}

// journal writes the outcome, and keeps trying as long as this engine runs: an outcome that cannot be written must not
// be lost, however long a disk is full. Should the lease end meanwhile, the step belongs to the engine that took it
// over, and finish drops the outcome.
func (w *worker) journal(ctx context.Context, log *slog.Logger, ref plan.StepRef, ev ending) {
	for wait := 50 * time.Millisecond; ; wait = min(2*wait, time.Second) {
		err := w.finish(context.WithoutCancel(ctx), ref, ev)
		if err == nil {
			return
		}
		log.ErrorContext(ctx, "journaling an outcome failed, will retry", "outcome", string(ev.Kind), "err", err)
		w.mu.Lock()
		stopping := w.stopping
		w.mu.Unlock()
		if stopping {
			return // the next start finds the step interrupted
		}
		timer := time.NewTimer(wait)
		<-timer.C
	}
}

func levelOf(k plan.EventKind) slog.Level {
	switch k {
	case plan.NotReady:
		return slog.LevelDebug
	case plan.Aborted:
		return slog.LevelError
	}
	return slog.LevelWarn
}

// levelHandler raises the least level of a handler: the queue's own chatter is not news.
type levelHandler struct {
	slog.Handler
	least slog.Level
}

func (h levelHandler) Enabled(ctx context.Context, l slog.Level) bool {
	return l >= h.least && h.Handler.Enabled(ctx, l)
}

func (h levelHandler) WithAttrs(a []slog.Attr) slog.Handler {
	return levelHandler{h.Handler.WithAttrs(a), h.least}
}

func (h levelHandler) WithGroup(name string) slog.Handler {
	return levelHandler{h.Handler.WithGroup(name), h.least}
}

// broadcast wakes everybody who waits, as often as there is news.
type broadcast struct {
	mu sync.Mutex
	ch chan struct{}
}

func newBroadcast() *broadcast { return &broadcast{ch: make(chan struct{})} }

func (b *broadcast) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.ch
}

func (b *broadcast) send() {
	b.mu.Lock()
	defer b.mu.Unlock()
	close(b.ch)
	b.ch = make(chan struct{})
}
