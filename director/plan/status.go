package plan

import (
	"fmt"
	"slices"
)

// Status is how far a step is.
type Status string

// The statuses of a step. Each says who moves it on and what a crash leaves.
const (
	Pending Status = "pending" // the engine starts it when all its needs are done; a crash leaves it so
	// its handler acts, under a lease; a crash leaves it so until the lease's end, then it is interrupted.
	Running Status = "running"
	// the engine starts it again at its time: after an error, an interruption, or because it was not ready.
	Waiting Status = "waiting"
	Parked  Status = "parked"   // a person answers; everything is kept
	Done    Status = "done"     // final
	Skipped Status = "skipped"  // final: a person said, with a reason, that the plan continues without it
	Failed  Status = "failed"   // a person retries, skips, undoes or gives up
	UndoDue Status = "undo_due" // the engine undoes what it did, once all that depends on it is undone
	// its handler undoes it, under a lease; a crash leaves it so until the lease's end, then it is due again.
	Undoing Status = "undoing"
	Undone  Status = "undone" // undone; a person may run it again
	Stuck   Status = "stuck"  // undoing failed; a person asks for it again, or runs the step again
)

// Statuses returns every status in the order of a usual life.
func Statuses() []Status {
	return []Status{Pending, Running, Waiting, Parked, Done, Skipped, Failed, UndoDue, Undoing, Undone, Stuck}
}

// EventKind is what happened to a step or a plan.
type EventKind string

// The events that move a step.
const (
	Started       EventKind = "started"        // committed before the handler acts
	Noted         EventKind = "noted"          // the handler says what it waits for; moves nothing
	Succeeded     EventKind = "succeeded"      // the handler returned nil
	Retry         EventKind = "retry"          // a plain error, with attempts left
	NotReady      EventKind = "not_ready"      // plan.After: costs no attempt
	Interrupted   EventKind = "interrupted"    // the process died, lost its lease or was stopped
	Aborted       EventKind = "aborted"        // plan.Abort, or no attempts left
	NeedsHuman    EventKind = "needs_human"    // plan.Park
	Retried       EventKind = "retried"        // a person said: again
	SkipAsked     EventKind = "skip_asked"     // a person said: without it; the message is the reason
	UndoAsked     EventKind = "undo_asked"     // a person, or the plan itself after a failure, wants it undone
	UndoStarted   EventKind = "undo_started"   // committed before the handler undoes it
	UndoSucceeded EventKind = "undo_succeeded" // the handler returned nil
	UndoFailed    EventKind = "undo_failed"    // plan.Abort or plan.Park, or no attempts left
)

// keepsReason reports whether a step's message stays when the event brings none: why it failed is still wanted while it
// is undone.
func (e EventKind) keepsReason() bool {
	return e == UndoAsked || e == UndoStarted || e == UndoSucceeded || e == Interrupted
}

// StepEvents returns every event that moves a step, in a fixed order.
func StepEvents() []EventKind {
	return []EventKind{
		Started, Noted, Succeeded, Retry, NotReady, Interrupted, Aborted, NeedsHuman, Retried, SkipAsked,
		UndoAsked, UndoStarted, UndoSucceeded, UndoFailed,
	}
}

// edges is the whole life cycle of a step.
var edges = map[Status]map[EventKind]Status{
	Pending: {Started: Running, SkipAsked: Skipped},
	Running: {
		Noted: Running, Succeeded: Done, Retry: Waiting, NotReady: Waiting, Interrupted: Waiting,
		Aborted: Failed, NeedsHuman: Parked,
	},
	// What waits, is parked or has failed may have left half of something, so it can be undone too.
	Waiting: {Started: Running, Aborted: Failed, SkipAsked: Skipped, UndoAsked: UndoDue},
	Parked:  {Retried: Waiting, Aborted: Failed, SkipAsked: Skipped, UndoAsked: UndoDue},
	Done:    {UndoAsked: UndoDue},
	Failed:  {Retried: Waiting, SkipAsked: Skipped, UndoAsked: UndoDue},
	UndoDue: {UndoStarted: Undoing, Retried: Waiting},
	Undoing: {
		Noted: Undoing, UndoSucceeded: Undone, Retry: UndoDue, NotReady: UndoDue, Interrupted: UndoDue,
		UndoFailed: Stuck,
	},
	Undone: {Retried: Waiting},
	Stuck:  {UndoAsked: UndoDue, Retried: Waiting},
}

// Next returns the status that e leads to from s, or an error if e may not happen then. It is the only way to change a
// status: replay, engine, console and docs all use it.
func (s Status) Next(e EventKind) (Status, error) {
	if to, ok := edges[s][e]; ok {
		return to, nil
	}
	return s, fmt.Errorf("plan: event %q may not happen to a step that is %s", e, s)
}

// Satisfied reports whether the steps that need one in s may start.
func (s Status) Satisfied() bool { return s == Done || s == Skipped }

// Leased reports whether a handler acts on a step in s.
func (s Status) Leased() bool { return s == Running || s == Undoing }

// Phase is how far a whole plan is.
type Phase string

// The phases of a plan.
const (
	PhasePlanned    Phase = "planned"    // made and readable; nothing has happened
	PhaseApproved   Phase = "approved"   // a person said that it may be started
	PhaseRunning    Phase = "running"    // the engine drives its steps
	PhasePaused     Phase = "paused"     // no step starts any more, the running ones end, and the cluster stays held
	PhaseCancelling Phase = "cancelling" // no step starts any more; the running ones end
	PhaseCancelled  Phase = "cancelled"  // a person stopped it between steps; it can be resumed
	PhaseParked     Phase = "parked"     // a step waits for a person and nothing else can run
	PhaseFailed     Phase = "failed"     // a step failed and nothing else runs; it can be retried
	PhaseUndoing    Phase = "undoing"    // the engine undoes what can be undone
	PhaseUndone     Phase = "undone"     // everything that can be undone is; final
	PhaseDone       Phase = "done"       // every step is done or skipped; final
	PhaseDiscarded  Phase = "discarded"  // given up, or replaced by a newer plan; final
)

// Phases returns every phase in the order of a usual life.
func Phases() []Phase {
	return []Phase{
		PhasePlanned, PhaseApproved, PhaseRunning, PhasePaused, PhaseCancelling, PhaseCancelled, PhaseParked,
		PhaseFailed,
		PhaseUndoing, PhaseUndone, PhaseDone, PhaseDiscarded,
	}
}

// The events that move a plan.
const (
	PlanApproved  EventKind = "plan_approved"
	PlanStarted   EventKind = "plan_started"
	PlanPaused    EventKind = "plan_paused"
	PlanCancel    EventKind = "plan_cancel_asked"
	PlanCancelled EventKind = "plan_cancelled"
	PlanParked    EventKind = "plan_parked"
	PlanFailed    EventKind = "plan_failed"
	PlanDone      EventKind = "plan_done"
	// a person resumed a paused or cancelled plan, retried or skipped what failed or parked.
	PlanResumed   EventKind = "plan_resumed"
	PlanUndo      EventKind = "plan_undo_asked"
	PlanUndone    EventKind = "plan_undone"
	PlanDiscarded EventKind = "plan_discarded"
)

// PlanEvents returns every event that moves a plan, in a fixed order.
func PlanEvents() []EventKind {
	return []EventKind{
		PlanApproved, PlanStarted, PlanPaused, PlanCancel, PlanCancelled, PlanParked, PlanFailed, PlanDone, PlanResumed,
		PlanUndo, PlanUndone, PlanDiscarded,
	}
}

// phaseEdges is the whole life cycle of a plan.
var phaseEdges = map[Phase]map[EventKind]Phase{
	PhasePlanned:  {PlanApproved: PhaseApproved, PlanStarted: PhaseRunning, PlanDiscarded: PhaseDiscarded},
	PhaseApproved: {PlanStarted: PhaseRunning, PlanDiscarded: PhaseDiscarded},
	PhaseRunning: {
		PlanPaused: PhasePaused, PlanCancel: PhaseCancelling, PlanParked: PhaseParked, PlanFailed: PhaseFailed,
		PlanDone: PhaseDone,
	},
	PhasePaused: {
		PlanResumed: PhaseRunning, PlanCancel: PhaseCancelling, PlanFailed: PhaseFailed, PlanDone: PhaseDone,
	},
	PhaseCancelling: {PlanCancelled: PhaseCancelled, PlanDone: PhaseDone, PlanFailed: PhaseFailed},
	PhaseCancelled:  {PlanResumed: PhaseRunning, PlanUndo: PhaseUndoing, PlanDiscarded: PhaseDiscarded},
	PhaseParked: {
		PlanResumed: PhaseRunning, PlanCancel: PhaseCancelling, PlanUndo: PhaseUndoing, PlanDiscarded: PhaseDiscarded,
	},
	PhaseFailed:  {PlanResumed: PhaseRunning, PlanUndo: PhaseUndoing, PlanDiscarded: PhaseDiscarded},
	PhaseUndoing: {PlanUndone: PhaseUndone, PlanFailed: PhaseFailed},
}

// Next returns the phase that e leads to from p, or an error if e may not happen then.
func (p Phase) Next(e EventKind) (Phase, error) {
	if to, ok := phaseEdges[p][e]; ok {
		return to, nil
	}
	return p, fmt.Errorf("plan: event %q may not happen to a plan that is %s", e, p)
}

// Active reports whether a plan in p holds its cluster: nothing else may be started on it.
func (p Phase) Active() bool { return slices.Contains(ActivePhases(), p) }

// ActivePhases returns the phases in which a plan holds its cluster.
func ActivePhases() []Phase {
	return []Phase{PhaseRunning, PhasePaused, PhaseCancelling, PhaseParked, PhaseUndoing}
}

// Driven returns the phases in which the engine moves a plan's steps, or waits for them to end.
func Driven() []Phase { return []Phase{PhaseRunning, PhasePaused, PhaseCancelling, PhaseUndoing} }

// Ended reports whether a follower of the plan has seen the last event unless a person acts.
func (p Phase) Ended() bool {
	return p == PhaseDone || p == PhaseFailed || p == PhaseCancelled || p == PhaseUndone || p == PhaseDiscarded
}
