// Package engine runs plans: it moves their steps on River's queue, writes the journal around every act and continues
// where an earlier process stopped.
//
// The journal is the truth and River only carries invitations: a job says "step S of plan P may run as attempt N". A
// job whose attempt is not the next one of its step does nothing, so lost, doubled and orphaned jobs cannot hurt.
package engine

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
)

// Tx is a transaction over plans and the queue. Until it ends, no other one changes a plan that Plan returned.
type Tx interface {
	SQL() *sql.Tx                    // for a queue on SQLite
	Pgx(fn func(pgx.Tx) error) error // for a queue on PostgreSQL
	Plan(id string) (plan.Plan, plan.State, error)
	Append(s *plan.State, e plan.Event) error
	Lease(planID, step, owner string, until time.Time) error
	Lapsed(ref plan.StepRef, now time.Time, prefix, owner string) (bool, error) // whether Lost still holds
	Stop(planID string) error                                                   // ask holders to end running steps now
	// TakeBudgets takes one of each budget for the step, or none: then it returns the one that is used up, and the step
	// waits in its line.
	TakeBudgets(ref plan.StepRef, budgets []string, limit func(string) int, now time.Time) (usedUp string, err error)
	GiveBack(ref plan.StepRef) error
	LeaveLine(ref plan.StepRef) error
	// Next returns who is first in the lines of the budgets, as many as there is room for; nil budgets mean all lines.
	Next(budgets []string, limit func(string) int) ([]plan.StepRef, error)
}

// Store keeps plans. Methods outside Update must not be called inside it. It has many methods because it is the
// engine's only way out: what they share is the database.
type Store interface {
	SQL() *sql.DB
	Pool() *pgxpool.Pool                          // nil where one engine has the database for itself
	Clock(ctx context.Context) (time.Time, error) // the database's
	// Update runs fn in a transaction, and once more if the database asks for that.
	Update(ctx context.Context, fn func(Tx) error) error
	Active(ctx context.Context) ([]string, error) // ids of the plans with a status of plan.Driven
	Plan(ctx context.Context, id string) (plan.Plan, plan.State, error)
	// the steps that wait for a budget, with the attempts that they wait with
	InLine(ctx context.Context) ([]plan.StepRef, error)
	// Renew extends owner's leases, and returns what it holds and what of that is to end now.
	Renew(ctx context.Context, owner string, until time.Time) (held, stop []plan.StepRef, err error)
	Lost(ctx context.Context, now time.Time, prefix, owner string) ([]plan.StepRef, error)
	Beat(ctx context.Context, instance, host string, started, now time.Time) error
	Gone(ctx context.Context, since time.Time, instance string) ([]string, error)
}

// Config says how an engine works.
type Config struct {
	Director string                  // id of the installation, shared by all engines on a database
	Instance string                  // id of this engine's state directory, of no other's; Director if empty
	Host     string                  // where it runs, for people
	Channel  string                  // on which the store tells of news, where it does
	Store    Store                   //
	Handlers map[string]plan.Handler // by step kind
	Workers  int                     // steps at once; 32 if zero
	Lease    time.Duration           // how long a silent engine keeps its steps; DefaultLease if zero
	// Interruptions is how many in a row that were not wanted make a step wait for a person; 10 if zero.
	Interruptions int
	Now           func() time.Time // time.Now if nil
	Log           *slog.Logger
	// Budget returns how many steps may hold the budget at once, over all plans; 0 is without bound. Nil bounds
	// nothing.
	Budget   func(budget string) int
	Observer Observer // told what happens; none if nil
	// Current refuses to move on a plan that a person retries, skips a step of or undoes, within the transaction; nil
	// refuses none.
	Current func(Tx, *plan.Plan, *plan.State) error
	// Explain turns an error into what people are shown; the error's own text if nil.
	Explain func(err error) (message, hint string)
}

// Engine runs plans. Methods are safe for concurrent use.
type Engine struct {
	cfg     Config
	owner   string // instance / process: the holder of leases
	started time.Time
	queue   queue
	signal  *broadcast
	look    chan struct{} // asks keep to look at once
	ahead   atomic.Int64  // nanoseconds by which the database's clock is ahead

	mu       sync.Mutex
	running  map[plan.StepRef]context.CancelCauseFunc
	claimed  map[plan.StepRef]struct{} // those of running whose lease we hold, for all we know
	timers   map[*time.Timer]struct{}
	stopping bool
	held     bool // no step is begun

	beat       atomic.Int64 // when leases were renewed last
	background sync.WaitGroup
	stop       context.CancelFunc
}

// DefaultLease is how long a silent engine keeps its steps.
const DefaultLease = 10 * time.Second

var (
	errStopping  = errors.New("the director is stopping")
	errCancelled = errors.New("cancelled by a person")
	errLeaseLost = errors.New("the lease was lost")
)

type stepArgs struct {
	plan.StepRef
}

// Kind names the job for River.
func (stepArgs) Kind() string { return "step" }

// invitation reads the arguments of a job.
func invitation(args []byte) (plan.StepRef, error) {
	var ref plan.StepRef
	return ref, json.Unmarshal(args, &ref)
}

// New returns an engine that does not run yet. It brings the queue's tables up to date.
func New(ctx context.Context, cfg Config) (*Engine, error) {
	if cfg.Workers == 0 {
		cfg.Workers = 32
	}
	if cfg.Lease == 0 {
		cfg.Lease = DefaultLease
	}
	if cfg.Interruptions == 0 {
		cfg.Interruptions = 10
	}
	if cfg.Instance == "" {
		cfg.Instance = cfg.Director
	}
	if cfg.Now == nil {
		cfg.Now = time.Now
	}
	if cfg.Budget == nil {
		cfg.Budget = func(string) int { return 0 }
	}
	if cfg.Observer == nil {
		cfg.Observer = nobody{}
	}
	if cfg.Current == nil {
		cfg.Current = func(Tx, *plan.Plan, *plan.State) error { return nil }
	}
	if cfg.Explain == nil {
		cfg.Explain = func(err error) (string, string) { return err.Error(), director.HintOf(err) }
	}
	e := &Engine{
		cfg: cfg, started: cfg.Now(), signal: newBroadcast(), look: make(chan struct{}, 1),
		running: map[plan.StepRef]context.CancelCauseFunc{}, claimed: map[plan.StepRef]struct{}{},
		timers: map[*time.Timer]struct{}{},
	}
	e.owner = fmt.Sprintf("%s/%d", cfg.Instance, e.started.UnixNano())
	var err error
	e.queue, err = openQueue(ctx, cfg, &worker{Engine: e})
	if err != nil {
		return nil, err
	}
	return e, nil
}

// Start takes over what an earlier process of this instance left running, and begins to run steps. It returns once
// steps can start.
func (e *Engine) Start(ctx context.Context) error {
	k := &keeper{e}
	renewed := e.cfg.Now()
	if err := k.renew(ctx); err != nil {
		return err
	}
	if err := k.recover(ctx); err != nil {
		return err
	}
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	e.mu.Lock()
	e.stop = stop
	e.mu.Unlock()
	if err := e.queue.Start(background); err != nil {
		stop()
		return &director.Error{
			Kind: director.KindInternal, Op: "engine.start", Msg: "the queue does not start", Err: err,
		}
	}
	e.beat.Store(e.cfg.Now().UnixNano())
	e.background.Go(func() { k.keep(background, renewed) })
	if pool := e.cfg.Store.Pool(); pool != nil && e.cfg.Channel != "" {
		e.background.Go(func() { k.listen(background, pool) })
	}
	return nil
}

// Hold has the engine begin no more steps. What is due is begun after Release. It may be called before Start.
func (e *Engine) Hold() { e.hold(true) }

// Release ends Hold.
func (e *Engine) Release() {
	e.hold(false)
	e.lookNow()
}

func (e *Engine) hold(held bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.held = held
}

// Drain is Hold, and returns when no step runs any more, or with the context's error.
func (e *Engine) Drain(ctx context.Context) error {
	e.Hold()
	tick := time.NewTicker(queueLooks)
	defer tick.Stop()
	for e.Held() > 0 {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-tick.C:
		}
	}
	return nil
}

// Stop interrupts the running steps, waits for them and returns. An interrupted step costs no attempt and runs again at
// the next Start. It is idempotent.
func (e *Engine) Stop(ctx context.Context) error {
	e.mu.Lock()
	if e.stopping || e.stop == nil {
		e.mu.Unlock()
		return nil
	}
	e.stopping = true
	for _, cancel := range e.running {
		cancel(errStopping)
	}
	for t := range e.timers {
		t.Stop()
	}
	e.mu.Unlock()
	err := e.stopQueue(ctx)
	e.stop()
	e.background.Wait()
	if lerr := (&keeper{e}).leave(ctx); lerr != nil {
		e.cfg.Log.WarnContext(ctx, "leaving the other directors failed", "err", lerr)
	}
	if err != nil {
		return &director.Error{
			Kind: director.KindUnavailable, Op: "engine.stop", Msg: "steps did not end in time", Err: err,
		}
	}
	return nil
}

// What a queue in which nothing runs is given to stop, and how often that is looked at.
const (
	queueStops = 10 * time.Second
	queueLooks = 100 * time.Millisecond
)

// stopQueue stops the queue. River 0.31 can wait for itself for ever when the leader among its clients stops: its
// elector holds a lock while it sends to a listener that waits for this lock. Nothing runs then, and no more is waited
// for.
func (e *Engine) stopQueue(ctx context.Context) error {
	ended := make(chan error, 1)
	go func() { ended <- e.queue.Stop(ctx) }()
	tick := time.NewTicker(queueLooks)
	defer tick.Stop()
	for idle := time.Duration(0); idle < queueStops; idle += queueLooks {
		select {
		case err := <-ended:
			return err
		case <-tick.C:
		}
		e.mu.Lock()
		if len(e.running) > 0 {
			idle = 0
		}
		e.mu.Unlock()
	}
	e.cfg.Log.WarnContext(ctx, "the queue did not stop although nothing runs in it")
	return nil
}

// Changed returns a channel that is closed at the next event of any plan. Take it before reading, and read again when
// it closes.
func (e *Engine) Changed() <-chan struct{} { return e.signal.wait() }

// move changes a plan in one transaction, settles it and queues what has become ready.
func (e *Engine) move(ctx context.Context, id string, fn func(Tx, *plan.Plan, *plan.State) error) error {
	err := e.cfg.Store.Update(ctx, func(tx Tx) error {
		p, s, err := tx.Plan(id)
		if err != nil {
			return err
		}
		before := s.Seq
		if err := fn(tx, &p, &s); err != nil {
			return err
		}
		if s.Seq == before {
			return nil
		}
		return e.settle(ctx, tx, &p, &s, plan.Ready(&p, &s, e.cfg.Now()))
	})
	e.signal.send()
	return err
}

// settle ends the plan if it is due, and queues the steps.
func (e *Engine) settle(ctx context.Context, tx Tx, p *plan.Plan, s *plan.State, ready []string) error {
	if ev, due := plan.Settle(p, s); due {
		ev.Plan = p.ID
		return e.append(tx, s, ev)
	}
	return e.enqueue(ctx, tx, p.ID, s, ready)
}

func (e *Engine) append(tx Tx, s *plan.State, ev plan.Event) error {
	ev.At = e.cfg.Now().UTC()
	if ev.By == "" {
		ev.By = e.cfg.Instance
	}
	err := tx.Append(s, ev)
	if err == nil {
		return nil
	}
	if _, ok := errors.AsType[*director.Error](err); ok {
		return err
	}
	return &director.Error{
		Kind: director.KindConflict, Op: "engine.move",
		Msg:  fmt.Sprintf("plan %s is %s, so this cannot be done now", ev.Plan, s.Status),
		Hint: "see what it is and why: directorctl plans show " + ev.Plan, Err: err,
	}
}

func (e *Engine) enqueue(ctx context.Context, tx Tx, id string, s *plan.State, steps []string) error {
	if len(steps) == 0 {
		return nil
	}
	refs := make([]plan.StepRef, len(steps))
	for i, step := range steps {
		refs[i] = plan.StepRef{Plan: id, Step: step, Attempt: s.Step(step).Attempt + 1}
	}
	return e.invite(ctx, tx, refs)
}

// invite queues attempts.
func (e *Engine) invite(ctx context.Context, tx Tx, refs []plan.StepRef) error {
	if len(refs) == 0 {
		return nil
	}
	jobs := make([]river.InsertManyParams, len(refs))
	for i, ref := range refs {
		jobs[i] = river.InsertManyParams{Args: stepArgs{ref}}
	}
	if err := e.queue.insert(ctx, tx, jobs); err != nil {
		return fmt.Errorf("engine: queueing %d steps: %w", len(refs), err)
	}
	return nil
}

// callNext invites who is first in the lines of the budgets; nil means all lines.
func (e *Engine) callNext(ctx context.Context, tx Tx, budgets []string) error {
	refs, err := tx.Next(budgets, e.cfg.Budget)
	if err != nil {
		return err
	}
	return e.invite(ctx, tx, refs)
}

// wakeAt queues the step again at its time.
func (e *Engine) wakeAt(planID, step string, attempt int, at time.Time) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.stopping {
		return
	}
	var timer *time.Timer
	timer = time.AfterFunc(max(0, at.Sub(e.cfg.Now())), func() {
		e.mu.Lock()
		delete(e.timers, timer)
		stopping := e.stopping
		e.mu.Unlock()
		if stopping {
			return
		}
		ctx := context.Background() // the timer outlives the request that set it
		if err := e.wake(ctx, plan.StepRef{Plan: planID, Step: step, Attempt: attempt}); err != nil {
			e.cfg.Log.WarnContext(ctx, "waking a step failed, will retry", "plan_id", planID, "step", step, "err", err)
		}
	})
	e.timers[timer] = struct{}{}
}

func (e *Engine) wake(ctx context.Context, ref plan.StepRef) error {
	defer e.signal.send()
	return e.cfg.Store.Update(ctx, func(tx Tx) error {
		_, s, err := tx.Plan(ref.Plan)
		if err != nil {
			return err
		}
		if st := s.Step(ref.Step); st == nil || st.Attempt != ref.Attempt || st.Status.Leased() {
			return nil
		}
		return e.enqueue(ctx, tx, ref.Plan, &s, []string{ref.Step})
	})
}
