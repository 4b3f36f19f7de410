package engine

import (
	"context"
	"errors"
	"time"

	"github.com/director-kaas/kaas/director/plan"
)

// Several engines may work on one PostgreSQL. Each holds a lease on what it runs and renews it; each sees to what a
// peer left behind:
//
//   - a running step whose lease has ended is interrupted and queued again, by the first to notice;
//   - a step that may start and has no invitation over two ticks is queued by every engine;
//   - what a peer had taken from the queue and not begun is queued again once the peer's signs of life stop.
//
// An engine that could not renew for most of a lease ends its own handlers before a peer may take their steps; so does
// one that stood still and wakes up.

// tickOf is how often leases are renewed. Together with the lease it is the longest time until a peer takes over: 12.5
// s by default.
func tickOf(lease time.Duration) time.Duration { return lease / 4 }

// keeper keeps the leases of its engine's steps, and takes over those of engines that fell silent.
type keeper struct{ *Engine }

// shared reports whether other engines may work on the same database.
func (e *Engine) shared() bool { return e.cfg.Store.Pool() != nil }

// leaseNow is the time by which leases are compared: the database's, as peers may have other clocks.
func (e *Engine) leaseNow() time.Time { return e.cfg.Now().Add(time.Duration(e.ahead.Load())) }

// synchronize learns how far the database's clock is ahead of ours.
func (e *keeper) synchronize(ctx context.Context) error {
	if !e.shared() {
		return nil
	}
	before := e.cfg.Now()
	there, err := e.cfg.Store.Clock(ctx)
	if err != nil {
		return err
	}
	here := before.Add(e.cfg.Now().Sub(before) / 2)
	ahead := there.Sub(here)
	e.ahead.Store(int64(ahead))
	if ahead.Abs() > time.Second {
		e.cfg.Log.WarnContext(ctx, "the clock differs from the database's", "ahead", ahead.String())
	}
	return nil
}

// keep renews leases, takes over lost ones and is the safety net under the timers.
func (e *keeper) keep(ctx context.Context, renewed time.Time) {
	tick := time.NewTicker(tickOf(e.cfg.Lease))
	defer tick.Stop()
	var absent absentees
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		case <-e.look:
		}
		e.dropUnless(renewed)
		began := e.cfg.Now()
		err := e.renew(ctx)
		if err == nil {
			renewed = began
			e.beat.Store(e.cfg.Now().UnixNano())
			var ierr error
			err = e.takeOver(ctx)
			absent, ierr = e.inviteAgain(ctx, absent)
			err = errors.Join(err, ierr)
		}
		e.dropUnless(renewed)
		e.signal.send() // a notice may have been lost with its connection, and an invitation may have been repeated
		if err != nil && ctx.Err() == nil {
			e.cfg.Log.ErrorContext(ctx, "keeping plans moving failed", "err", err)
		}
	}
}

// dropUnless ends every handler if the leases were not renewed lately: a peer may take their steps any moment. Alone on
// its database an engine has no peer, and lets them work.
func (e *keeper) dropUnless(renewed time.Time) {
	if !e.shared() || e.cfg.Now().Sub(renewed) < e.cfg.Lease-tickOf(e.cfg.Lease) {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for ref := range e.claimed {
		e.running[ref](errLeaseLost)
	}
}

// renew gives a sign of life, renews the leases and acts on what it learns: a lease that is ours no more ends its
// handler, and so does a person's wish.
func (e *keeper) renew(ctx context.Context) error {
	if e.shared() {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, tickOf(e.cfg.Lease)) // a server that hangs is no better than none
		defer cancel()
	}
	if err := e.synchronize(ctx); err != nil {
		return err
	}
	now := e.leaseNow()
	if err := e.cfg.Store.Beat(ctx, e.cfg.Instance, e.cfg.Host, e.started, now); err != nil {
		return err
	}
	e.mu.Lock()
	missing := make(map[plan.StepRef]bool, len(e.claimed)) // what is claimed from here on is no concern of this renewal
	for ref := range e.claimed {
		missing[ref] = true
	}
	e.mu.Unlock()
	held, stop, err := e.cfg.Store.Renew(ctx, e.owner, now.Add(e.cfg.Lease))
	if err != nil {
		return err
	}
	var orphans []plan.StepRef
	e.mu.Lock()
	for _, ref := range held {
		delete(missing, ref)
		if _, ok := e.running[ref]; !ok {
			orphans = append(orphans, ref)
		}
	}
	for ref := range missing {
		if cancel, ok := e.running[ref]; ok {
			cancel(errLeaseLost)
		}
	}
	for _, ref := range stop {
		if cancel, ok := e.running[ref]; ok {
			cancel(errCancelled)
		}
	}
	e.mu.Unlock()
	for _, ref := range orphans {
		e.cfg.Log.WarnContext(ctx, "step interrupted", "plan_id", ref.Plan, "step", ref.Step, "attempt", ref.Attempt)
		err = errors.Join(err, e.finish(ctx, ref, interruption("its outcome could not be written")))
	}
	return err
}

// takeOver sees to what others left behind.
func (e *keeper) takeOver(ctx context.Context) error {
	err := e.reclaim(ctx)
	gone, gerr := e.cfg.Store.Gone(ctx, e.leaseNow().Add(-e.cfg.Lease), e.cfg.Instance)
	if len(gone) > 0 {
		e.cfg.Log.WarnContext(ctx, "taking over from directors that went away", "instances", gone)
		gerr = errors.Join(gerr, e.requeue(ctx))
	}
	nerr := e.cfg.Store.Update(ctx, func(tx Tx) error { return e.callNext(ctx, tx, nil) })
	return errors.Join(err, gerr, nerr)
}

// recover makes interrupted steps of what ran under a process of ours that is gone, or under a lease that ended, and
// queues again whatever may run.
func (e *keeper) recover(ctx context.Context) error {
	if err := e.reclaim(ctx); err != nil {
		return err
	}
	return e.requeue(ctx)
}

// requeue queues whatever may run. What is queued twice runs once.
func (e *keeper) requeue(ctx context.Context) error {
	ids, err := e.cfg.Store.Active(ctx)
	if err != nil {
		return err
	}
	for _, id := range ids {
		err := e.cfg.Store.Update(ctx, func(tx Tx) error {
			p, s, err := tx.Plan(id)
			if err != nil {
				return err
			}
			for _, st := range s.Steps {
				if st.Status == plan.Waiting || st.Status == plan.UndoDue {
					e.wakeAt(id, st.ID, st.Attempt, st.NotBefore)
				}
			}
			return e.settle(ctx, tx, &p, &s, plan.Ready(&p, &s, e.cfg.Now()))
		})
		if err != nil {
			return err
		}
	}
	return e.cfg.Store.Update(ctx, func(tx Tx) error { return e.callNext(ctx, tx, nil) })
}

// reclaim interrupts the running steps that have no holder any more.
func (e *keeper) reclaim(ctx context.Context) error {
	prefix := e.cfg.Instance + "/"
	now := e.leaseNow()
	lost, err := e.cfg.Store.Lost(ctx, now, prefix, e.owner)
	if err != nil {
		return err
	}
	for _, ref := range lost {
		e.cfg.Observer.LeaseLost()
		e.cfg.Log.WarnContext(ctx, "step interrupted", "plan_id", ref.Plan, "step", ref.Step, "attempt", ref.Attempt)
		e.mu.Lock()
		if cancel := e.running[ref]; cancel != nil {
			cancel(errLeaseLost)
		}
		e.mu.Unlock()
		// its holder may have renewed meanwhile
		still := func(tx Tx) (bool, error) { return tx.Lapsed(ref, now, prefix, e.owner) }
		if err := e.finish(ctx, ref, interruption("the director that ran it went away"), still); err != nil {
			return err
		}
	}
	return nil
}

// leave takes the sign of life back, so that peers see at once to what was queued for this engine.
func (e *keeper) leave(ctx context.Context) error {
	return e.cfg.Store.Beat(ctx, e.cfg.Instance, e.cfg.Host, e.started, time.Time{})
}
