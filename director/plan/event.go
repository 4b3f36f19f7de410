package plan

import (
	"time"
)

// Event is one line of a plan's journal: what happened, to which step, in which attempt. Seq orders the events of one
// plan without gaps, from 1.
type Event struct {
	Plan    string    `json:"plan"`
	Seq     int64     `json:"seq"`
	At      time.Time `json:"at"`
	Kind    EventKind `json:"kind"`
	Step    string    `json:"step,omitempty"`    // empty for events of the plan
	Attempt int       `json:"attempt,omitempty"` // fencing token of the step
	// who asked, for events that a person causes; otherwise the director process's instance
	By      string `json:"by,omitempty"`
	Message string `json:"message,omitempty"` // for people; never holds a secret
	Hint    string `json:"hint,omitempty"`    // what to do next
	// NotBefore is when a waiting step may start again.
	NotBefore time.Time `json:"not_before,omitzero"`
	// Deadline is when a step that is not ready stops waiting and asks a person.
	Deadline time.Time `json:"deadline,omitzero"`
	// Counted marks an interruption that were not wanted: too many in a row wait for a person.
	Counted bool `json:"counted,omitempty"`
}

// StepRef names an attempt of a step.
type StepRef struct {
	Plan    string `json:"plan"`
	Step    string `json:"step"`
	Attempt int    `json:"attempt"`
}

// StepState is what the journal says of one step.
type StepState struct {
	ID       string     `json:"id"`
	Status   StepStatus `json:"status"`
	Attempt  int        `json:"attempt"`  // of the current or last run; 0 before the first
	Failures int        `json:"failures"` // plain errors so far, counted against Step.Attempts
	// Interruptions are those in a row that were not wanted.
	Interruptions int       `json:"interruptions,omitempty"`
	Since         time.Time `json:"since,omitzero"` // of the status
	StartedAt     time.Time `json:"started_at,omitzero"`
	FinishedAt    time.Time `json:"finished_at,omitzero"`
	NotBefore     time.Time `json:"not_before,omitzero"` // of a waiting step
	Deadline      time.Time `json:"deadline,omitzero"`   // of a step that is not ready, over all its tries in a row
	Message       string    `json:"message,omitempty"`   // why it waits, parks or failed
	Hint          string    `json:"hint,omitempty"`
}

// State is what the journal says of a plan.
type State struct {
	Status     Status      `json:"status"`
	Since      time.Time   `json:"since,omitzero"` // of the status
	ApprovedBy string      `json:"approved_by,omitempty"`
	StartedAt  time.Time   `json:"started_at,omitzero"`
	FinishedAt time.Time   `json:"finished_at,omitzero"`
	Message    string      `json:"message,omitempty"`
	Hint       string      `json:"hint,omitempty"`
	Seq        int64       `json:"seq"`   // of the last event
	Steps      []StepState `json:"steps"` // in the plan's order
}

// NewState returns the state of a plan before its first event.
func NewState(p *Plan) State {
	s := State{Status: StatusPlanned, Steps: make([]StepState, len(p.Steps))}
	for i, st := range p.Steps {
		s.Steps[i] = StepState{ID: st.ID, Status: Pending}
	}
	return s
}

// Step returns the state of the step, or nil.
func (s *State) Step(id string) *StepState {
	for i := range s.Steps {
		if s.Steps[i].ID == id {
			return &s.Steps[i]
		}
	}
	return nil
}

// Apply moves s on by e, or returns an error and leaves s as it was. A state is always the fold of its plan's events by
// Apply, in the order of Seq.
func (s *State) Apply(e Event) error {
	if e.Step == "" {
		return s.applyPlan(e)
	}
	st := s.Step(e.Step)
	if st == nil {
		return &UnknownStepError{Step: e.Step}
	}
	to, err := st.Status.Next(e.Kind)
	if err != nil {
		return err
	}
	if st.Status.Leased() && e.Attempt != st.Attempt {
		return &FencedError{Step: e.Step, Attempt: e.Attempt, Current: st.Attempt}
	}
	if e.Kind != Noted {
		st.Since = e.At
	}
	st.Status, st.NotBefore = to, e.NotBefore
	if e.Message != "" || !e.Kind.keepsReason() {
		st.Message, st.Hint = e.Message, e.Hint
	}
	st.count(e)
	switch e.Kind {
	case Started, UndoStarted:
		st.Attempt = e.Attempt
		if e.Kind == Started && st.StartedAt.IsZero() {
			st.StartedAt = e.At
		}
		st.FinishedAt = time.Time{}
	case Retry:
		st.Failures++
	case Retried, UndoAsked:
		st.Failures = 0
	case Succeeded, Aborted, SkipAsked, UndoSucceeded, UndoFailed:
		st.FinishedAt = e.At
	default: // the others move the status alone
	}
	s.Seq = e.Seq
	return nil
}

// count keeps what is counted over several attempts in a row.
func (st *StepState) count(e Event) {
	switch e.Kind {
	case Started, UndoStarted, Noted, Woken: // an attempt says nothing before it ends
	case Interrupted:
		if e.Counted {
			st.Interruptions++
		}
	case NotReady:
		st.Interruptions, st.Deadline = 0, e.Deadline
	default:
		st.Interruptions, st.Deadline = 0, time.Time{}
	}
}

func (s *State) applyPlan(e Event) error {
	to, err := s.Status.Next(e.Kind)
	if err != nil {
		return err
	}
	s.Status, s.Since, s.Message, s.Hint, s.Seq = to, e.At, e.Message, e.Hint, e.Seq
	if e.Kind == PlanApproved {
		s.ApprovedBy = e.By
	}
	if e.Kind == PlanStarted {
		s.StartedAt = e.At
	}
	if to.Ended() {
		s.FinishedAt = e.At
	} else {
		s.FinishedAt = time.Time{}
	}
	return nil
}

// Fold returns the state of p after events, which must be in the order of Seq.
func Fold(p *Plan, events []Event) (State, error) {
	s := NewState(p)
	for _, e := range events {
		if err := s.Apply(e); err != nil {
			return s, err
		}
	}
	return s, nil
}

// UnknownStepError is returned by Apply for an event of a step that the plan does not have.
type UnknownStepError struct{ Step string }

func (e *UnknownStepError) Error() string { return "plan: no step " + e.Step }

// FencedError is returned by Apply for an outcome of an attempt that is no longer the current one.
type FencedError struct {
	Step             string
	Attempt, Current int
}

func (e *FencedError) Error() string {
	return "plan: an outcome of step " + e.Step + " came from an attempt that is no longer the current one"
}
