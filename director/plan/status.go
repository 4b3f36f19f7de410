package plan

import "fmt"

// Status is where a step stands.
type Status string

// The statuses of a step. Each says who moves it on and what a crash leaves.
const (
	Pending Status = "pending" // the engine starts it when all its needs are done; a crash leaves it so
	Running Status = "running" // its handler acts, under a lease; a crash leaves it so until the lease's end, then it is interrupted
	Waiting Status = "waiting" // the engine starts it again at its time: after an error, an interruption, or because it was not ready
	Parked  Status = "parked"  // a person answers; everything is kept
	Done    Status = "done"    // final
	Failed  Status = "failed"  // a person retries or gives up
	Undoing Status = "undoing" // the engine takes back what it did
	Undone  Status = "undone"  // final
	Stuck   Status = "stuck"   // taking back failed; only an operator moves it
)

// Statuses returns every status in the order of a usual life.
func Statuses() []Status {
	return []Status{Pending, Running, Waiting, Parked, Done, Failed, Undoing, Undone, Stuck}
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
	UndoStarted   EventKind = "undo_started"   //
	UndoSucceeded EventKind = "undo_succeeded" //
	UndoFailed    EventKind = "undo_failed"    //
)

// StepEvents returns every event that moves a step, in a fixed order.
func StepEvents() []EventKind {
	return []EventKind{
		Started, Noted, Succeeded, Retry, NotReady, Interrupted, Aborted, NeedsHuman, Retried,
		UndoStarted, UndoSucceeded, UndoFailed,
	}
}

// edges is the whole life cycle of a step.
var edges = map[Status]map[EventKind]Status{
	Pending: {Started: Running},
	Running: {
		Noted: Running, Succeeded: Done, Retry: Waiting, NotReady: Waiting, Interrupted: Waiting,
		Aborted: Failed, NeedsHuman: Parked,
	},
	Waiting: {Started: Running, Aborted: Failed},
	Parked:  {Retried: Waiting, Aborted: Failed},
	Done:    {UndoStarted: Undoing},
	Failed:  {Retried: Waiting, UndoStarted: Undoing}, // a failed step may have left half of something
	Undoing: {UndoSucceeded: Undone, UndoFailed: Stuck, Interrupted: Undoing},
	Stuck:   {UndoStarted: Undoing},
}

// Next returns the status that e leads to from s, or an error if e may not happen then. It is the only way to change a
// status: replay, engine, console and docs all use it.
func (s Status) Next(e EventKind) (Status, error) {
	if to, ok := edges[s][e]; ok {
		return to, nil
	}
	return s, fmt.Errorf("plan: event %q may not happen to a step that is %s", e, s)
}

// Final reports whether a step in s never moves again by itself and counts as finished for its plan.
func (s Status) Final() bool { return s == Done || s == Undone }

// Phase is where a whole plan stands.
type Phase string

// The phases of a plan.
const (
	PhasePlanned    Phase = "planned"    // made and readable; nothing has happened
	PhaseRunning    Phase = "running"    // the engine drives its steps
	PhaseCancelling Phase = "cancelling" // no step starts any more; the running ones end
	PhaseCancelled  Phase = "cancelled"  // a person stopped it between steps; it can be resumed
	PhaseParked     Phase = "parked"     // a step waits for a person and nothing else can run
	PhaseFailed     Phase = "failed"     // a step failed and nothing else runs; it can be retried
	PhaseDone       Phase = "done"       // every step is done
	PhaseDiscarded  Phase = "discarded"  // given up, or replaced by a newer plan; final
)

// Phases returns every phase in the order of a usual life.
func Phases() []Phase {
	return []Phase{
		PhasePlanned, PhaseRunning, PhaseCancelling, PhaseCancelled, PhaseParked, PhaseFailed, PhaseDone, PhaseDiscarded,
	}
}

// The events that move a plan.
const (
	PlanStarted   EventKind = "plan_started"
	PlanCancel    EventKind = "plan_cancel_asked"
	PlanCancelled EventKind = "plan_cancelled"
	PlanParked    EventKind = "plan_parked"
	PlanFailed    EventKind = "plan_failed"
	PlanDone      EventKind = "plan_done"
	PlanResumed   EventKind = "plan_resumed" // a person resumed a cancelled plan, retried a failed step or answered a parked one
	PlanDiscarded EventKind = "plan_discarded"
)

// PlanEvents returns every event that moves a plan, in a fixed order.
func PlanEvents() []EventKind {
	return []EventKind{
		PlanStarted, PlanCancel, PlanCancelled, PlanParked, PlanFailed, PlanDone, PlanResumed, PlanDiscarded,
	}
}

// phaseEdges is the whole life cycle of a plan.
var phaseEdges = map[Phase]map[EventKind]Phase{
	PhasePlanned:    {PlanStarted: PhaseRunning, PlanDiscarded: PhaseDiscarded},
	PhaseRunning:    {PlanCancel: PhaseCancelling, PlanParked: PhaseParked, PlanFailed: PhaseFailed, PlanDone: PhaseDone},
	PhaseCancelling: {PlanCancelled: PhaseCancelled, PlanDone: PhaseDone, PlanFailed: PhaseFailed},
	PhaseCancelled:  {PlanResumed: PhaseRunning, PlanDiscarded: PhaseDiscarded},
	PhaseParked:     {PlanResumed: PhaseRunning, PlanCancel: PhaseCancelling, PlanDiscarded: PhaseDiscarded},
	PhaseFailed:     {PlanResumed: PhaseRunning, PlanDiscarded: PhaseDiscarded},
}

// Next returns the phase that e leads to from p, or an error if e may not happen then.
func (p Phase) Next(e EventKind) (Phase, error) {
	if to, ok := phaseEdges[p][e]; ok {
		return to, nil
	}
	return p, fmt.Errorf("plan: event %q may not happen to a plan that is %s", e, p)
}

// Active reports whether a plan in p holds its cluster: nothing else may be started on it.
func (p Phase) Active() bool {
	return p == PhaseRunning || p == PhaseCancelling || p == PhaseParked
}

// Ended reports whether a follower of the plan has seen the last event unless a person acts.
func (p Phase) Ended() bool {
	return p == PhaseDone || p == PhaseFailed || p == PhaseCancelled || p == PhaseDiscarded
}
