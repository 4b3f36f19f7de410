package plan

import (
	"strings"
	"time"
)

// Ready returns the ids of the steps that the engine may start now, in the plan's order. While the plan runs these are
// the steps that are pending or waiting with their time come, have all their needs done or skipped, and fit into their
// window; and steps whose undo is due, with the rollback steps of nodes that are rolled back. While it is being undone
// only the latter two. Once a step has failed nothing new begins, except in groups of a window that are open: their
// nodes are brought to their end, or back.
func Ready(p *Plan, s *State, now time.Time) []string {
	return ready(p, s, func(notBefore time.Time) bool { return !notBefore.After(now) })
}

// moving reports whether some step may start now or at its time.
func moving(p *Plan, s *State) bool {
	return len(ready(p, s, func(time.Time) bool { return true })) > 0
}

func ready(p *Plan, s *State, due func(notBefore time.Time) bool) []string {
	if s.Status != StatusRunning && s.Status != StatusUndoing {
		return nil
	}
	v := survey(p, s)
	var ready []string
	for i := range p.Steps {
		step, st := &p.Steps[i], &s.Steps[i]
		if !due(st.NotBefore) {
			continue
		}
		switch st.Status {
		case UndoDue:
			if v.unneeded(step.ID) {
				ready = append(ready, step.ID)
			}
		case Pending, Waiting:
			if step.Back() {
				if v.returns && v.backDue(step) {
					ready = append(ready, step.ID)
				}
			} else if s.Status == StatusRunning && v.needsMet(step) && v.admit(step) {
				ready = append(ready, step.ID)
			}
		default: // it runs, or only a person moves it on
		}
	}
	return ready
}

// view is what Ready has to know of a plan's steps together.
type view struct {
	status     map[string]StepStatus
	skipped    map[string]*Step    // steps that a person had skipped
	failed     bool                // some step failed, or was undone after it had
	dependents map[string][]string // the steps that need one, by its id
	free       map[string]bool     // what unneeded has found
	windows    map[string]Window
	hosts      map[string]string   // of nodes
	groups     map[groupKey]*group // of windows
	open       map[string]int      // open groups by window
	onHost     map[groupKey]int    // open groups by window and host
	returns    bool                // some node may go back
	undone     map[string]bool     // the steps that rollback steps undo, once a node may go back
	backs      map[string]*Step    // the rollback steps
}

type groupKey struct{ window, of string }

// group is the steps of one node in a window.
type group struct {
	begun, ended, failed bool // rollback steps do not count
	leased               bool // a step that is none back runs
	back                 bool // it goes back, or went
}

func (g *group) open() bool { return g.begun && !g.ended }

func survey(p *Plan, s *State) *view {
	v := &view{
		status: make(map[string]StepStatus, len(s.Steps)), windows: make(map[string]Window, len(p.Windows)),
		groups: map[groupKey]*group{}, open: map[string]int{}, onHost: map[groupKey]int{},
	}
	for _, w := range p.Windows {
		v.windows[w.ID] = w
	}
	undo := false
	for i, st := range s.Steps {
		v.status[st.ID] = st.Status
		v.failed = v.failed || st.Status.broken()
		undo = undo || st.Status == UndoDue
		v.add(&p.Steps[i], st)
	}
	if v.returns = v.returns || v.failed || s.Status == StatusUndoing; v.returns {
		v.surveyBack(p, s)
	}
	if len(v.groups) > 0 {
		v.hosts = make(map[string]string, len(p.Machines))
		for _, m := range p.Machines {
			v.hosts[m.Name] = m.Host
		}
	}
	for key, g := range v.groups {
		if g.open() {
			v.count(key)
		}
	}
	if undo {
		v.dependents, v.free = make(map[string][]string, len(p.Steps)), map[string]bool{}
		for _, step := range p.Steps {
			for _, n := range step.Needs {
				v.dependents[n] = append(v.dependents[n], step.ID)
			}
		}
	}
	return v
}

// add counts a step to the group of its node.
func (v *view) add(step *Step, st StepState) {
	if st.Status == Skipped {
		if v.skipped == nil {
			v.skipped = map[string]*Step{}
		}
		v.skipped[st.ID] = step
	}
	if step.Window == "" {
		return
	}
	if step.Back() {
		v.returns = v.returns || st.Status.begun()
		return
	}
	key := groupKey{step.Window, step.Node}
	g := v.groups[key]
	if g == nil {
		g = &group{ended: true}
		v.groups[key] = g
	}
	// A step that was skipped before its turn has touched nothing.
	g.begun = g.begun || st.Status != Pending && (st.Status != Skipped || st.Attempt > 0)
	g.ended = g.ended && st.Status.Satisfied()
	g.failed = g.failed || st.Status.broken()
}

// broken reports whether a running plan cannot continue while a step is in s.
func (s StepStatus) broken() bool {
	return s == Failed || s == Stuck || s == UndoDue || s == Undoing || s == Undone
}

func (v *view) count(key groupKey) {
	v.open[key.window]++
	v.onHost[groupKey{key.window, v.hosts[key.of]}]++
}

// needsMet reports whether all that the step needs is done. A skipped step takes no order away: what needs it still
// waits for what the skipped step itself needs.
func (v *view) needsMet(step *Step) bool {
	for _, n := range step.Needs {
		if !v.status[n].Satisfied() {
			return false
		}
		if skipped, ok := v.skipped[n]; ok {
			if !v.needsMet(skipped) {
				return false
			}
			delete(v.skipped, n) // met once and for all
		}
	}
	return true
}

// admit reports whether the step may start together with what is open, and opens its group if so.
func (v *view) admit(step *Step) bool {
	if step.Window == "" {
		return !v.failed
	}
	key := groupKey{step.Window, step.Node}
	g := v.groups[key]
	if g.open() {
		return !g.failed && !g.back
	}
	w := v.windows[step.Window]
	host := v.hosts[step.Node]
	if v.failed || v.open[w.ID] >= w.Size ||
		(w.PerHost > 0 && host != "" && v.onHost[groupKey{w.ID, host}] >= w.PerHost) {
		return false
	}
	g.begun = true
	v.count(key)
	return true
}

// unneeded reports whether nothing that depends on the step is still to be undone.
func (v *view) unneeded(id string) bool {
	if known, ok := v.free[id]; ok {
		return known
	}
	free := true
	for _, d := range v.dependents[id] {
		s := v.status[d]
		free = free && s != UndoDue && s != Undoing && s != Stuck && v.unneeded(d)
	}
	v.free[id] = free
	return free
}

// Settle returns the event that the plan is due for when no step runs any more, and false while something still moves
// or nothing has changed.
func Settle(p *Plan, s *State) (Event, bool) {
	n := map[StepStatus]int{}
	var parked, broken, stranded *StepState
	backs := 0 // rollback steps that were not needed
	for i := range s.Steps {
		st := &s.Steps[i]
		n[st.Status]++
		if parked == nil && st.Status == Parked {
			parked = st
		}
		if p.Steps[i].Back() {
			if st.Status == Parked && stranded == nil {
				stranded = st
			}
			if st.Status == Pending {
				backs++
			}
			continue
		}
		if st.Status.broken() && (broken == nil || (broken.Status != Stuck && st.Status == Stuck)) {
			broken = st
		}
	}
	because := func(kind EventKind, st *StepState) (Event, bool) {
		return Event{Kind: kind, Message: st.ID + ": " + st.Message, Hint: st.Hint}, true
	}
	switch {
	case n[Running]+n[Undoing] > 0 || !s.Status.Active():
		return Event{}, false
	case s.Status == StatusUndoing:
		switch {
		case n[Stuck] > 0:
			return because(PlanFailed, broken)
		case moving(p, s):
			return Event{}, false
		case stranded != nil:
			return because(PlanFailed, stranded)
		}
		return Event{Kind: PlanUndone, Message: "everything that can be undone is undone"}, n[UndoDue] == 0
	case n[Done]+n[Skipped]+backs == len(p.Steps):
		return Event{Kind: PlanDone}, true
	case moving(p, s):
		return Event{}, false
	case stranded != nil && s.Status == StatusRunning:
		return because(PlanParked, stranded)
	case broken != nil && s.Status != StatusParked:
		ev, due := because(PlanFailed, broken)
		if stranded == nil {
			afterBack(p, s, &ev)
		}
		return ev, due
	case s.Status == StatusCancelling:
		return Event{Kind: PlanCancelled, Message: "stopped between steps"}, true
	case parked != nil && s.Status == StatusRunning:
		return because(PlanParked, parked)
	}
	return Event{}, false
}

// afterBack adds to the failure of a plan what was rolled back.
func afterBack(p *Plan, s *State, ev *Event) {
	at := standing(p, s)
	if at == "" {
		return
	}
	if p.Operation == ClusterDrill {
		ev.Message = strings.TrimSuffix(ev.Message, ".") + ". The VM of the drill is deleted"
		return
	}
	ev.Message, ev.Hint = strings.TrimSuffix(ev.Message, ".")+". "+at, withHint(ev.Hint, p.Command())
}

// withHint adds to a hint how to continue after nodes were rolled back. Steps are not tried again then.
func withHint(hint, command string) string {
	hint = strings.TrimRight(strings.TrimSuffix(hint, "then retry the step"), ",; ")
	if hint == "" {
		hint = "fix the cause"
	}
	return hint + "; then go on from there: " + command
}
