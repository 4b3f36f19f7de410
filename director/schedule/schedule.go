// Package schedule runs jobs at certain times: once per due slot, however many directors share the database.
//
// A slot is claimed by storing its run under a unique key in the same transaction that moves the schedule's cursor on;
// a director that loses that race does nothing. The director that won holds a lease on the run while it works. A lease
// that ends without an outcome means that the director died: the run is recorded as interrupted, and repeated if its
// job is repeatable. Slots at which no director was running are recorded as missed, with their number, and the last of
// them still runs if it is within the schedule's deadline.
package schedule

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
)

// Store keeps schedules and their runs. director/store implements it and says what each method promises.
type Store interface {
	Documents(ctx context.Context, kind model.Kind) ([]model.Stored, error)
	SlotCursor(ctx context.Context, uid string) (time.Time, error)
	ClaimSlots(ctx context.Context, uid string, from, to time.Time, runs []director.ScheduleRun) (bool, error)
	AddRun(ctx context.Context, r director.ScheduleRun) (bool, error)
	EndRun(ctx context.Context, r director.ScheduleRun, follow ...director.ScheduleRun) (bool, error)
	LeaseRuns(ctx context.Context, owner string, until time.Time) error
	LostRuns(ctx context.Context, now time.Time) ([]director.ScheduleRun, error)
	RunningRun(ctx context.Context, uid string) (director.ScheduleRun, bool, error)
	Clock(ctx context.Context) (time.Time, error) // the database's
}

// Config is what a Scheduler works with.
type Config struct {
	Store Store
	Jobs  []Job
	Lease time.Duration // how long a silent director keeps its runs; 30 s if zero
	// of this machine, for spans of time alone; time.Now if nil. Slots and leases follow the database's clock
	Now func() time.Time
	Log *slog.Logger
	// Held tells that nothing is to be run now; nil for never. Wake follows when that ends.
	Held func() bool
}

// Scheduler runs schedules. Methods are safe for concurrent use.
type Scheduler struct {
	cfg   Config
	jobs  map[string]Job
	owner string
	wake  chan struct{}

	mu       sync.Mutex
	active   map[key]context.CancelCauseFunc
	stopping bool
	renewed  time.Time // when the leases were last extended

	runs sync.WaitGroup // of jobs
	loop sync.WaitGroup
	stop context.CancelFunc
}

// key names a run.
type key struct {
	uid     string
	slot    int64
	attempt int
}

func keyOf(r director.ScheduleRun) key { return key{r.UID, r.Slot.UnixMicro(), r.Attempt} }

// attempts bounds how often a repeatable run is made again.
const attempts = 3

// idle is the longest the scheduler sleeps: another director may have changed a schedule, or died.
const idle = 15 * time.Second

var (
	errStopping = errors.New("the director is stopping")
	errLease    = errors.New("the lease was lost")
)

// New returns a scheduler that does nothing before Start or Tick.
func New(c Config) *Scheduler {
	if c.Lease == 0 {
		c.Lease = 30 * time.Second
	}
	if c.Now == nil {
		c.Now = time.Now
	}
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	id := make([]byte, 8)
	_, _ = rand.Read(id) // crypto/rand.Read never fails
	s := &Scheduler{
		cfg: c, jobs: map[string]Job{}, owner: hex.EncodeToString(id), wake: make(chan struct{}, 1),
		active: map[key]context.CancelCauseFunc{},
	}
	for _, j := range c.Jobs {
		s.jobs[j.Name] = j
	}
	return s
}

// Check returns what is wrong with a schedule beyond what the model can tell: its times, its job and the job's
// parameters.
func (s *Scheduler) Check(d model.Schedule) []director.Field {
	var fields []director.Field
	if _, err := ParseSlots(d); err != nil {
		if e, ok := errors.AsType[*director.Error](err); ok {
			fields = append(fields, e.Fields...)
		}
	}
	job, ok := s.jobs[d.Job.Name]
	if !ok {
		var names string
		for i, j := range s.cfg.Jobs {
			if i > 0 {
				names += ", "
			}
			names += j.Name
		}
		return append(fields, director.Field{
			Path: "spec.job.name", Msg: fmt.Sprintf("there is no job %q", d.Job.Name), Hint: "one of " + names,
		})
	}
	p := NewParams(d.Job.Params)
	job.Prepare(p)
	return append(fields, p.problems()...)
}

// Start begins to run schedules and returns at once. It is called once.
func (s *Scheduler) Start(ctx context.Context) error {
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.renewed = s.cfg.Now()
	s.loop.Go(func() { s.work(ctx) })
	s.loop.Go(func() { s.renew(ctx) })
	return nil
}

// Stop ends the running jobs, gives their leases up so that another director need not wait for them, and returns when
// all is quiet. It is idempotent.
func (s *Scheduler) Stop(ctx context.Context) error {
	s.mu.Lock()
	s.stopping = true
	for _, cancel := range s.active {
		cancel(errStopping)
	}
	s.mu.Unlock()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s.runs.Wait()
		if s.stop != nil {
			s.stop()
		}
		s.loop.Wait()
	}()
	select {
	case <-done:
		return nil
	case <-ctx.Done():
		return director.Errorf(director.KindInternal, "schedule.stop", "a job did not end in time: %w", ctx.Err())
	}
}

// Wake makes the scheduler look at the schedules now; something has changed.
func (s *Scheduler) Wake() {
	select {
	case s.wake <- struct{}{}:
	default:
	}
}

func (s *Scheduler) work(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	said := ""
	for {
		select {
		case <-ctx.Done():
			return
		case <-s.wake:
		case <-timer.C:
		}
		next, err := s.Tick(ctx)
		if err != nil && ctx.Err() == nil && err.Error() != said {
			said = err.Error() // once, and not every few seconds
			s.cfg.Log.ErrorContext(ctx, "schedules cannot be run", "err", err)
		}
		if err == nil {
			said = ""
		}
		wait := idle
		if now, err := s.cfg.Store.Clock(ctx); err == nil && !next.IsZero() && next.Sub(now) < wait {
			wait = max(next.Sub(now), 10*time.Millisecond)
		}
		timer.Reset(wait)
	}
}

// renew renews the leases. If that fails for the time of a lease, another director may have the runs, and they are
// ended here.
func (s *Scheduler) renew(ctx context.Context) {
	tick := time.NewTicker(s.cfg.Lease / 3)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		s.keep(ctx)
	}
}

func (s *Scheduler) keep(ctx context.Context) {
	now := s.cfg.Now()
	s.mu.Lock()
	busy := len(s.active) > 0 && !s.stopping // what is stopping has given its leases up
	s.mu.Unlock()
	var err error
	if busy {
		err = s.extend(ctx)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case err == nil:
		s.renewed = now
	case now.Sub(s.renewed) >= s.cfg.Lease:
		for _, cancel := range s.active {
			cancel(errLease)
		}
	default:
		s.cfg.Log.WarnContext(ctx, "leases of scheduled runs were not renewed, will retry", "err", err)
	}
}

func (s *Scheduler) extend(ctx context.Context) error {
	now, err := s.cfg.Store.Clock(ctx)
	if err != nil {
		return err
	}
	return s.cfg.Store.LeaseRuns(ctx, s.owner, now.Add(s.cfg.Lease))
}

// Wait returns when no job runs in this process.
func (s *Scheduler) Wait() { s.runs.Wait() }
