package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
)

// lines is the view where there is no terminal: a line for each event that tells something new.
type lines struct {
	out   io.Writer
	now   func() time.Time
	p     wire.Plan
	waits map[string]string // what a step said last that it waits for
}

func (l *lines) plan() wire.Plan     { return l.p }
func (l *lines) replace(p wire.Plan) { l.p = p }
func (l *lines) tick()               {}
func (l *lines) end()                {}

func (l *lines) begin() {
	say(l.out, "%s plan   %s %s: %s, %d/%d steps done\n", l.now().Format(time.TimeOnly),
		l.p.Operation, l.p.Cluster, l.p.Status, l.p.StepsDone, l.p.StepsTotal)
}

func (l *lines) note(text string) {
	say(l.out, "%s note   %s\n", l.now().Format(time.TimeOnly), text)
}

func (l *lines) event(e wire.Event) error {
	if err := l.p.Apply(e); err != nil {
		return err
	}
	word, text := "plan", l.p.Status
	if e.Step == "" {
		if e.Message != "" {
			text += ": " + e.Message
		}
		if e.By != "" && (plan.EventKind(e.Kind) == plan.PlanCancel || plan.EventKind(e.Kind) == plan.PlanResumed) {
			text += " (by " + e.By + ")"
		}
	} else if word, text = l.step(e); word == "" {
		return nil
	}
	text = strings.ReplaceAll(plain(text), "\n", "\n                ")
	say(l.out, "%s %-6s %s\n", e.At.Local().Format(time.TimeOnly), word, text)
	return nil
}

// step returns what to say of a step's event, or "" when it says nothing new: a step that polls starts over and over.
func (l *lines) step(e wire.Event) (word, text string) {
	step := findStep(l.p, e.Step)
	text = e.Step
	waited, waits := l.waits[e.Step]
	switch plan.EventKind(e.Kind) {
	case plan.Started:
		if waits {
			return "", ""
		}
		if e.Attempt > 1 {
			return "start", fmt.Sprintf("%s  %s (attempt %d)", text, step.Title, e.Attempt)
		}
		return "start", text + "  " + step.Title
	case plan.NotReady:
		if waits && waited == e.Message {
			return "", ""
		}
		l.waits[e.Step] = e.Message
		return "wait", text + "  " + e.Message
	}
	delete(l.waits, e.Step)
	switch plan.EventKind(e.Kind) {
	case plan.Succeeded:
		if step.StartedAt != nil {
			text += "  in " + span(e.At.Sub(*step.StartedAt))
		}
		return "done", fmt.Sprintf("%s  (%d/%d)", text, l.p.StepsDone, l.p.StepsTotal)
	case plan.Retry, plan.Interrupted:
		text += "  " + e.Message
		if e.NotBefore != nil {
			text += "; again in " + span(max(e.NotBefore.Sub(e.At), time.Second))
		}
		return "again", text
	case plan.Aborted:
		return "FAILED", text + "  " + e.Message + meanwhile(step)
	case plan.NeedsHuman:
		return "ASKS", text + "  " + e.Message + meanwhile(step)
	}
	return strings.ReplaceAll(e.Kind, "_", " "), strings.TrimRight(text+"  "+e.Message, " ")
}

// meanwhile is a line that says whether the cluster is safe while the step has failed or waits for a person.
func meanwhile(step wire.Step) string {
	if step.Safety == "" {
		return ""
	}
	return "\nmeanwhile: " + step.Safety
}

func findStep(p wire.Plan, id string) wire.Step {
	for _, s := range p.Steps {
		if s.ID == id {
			return s
		}
	}
	return wire.Step{ID: id, Title: id}
}

// screen is the view on a terminal: the steps, redrawn in place.
type screen struct {
	out   io.Writer
	now   func() time.Time
	size  func() (width, height int)
	p     wire.Plan
	text  string // a note under the steps
	drawn int    // lines on the screen
}

func (s *screen) plan() wire.Plan     { return s.p }
func (s *screen) replace(p wire.Plan) { s.p = p; s.draw() }
func (s *screen) begin()              { s.draw() }
func (s *screen) tick()               { s.draw() }
func (s *screen) end()                { s.draw() }
func (s *screen) note(text string)    { s.text = text; s.draw() }

func (s *screen) event(e wire.Event) error {
	err := s.p.Apply(e)
	s.text = ""
	s.draw()
	return err
}

// draw writes the picture over the last one in a single write, so that it does not flicker.
func (s *screen) draw() {
	width, height := s.size()
	picture := s.picture(height - 2)
	var b strings.Builder
	if s.drawn > 0 {
		say(&b, "\x1b[%dA", s.drawn)
	}
	b.WriteString("\r\x1b[J")
	for _, line := range picture {
		b.WriteString(clip(line, width-1))
		b.WriteByte('\n')
	}
	s.drawn = len(picture)
	_, _ = io.WriteString(s.out, b.String()) // a terminal that has gone ends the command by a signal
}

// plain takes control characters out of what other programs said, except line ends: none of them may steer the
// terminal.
func plain(text string) string {
	return strings.Map(func(c rune) rune {
		if c != '\n' && (c < ' ' || (c >= 0x7f && c < 0xa0)) {
			return ' '
		}
		return c
	}, text)
}

// clip cuts a line to the width of the screen.
func clip(line string, width int) string {
	r := []rune(strings.ReplaceAll(plain(line), "\n", " "))
	if len(r) <= width {
		return string(r)
	}
	return string(r[:max(width-1, 0)]) + "…"
}

var marks = map[plan.StepStatus]string{
	plan.Pending: "○", plan.Running: "▶", plan.Waiting: "◷", plan.Parked: "?", plan.Done: "✓", plan.Failed: "✗",
	plan.Undoing: "↶", plan.Undone: "○", plan.Stuck: "✗",
}

// picture is what the screen shows in at most so many lines: all steps if they fit, otherwise first what moves and what
// failed.
func (s *screen) picture(most int) []string {
	now := s.now()
	head := fmt.Sprintf("%s %s: %s, %d/%d steps", s.p.Operation, s.p.Cluster, s.p.Status, s.p.StepsDone, s.p.StepsTotal)
	if s.p.StartedAt != nil {
		end := now
		if s.p.FinishedAt != nil {
			end = *s.p.FinishedAt
		}
		head += ", " + span(max(end.Sub(*s.p.StartedAt), 100*time.Millisecond))
		if s.p.EstimateSeconds > 0 && s.p.FinishedAt == nil {
			head += " of about " + span(wire.Span(s.p.EstimateSeconds))
		}
	}
	out := []string{head}
	var tail []string
	if s.text != "" {
		tail = []string{"  " + s.text}
	}
	most = max(most-len(out)-len(tail), 3)
	width := 0
	rows := needed(s.p.Steps)
	for _, st := range rows {
		width = max(width, len([]rune(st.Title)))
	}
	width = min(width, 48)
	var before, after string
	if len(rows) > most {
		rows, before, after = s.choose(most)
	}
	if before != "" {
		out = append(out, before)
	}
	for _, st := range rows {
		out = append(out, s.row(st, width, now))
	}
	if after != "" {
		out = append(out, after)
	}
	return append(out, tail...)
}

// choose picks the steps that matter most, and says how many are done before and pending after them.
func (s *screen) choose(most int) (rows []wire.Step, before, after string) {
	var moving, pending []wire.Step
	for _, st := range needed(s.p.Steps) {
		switch plan.StepStatus(st.Status) {
		case plan.Done, plan.Undone:
		case plan.Pending:
			pending = append(pending, st)
		default:
			moving = append(moving, st)
		}
	}
	rows = moving
	if len(rows) > most-2 {
		after = fmt.Sprintf("  … %d more that run or wait, %d pending", len(rows)-(most-2), len(pending))
		rows = rows[:most-2]
	} else {
		room := most - 2 - len(rows)
		if len(pending) > room {
			after = fmt.Sprintf("  … %d more pending", len(pending)-room)
			pending = pending[:room]
		}
		rows = append(slices.Clone(rows), pending...)
	}
	if s.p.StepsDone > 0 {
		before = fmt.Sprintf("  ✓ %d steps done", s.p.StepsDone)
	}
	return rows, before, after
}

func (s *screen) row(st wire.Step, width int, now time.Time) string {
	title := []rune(st.Title)
	if len(title) > width {
		title = append(title[:width-1], '…')
	}
	line := "  " + marks[plan.StepStatus(st.Status)] + " " + string(title) + strings.Repeat(" ", width-len(title))
	if text := s.detail(st, now); text != "" {
		line += "  " + text
	}
	return line
}

// detail says how long a step has taken, or what it waits for.
func (s *screen) detail(st wire.Step, now time.Time) string {
	var took time.Duration
	if st.StartedAt != nil {
		end := now
		if st.FinishedAt != nil {
			end = *st.FinishedAt
		}
		took = max(end.Sub(*st.StartedAt), 100*time.Millisecond)
	}
	switch plan.StepStatus(st.Status) {
	case plan.Done, plan.Undone:
		return span(took)
	case plan.Running, plan.Undoing:
		text := span(took)
		if st.EstimateSeconds > 0 {
			text += " of about " + span(wire.Span(st.EstimateSeconds))
		}
		if st.Failures > 0 {
			text += ", after " + strconv.Itoa(st.Failures) + " errors"
		}
		return text
	case plan.Waiting:
		text := span(took) + ", " + st.Message
		if st.NotBefore != nil {
			if left := st.NotBefore.Sub(now); left > time.Second {
				text += "; again in " + span(left)
			}
		}
		return text
	case plan.Failed, plan.Parked, plan.Stuck:
		return st.Message
	case plan.Pending:
		return s.waitsFor(st)
	}
	return ""
}

// waitsFor names the steps that a pending step still needs.
func (s *screen) waitsFor(st wire.Step) string {
	var open []string
	for _, n := range st.Needs {
		if need := findStep(s.p, n); plan.StepStatus(need.Status) != plan.Done {
			open = append(open, need.Title)
		}
	}
	switch {
	case len(open) == 0:
		return ""
	case len(open) > 2:
		return fmt.Sprintf("after %s and %d more", open[0], len(open)-1)
	}
	return "after " + strings.Join(open, ", ")
}
