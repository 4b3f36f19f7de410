package plan

import (
	"fmt"
	"strings"
	"time"
)

// Wait is one answer to "why is nothing happening": what a plan waits for, who ends the wait, since when, and until
// when at most.
type Wait struct {
	Step     string // empty for the plan as a whole
	Reason   string
	Owner    string    // a person, a director's process, or the plans that hold what is missing
	Since    time.Time //
	Deadline time.Time // zero if only its owner can end it
}

// Line is a step's place before a budget that is used up.
type Line struct {
	Budget string
	Since  time.Time
	Users  []string // ids of the plans that have it
}

// Outside is what a plan's waits depend on, other than its own journal.
type Outside struct {
	Now     time.Time
	Expires time.Time         // of a plan that has not started; zero for never
	Holders map[string]string // who runs a step, by step id
	Lines   map[string]Line   // by step id
}

const (
	// OwnerPerson ends waits that no program ends.
	OwnerPerson = "a person"
	engine      = "the director"
)

// Waits returns what the plan waits for now, the plan's own waits first and then by the plan's order. It is empty for a
// plan that has ended well.
func Waits(p *Plan, s *State, o Outside) []Wait {
	out := planWaits(p, s, o)
	if s.Status.Ended() || s.Status == StatusPlanned || s.Status == StatusApproved {
		return out
	}
	ready := map[string]bool{}
	for _, id := range Ready(p, s, o.Now) {
		ready[id] = true
	}
	v := survey(p, s)
	for i := range p.Steps {
		step, st := &p.Steps[i], &s.Steps[i]
		w := Wait{Step: st.ID, Reason: st.Message, Owner: engine, Since: st.Since}
		switch st.Status {
		case Running, Undoing:
			w.Owner = o.Holders[st.ID]
			if w.Reason == "" {
				w.Reason = "it runs: " + step.Title
			}
			if step.Timeout > 0 {
				w.Deadline = st.Since.Add(step.Timeout)
			}
		case Waiting, UndoDue:
			if line, ok := o.Lines[st.ID]; ok {
				w = inLine(w, line)
			} else {
				w.Deadline = st.NotBefore
				if st.Deadline.After(w.Deadline) {
					w.Deadline = st.Deadline
				}
			}
		case Parked, Stuck:
			w.Owner = OwnerPerson
		case Pending:
			if step.Back() && !ready[st.ID] || !step.Back() && (s.Status != StatusRunning || !v.needsMet(step)) {
				continue
			}
			line, queued := o.Lines[st.ID]
			switch {
			case queued:
				w = inLine(w, line)
			case ready[st.ID]:
				w.Reason = "it waits for a free worker of the director"
			case step.Window != "" && !v.failed:
				w.Reason = v.fullWindow(step)
			default:
				continue // the failed step says why
			}
			if w.Since.IsZero() {
				w.Since = s.Since
			}
		default:
			continue
		}
		out = append(out, w)
	}
	return out
}

// fullWindow is why a step waits that has nothing before it but other nodes of its window.
func (v *view) fullWindow(step *Step) string {
	return fmt.Sprintf(
		"it waits until fewer nodes of window %s are worked on (%d at once)", step.Window,
		v.windows[step.Window].Size,
	)
}

func inLine(w Wait, line Line) Wait {
	w.Reason, w.Since = "it waits for its turn: "+line.Budget+" is used up", line.Since
	w.Owner = "plan " + strings.Join(line.Users, ", plan ")
	return w
}

// planWaits returns what the plan as a whole waits for.
func planWaits(p *Plan, s *State, o Outside) []Wait {
	w := Wait{Owner: OwnerPerson, Since: s.Since}
	switch s.Status {
	case StatusPlanned, StatusApproved:
		if w.Since.IsZero() {
			w.Since = p.CreatedAt
		}
		w.Reason, w.Deadline = "it waits to be started", o.Expires
		if s.Status == StatusPlanned && len(p.Approvals) > 0 {
			w.Reason = "it waits to be approved, or started: " + strings.Join(p.Approvals, "; ")
		}
	case StatusPaused:
		w.Reason = "it is paused"
		if s.Message != "" {
			w.Reason += ": " + s.Message
		}
	case StatusCancelling:
		w.Reason, w.Owner = "it was told to stop, and its running steps come to their end", engine
	case StatusFailed, StatusCancelled:
		w.Reason = "it is " + string(s.Status) + ": " + s.Message
	default:
		return nil
	}
	return []Wait{w}
}
