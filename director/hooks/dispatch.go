package hooks

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/engine"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/webhook"
)

// How the dispatcher works.
const (
	perHook    = 4                    // deliveries to one hook at once
	settle     = 5 * time.Millisecond // after news, so that those that come together are one look
	pollShared = time.Second          // where other directors write deliveries, too
	pollAlone  = 30 * time.Second     // the safety net under the news
	// leaseBeyond is how much longer a delivery is held than its request may take. One of a director that died is sent
	// by another one, or by its successor, after that.
	leaseBeyond = 30 * time.Second
	pruneEvery  = time.Hour
	keptFor     = 30 * 24 * time.Hour // how long final deliveries can be looked at
)

// retries are the waits before a notification is sent again; after the last one, at about 75 hours, it is given up.
// They are those that Standard Webhooks propose.
var retries = []time.Duration{
	5 * time.Second, 5 * time.Minute, 30 * time.Minute, 2 * time.Hour, 5 * time.Hour, 10 * time.Hour, 14 * time.Hour,
	20 * time.Hour, 24 * time.Hour,
}

// Start begins to send. It ends the leases of former processes of this director.
func (s *Service) Start(ctx context.Context) error {
	if err := s.c.Store.FreeDeliveries(ctx, s.c.Instance+"/"); err != nil {
		return err
	}
	ctx, s.stop = context.WithCancel(context.WithoutCancel(ctx))
	s.running.Go(func() { s.dispatch(ctx) })
	return nil
}

// Stop ends requests and waits for them. What was not received is sent by the next process. It is idempotent.
func (s *Service) Stop(ctx context.Context) error {
	if s.stop == nil {
		return nil
	}
	s.stop()
	s.running.Wait()
	s.stop = nil
	return s.c.Store.FreeDeliveries(context.WithoutCancel(ctx), s.owner)
}

func (s *Service) wake() {
	select {
	case s.look <- struct{}{}:
	default:
	}
}

func (s *Service) dispatch(ctx context.Context) {
	var pruned time.Time
	for ctx.Err() == nil {
		news := s.c.Engine.Changed()
		next, err := s.pass(ctx)
		if err == nil && s.c.Now().Sub(pruned) > pruneEvery {
			pruned = s.c.Now()
			_, err = s.c.Store.PruneDeliveries(ctx, pruned.Add(-keptFor))
		}
		if err != nil && ctx.Err() == nil {
			s.c.Log.ErrorContext(ctx, "sending to hooks failed, will retry", "err", err)
			next = time.Second
		}
		timer := time.NewTimer(next)
		select {
		case <-ctx.Done():
		case <-timer.C:
		case <-s.look:
		case <-news:
			timer.Reset(settle)
			<-timer.C
		}
		timer.Stop()
	}
}

// pass begins to send what is due, and returns how long there is nothing to look for.
func (s *Service) pass(ctx context.Context) (time.Duration, error) {
	next := pollAlone
	if s.c.Shared {
		next = pollShared
	}
	now := s.c.Now()
	taken, err := s.c.Store.TakeDeliveries(ctx, s.owner, now, now.Add(time.Minute+leaseBeyond), s.full(), s.enter)
	for _, d := range taken {
		s.running.Go(func() {
			defer s.leave(d.Hook)
			if err := s.deliver(ctx, d); err != nil && ctx.Err() == nil {
				s.c.Log.ErrorContext(ctx, "a delivery could not be written down", "delivery", d.ID, "err", err)
			}
		})
	}
	if err != nil {
		return next, err
	}
	due, err := s.c.Store.NextDelivery(ctx, now)
	if err == nil && !due.IsZero() {
		next = max(0, min(next, due.Sub(s.c.Now())))
	}
	return next, err
}

// full returns the hooks that nothing more is sent to now.
func (s *Service) full() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var out []string
	for hook, n := range s.busy {
		if n >= perHook {
			out = append(out, hook)
		}
	}
	return out
}

func (s *Service) enter(hook string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[hook] >= perHook {
		return false
	}
	s.busy[hook]++
	return true
}

func (s *Service) leave(hook string) {
	s.mu.Lock()
	if s.busy[hook]--; s.busy[hook] == 0 {
		delete(s.busy, hook)
	}
	s.mu.Unlock()
	s.wake() // also for what comes after it in its plan
}

// deliver sends one delivery once, and writes down what came of it.
func (s *Service) deliver(ctx context.Context, d director.HookDelivery) error {
	doc, err := s.document(ctx, d.Hook)
	if director.KindOf(err) == director.KindNotFound {
		return s.conclude(ctx, d, nil, failing("its document was deleted"))
	}
	if err != nil {
		return err
	}
	gone, err := s.c.Store.GoneHooks(ctx)
	if err != nil {
		return err
	}
	if gone[doc.UID] == doc.Generation {
		return s.conclude(ctx, d, nil, failing("the endpoint has said that it is gone (410)"))
	}
	began := s.c.Now()
	o := s.send(ctx, doc, d)
	if ctx.Err() != nil && !o.Received {
		return nil // the director stops: the next one sends it
	}
	s.c.Observer.HookSent(d.Hook, o.Received, s.c.Now().Sub(began))
	var ended *model.Stored
	if o.Gone {
		ended = &doc
	}
	now := s.c.Now()
	return s.conclude(ctx, d, ended, func(d *director.HookDelivery) { outcome(d, o, now) })
}

func failing(why string) func(*director.HookDelivery) {
	return func(d *director.HookDelivery) { d.State, d.Problem = director.HookFailed, why }
}

// conclude changes the delivery, unless it is final by now, and wakes the step that waits for it if it is final then.
// gone is the document whose endpoint has said that it is gone, or nil.
func (s *Service) conclude(
	ctx context.Context, was director.HookDelivery, gone *model.Stored, change func(*director.HookDelivery),
) error {
	ctx = context.WithoutCancel(ctx) // what was received is written down also while the director stops
	write := func(tx *store.Tx) error {
		d, err := tx.Delivery(was.ID)
		if err != nil {
			return err
		}
		if d.State.Open() {
			change(&d)
		}
		if gone != nil {
			if err := tx.SetGone(gone.UID, gone.Generation, s.c.Now()); err != nil {
				return err
			}
		}
		return tx.SetDelivery(d)
	}
	if !was.Blocks() {
		return s.c.Store.Update(ctx, write)
	}
	after := was
	if change(&after); after.State.Open() {
		return s.c.Store.Update(ctx, write)
	}
	why := after.Problem
	if after.State == director.HookAnswered {
		why = said(after.AnsweredBy, after.Decision, after.Reason)
	}
	return s.c.Engine.Wake(ctx, plan.StepRef{Plan: was.Plan, Step: was.Step}, "", why, func(tx engine.Tx) error {
		return write(tx.(*store.Tx))
	})
}

// outcome moves the delivery by what came of an attempt.
func outcome(d *director.HookDelivery, o webhook.Outcome, now time.Time) {
	d.Attempts++
	d.Status, d.Problem = o.Status, o.Problem
	if o.Received && d.First.IsZero() {
		d.First = now
	}
	switch {
	case o.Gone:
		d.State = director.HookFailed
	case o.Received && !d.Blocks():
		d.State, d.Problem = director.HookDelivered, "" // whatever it has answered
	case o.Received && o.Answer.Decision == string(director.HookContinues),
		o.Received && o.Answer.Decision == string(director.HookRefuses):
		answer(d, now, "Hook/"+d.Hook, director.HookDecision(o.Answer.Decision), o.Answer.Reason)
	case o.Received && o.Answer.Decision == "wait":
		d.Reason, d.Next = o.Answer.Reason, now.Add(max(o.Retry, time.Second))
		if o.Retry == 0 {
			d.Next = now.Add(usualWait)
		}
	case o.Received && o.Problem == "":
		d.State = director.HookAccepted
	default:
		again(d, o.Retry, now)
	}
	if d.State == director.HookDue && d.Blocks() && d.Next.After(d.Deadline) {
		d.Next = d.Deadline
		if !now.Before(d.Deadline) {
			d.State = director.HookExpired
		}
	}
}

// usualWait is after how long an endpoint that waits is asked again if it does not say.
const usualWait = 10 * time.Second

// again sets when a delivery that was not received is sent again, or gives it up.
func again(d *director.HookDelivery, asked time.Duration, now time.Time) {
	var wait time.Duration
	switch {
	case d.Blocks():
		wait = min(time.Minute, time.Second<<min(d.Attempts-1, 6))
	case d.Attempts > len(retries):
		d.State = director.HookFailed
		return
	default:
		wait = retries[d.Attempts-1]
	}
	wait += time.Duration(rand.Int64N(int64(wait/10) + 1)) // so that many do not come back together
	d.Next = now.Add(max(wait, asked))
}
