package plan

import (
	"fmt"
	"strings"
)

// The rollback of a node in a window is the steps that undo others of it. It is frozen into the plan like all else, and
// begins by itself when one of those others has failed. From then on the node goes no further in this plan: once the
// cause is mended, a person plans again.

// undoMark is what the ids of rollback steps have before the subject: vm.remove-undo/demo-worker-1.
const undoMark = "-undo"

// UndoPattern is an SQL pattern of the ids of rollback steps.
const UndoPattern = "%" + undoMark + "/%"

// UndoID returns the id of a rollback step of the class for the subject.
func UndoID(class, subject string) string { return class + undoMark + "/" + subject }

// Back reports whether s is a rollback step: one that only runs to undo others.
func (s Step) Back() bool { return len(s.Undoes) > 0 }

// checkBack returns an error if a rollback step undoes what does not come before it in the same group, or what is a
// rollback step itself.
func checkBack(s Step, before map[string]Step) error {
	if marked := strings.Contains(s.ID, undoMark+"/"); marked != s.Back() {
		return fmt.Errorf("plan: step %q must undo others if and only if its class ends with %s", s.ID, undoMark)
	}
	if !s.Back() {
		for _, n := range s.Needs {
			if before[n].Back() {
				return fmt.Errorf("plan: step %q needs %q, which only runs after a failure", s.ID, n)
			}
		}
		return nil
	}
	if s.Window == "" || s.Node == "" {
		return fmt.Errorf("plan: step %q undoes others and is of no node in a window", s.ID)
	}
	for _, n := range s.Needs {
		if !before[n].Back() {
			return fmt.Errorf("plan: step %q undoes others and needs %q, which does not", s.ID, n)
		}
	}
	for _, u := range s.Undoes {
		of, ok := before[u]
		if !ok || of.Back() || of.Window != s.Window || of.Node != s.Node {
			return fmt.Errorf("plan: step %q undoes %q, which is no step of its node before it", s.ID, u)
		}
	}
	return nil
}

// begun reports whether the step has acted, or may have.
func (s StepStatus) begun() bool { return s != Pending && s != Skipped }

// surveyBack finds the nodes that are rolled back. It is only asked once something has failed, which spares plans that
// go well the look at every rollback step.
func (v *view) surveyBack(p *Plan, s *State) {
	v.undone, v.backs = map[string]bool{}, map[string]*Step{}
	for i := range p.Steps {
		step := &p.Steps[i]
		if !step.Back() {
			continue
		}
		v.backs[step.ID] = step
		for _, u := range step.Undoes {
			v.undone[u] = true
		}
	}
	short := map[*group]bool{} // of its gate
	for i := range p.Steps {
		step, status := &p.Steps[i], s.Steps[i].Status
		if step.Window == "" {
			continue
		}
		g := v.groups[groupKey{step.Window, step.Node}]
		switch {
		case step.Back():
			g.back = g.back || status.begun()
			continue
		case v.undone[step.ID]:
			g.back = g.back || status.broken()
			short[g] = short[g] || !status.Satisfied()
		}
		g.leased = g.leased || status.Leased()
	}
	for _, g := range v.groups {
		// A person takes the plan back: what is under way goes back, what is through its gate stays.
		g.back = g.back || s.Status == StatusUndoing && g.begun && short[g]
		v.failed = v.failed || g.back // nothing new begins
	}
}

// backDue reports whether the rollback step may start: its node is rolled back and rests, what it undoes has begun, and
// the rollback steps before it are done.
func (v *view) backDue(step *Step) bool {
	g := v.groups[groupKey{step.Window, step.Node}]
	return g.back && !g.leased && v.wanted(step) && v.backBefore(step)
}

// backBefore reports whether all that is wanted of the rollback steps before step is done.
func (v *view) backBefore(step *Step) bool {
	for _, n := range step.Needs {
		of := v.backs[n]
		if v.wanted(of) && !v.status[n].Satisfied() || !v.wanted(of) && !v.backBefore(of) {
			return false
		}
	}
	return true
}

// wanted reports whether there is something that the rollback step undoes.
func (v *view) wanted(step *Step) bool {
	for _, u := range step.Undoes {
		if v.status[u].begun() {
			return true
		}
	}
	return false
}

// Returning returns the steps that never run again in the plan because their node goes back, or went.
func Returning(p *Plan, s *State) map[string]bool {
	out := map[string]bool{}
	v := survey(p, s)
	for i := range p.Steps {
		step := &p.Steps[i]
		if step.Window != "" && !step.Back() && v.groups[groupKey{step.Window, step.Node}].back {
			out[step.ID] = true
		}
	}
	return out
}

// Resumable reports whether a step would start if the plan went on now.
func Resumable(p *Plan, s *State) bool {
	next := *s
	next.Status = StatusRunning
	return moving(p, &next)
}

// Count returns how many steps of the plan are done or skipped, and how many there are. Rollback steps count from when
// they are begun.
func Count(p *Plan, s *State) (done, total int) {
	for i, st := range s.Steps {
		if i < len(p.Steps) && p.Steps[i].Back() && st.Status == Pending {
			continue
		}
		total++
		if st.Status.Satisfied() {
			done++
		}
	}
	return done, total
}

// standing says of a plan that stops how far the nodes of its windows are, for people; "" if no node went back.
func standing(p *Plan, s *State) string {
	v := survey(p, s)
	under := map[groupKey]bool{} // those that are still being rolled back
	for id, step := range v.backs {
		if v.wanted(step) && !v.status[id].Satisfied() {
			under[groupKey{step.Window, step.Node}] = true
		}
	}
	var back, between []string
	ended, open, untouched := map[string]int{}, map[string]int{}, map[string]int{}
	seen := map[groupKey]bool{}
	for i := range p.Steps {
		step := &p.Steps[i]
		key := groupKey{step.Window, step.Node}
		if step.Window == "" || seen[key] {
			continue
		}
		seen[key] = true
		switch g := v.groups[key]; {
		case g.back && under[key]:
			between = append(between, step.Node)
		case g.back:
			back = append(back, step.Node)
		case !g.begun:
			untouched[step.Window]++
		case g.ended:
			ended[step.Window]++
		default:
			open[step.Window]++
		}
	}
	var parts []string
	if len(back) > 0 {
		parts = append(parts, strings.Join(back, ", ")+": rolled back, and in use")
	}
	if len(between) > 0 {
		parts = append(parts, strings.Join(between, ", ")+": not rolled back yet")
	}
	if len(parts) == 0 {
		return ""
	}
	if p.Operation.OnDirector() {
		return strings.Join(parts, "; ") // there is no other one in its window
	}
	for _, w := range p.Windows {
		goal := w.Goal
		if goal == "" {
			goal = "finished"
		}
		parts = append(
			parts, fmt.Sprintf("of the %s %d %s, %d are not begun", w.ID, ended[w.ID], goal, untouched[w.ID]),
		)
		if n := open[w.ID]; n > 0 {
			parts = append(parts, fmt.Sprintf("%d are half way", n))
		}
	}
	return strings.Join(parts, "; ")
}
