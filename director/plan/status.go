package plan

import (
	"fmt"
	"slices"
)

// StepStatus is how far a step is.
type StepStatus string

// The statuses of a step. Each says who moves it on and what a crash leaves.
const (
	Pending StepStatus = "pending" // the engine starts it when all its needs are done; a crash leaves it so
	// its handler acts, under a lease; a crash leaves it so until the lease's end, then it is interrupted.
	Running StepStatus = "running"
	// the engine starts it again at its time: after an error, an interruption, or because it was not ready.
	Waiting StepStatus = "waiting"
	Parked  StepStatus = "parked"   // a person answers; everything is kept
	Done    StepStatus = "done"     // final
	Skipped StepStatus = "skipped"  // final: a person said, with a reason, that the plan continues without it
	Failed  StepStatus = "failed"   // a person retries, skips, undoes or gives up
	UndoDue StepStatus = "undo_due" // the engine undoes what it did, once all that depends on it is undone
	// its handler undoes it, under a lease; a crash leaves it so until the lease's end, then it is due again.
	Undoing StepStatus = "undoing"
	Undone  StepStatus = "undone" // undone; a person may run it again
	Stuck   StepStatus = "stuck"  // undoing failed; a person asks for it again, or runs the step again
)

// StepStatuses returns every status of a step in the order of a usual life.
func StepStatuses() []StepStatus {
	return []StepStatus{Pending, Running, Waiting, Parked, Done, Skipped, Failed, UndoDue, Undoing, Undone, Stuck}
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
	Woken         EventKind = "woken"          // what it was not ready for has come before its time
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
	return e == UndoAsked || e == UndoStarted || e == UndoSucceeded || e == Interrupted || e == Woken
}

// StepEvents returns every event that moves a step, in a fixed order.
func StepEvents() []EventKind {
	return []EventKind{
		Started, Noted, Succeeded, Retry, NotReady, Interrupted, Aborted, NeedsHuman, Retried, SkipAsked,
		UndoAsked, UndoStarted, UndoSucceeded, UndoFailed, Woken,
	}
}

// edges is the whole life cycle of a step.
var edges = map[StepStatus]map[EventKind]StepStatus{
	Pending: {Started: Running, SkipAsked: Skipped},
	Running: {
		Noted: Running, Succeeded: Done, Retry: Waiting, NotReady: Waiting, Interrupted: Waiting,
		Aborted: Failed, NeedsHuman: Parked,
	},
	// What waits, is parked or has failed may have left half of something, so it can be undone too.
	Waiting: {Started: Running, Woken: Waiting, Aborted: Failed, SkipAsked: Skipped, UndoAsked: UndoDue},
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
func (s StepStatus) Next(e EventKind) (StepStatus, error) {
	if to, ok := edges[s][e]; ok {
		return to, nil
	}
	return s, fmt.Errorf("plan: event %q may not happen to a step that is %s", e, s)
}

// Satisfied reports whether the steps that need one in s may start.
func (s StepStatus) Satisfied() bool { return s == Done || s == Skipped }

// Leased reports whether a handler acts on a step in s.
func (s StepStatus) Leased() bool { return s == Running || s == Undoing }

// Status is how far a whole plan is.
type Status string

// The statuses of a plan.
const (
	StatusPlanned    Status = "planned"    // made and readable; nothing has happened
	StatusApproved   Status = "approved"   // a person said that it may be started
	StatusRunning    Status = "running"    // the engine drives its steps
	StatusPaused     Status = "paused"     // no step starts any more, the running ones end, and the cluster stays held
	StatusCancelling Status = "cancelling" // no step starts any more; the running ones end
	StatusCancelled  Status = "cancelled"  // a person stopped it between steps; it can be resumed
	StatusParked     Status = "parked"     // a step waits for a person and nothing else can run
	StatusFailed     Status = "failed"     // a step failed and nothing else runs; it can be retried
	StatusUndoing    Status = "undoing"    // the engine undoes what can be undone
	StatusUndone     Status = "undone"     // everything that can be undone is; final
	StatusDone       Status = "done"       // every step is done or skipped; final
	StatusDiscarded  Status = "discarded"  // given up, or replaced by a newer plan; final
)

// Statuses returns every status in the order of a usual life.
func Statuses() []Status {
	return []Status{
		StatusPlanned, StatusApproved, StatusRunning, StatusPaused, StatusCancelling, StatusCancelled, StatusParked,
		StatusFailed,
		StatusUndoing, StatusUndone, StatusDone, StatusDiscarded,
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

// statusEdges is the whole life cycle of a plan.
var statusEdges = map[Status]map[EventKind]Status{
	StatusPlanned:  {PlanApproved: StatusApproved, PlanStarted: StatusRunning, PlanDiscarded: StatusDiscarded},
	StatusApproved: {PlanStarted: StatusRunning, PlanDiscarded: StatusDiscarded},
	StatusRunning: {
		PlanPaused: StatusPaused, PlanCancel: StatusCancelling, PlanParked: StatusParked, PlanFailed: StatusFailed,
		PlanDone: StatusDone,
	},
	StatusPaused: {
		PlanResumed: StatusRunning, PlanCancel: StatusCancelling, PlanFailed: StatusFailed, PlanDone: StatusDone,
	},
	StatusCancelling: {PlanCancelled: StatusCancelled, PlanDone: StatusDone, PlanFailed: StatusFailed},
	StatusCancelled:  {PlanResumed: StatusRunning, PlanUndo: StatusUndoing, PlanDiscarded: StatusDiscarded},
	StatusParked: {
		PlanResumed: StatusRunning, PlanCancel: StatusCancelling, PlanUndo: StatusUndoing,
		PlanDiscarded: StatusDiscarded,
	},
	StatusFailed:  {PlanResumed: StatusRunning, PlanUndo: StatusUndoing, PlanDiscarded: StatusDiscarded},
	StatusUndoing: {PlanUndone: StatusUndone, PlanFailed: StatusFailed},
}

// Next returns the status that e leads to from p, or an error if e may not happen then.
func (p Status) Next(e EventKind) (Status, error) {
	if to, ok := statusEdges[p][e]; ok {
		return to, nil
	}
	return p, fmt.Errorf("plan: event %q may not happen to a plan that is %s", e, p)
}

// Active reports whether a plan in p holds its cluster: nothing else may be started on it.
func (p Status) Active() bool { return slices.Contains(ActiveStatuses(), p) }

// ActiveStatuses returns the statuses in which a plan holds its cluster.
func ActiveStatuses() []Status {
	return []Status{StatusRunning, StatusPaused, StatusCancelling, StatusParked, StatusUndoing}
}

// Driven returns the statuses in which the engine moves a plan's steps, or waits for them to end.
func Driven() []Status { return []Status{StatusRunning, StatusPaused, StatusCancelling, StatusUndoing} }

// Ended reports whether a follower of the plan has seen the last event unless a person acts.
func (p Status) Ended() bool {
	return p == StatusDone || p == StatusFailed || p == StatusCancelled || p == StatusUndone || p == StatusDiscarded
}
