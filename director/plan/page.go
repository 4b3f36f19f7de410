package plan

import (
	"fmt"
	"strings"
)

// Page renders docs/state-machine.md from the tables that the engine runs on.
func Page() string {
	var b strings.Builder
	b.WriteString(`# How plans and steps move

This page is generated from ` + "`director/plan/status.go`" + ` by ` + "`make generate`" + `; do not edit it. The engine, the replay of the journal and the
console use the same tables, and nothing else may change a status.

## A step

`)
	b.WriteString("```mermaid\nstateDiagram-v2\n    [*] --> pending\n")
	for _, s := range Statuses() {
		for _, e := range StepEvents() {
			if to, err := s.Next(e); err == nil {
				fmt.Fprintf(&b, "    %s --> %s: %s\n", s, to, e)
			}
		}
	}
	b.WriteString("```\n\n| status | what happens next |\n|---|---|\n")
	for _, s := range Statuses() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", s, statusMeaning[s])
	}
	b.WriteString("\n## A plan\n\n```mermaid\nstateDiagram-v2\n    [*] --> planned\n")
	for _, p := range Phases() {
		for _, e := range PlanEvents() {
			if to, err := p.Next(e); err == nil {
				fmt.Fprintf(&b, "    %s --> %s: %s\n", p, to, e)
			}
		}
	}
	b.WriteString("```\n\n| phase | what happens next |\n|---|---|\n")
	for _, p := range Phases() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", p, phaseMeaning[p])
	}
	return b.String()
}

var statusMeaning = map[Status]string{
	Pending: "The engine starts it when all that it needs is done. A crash leaves it so.",
	Running: "Its handler acts under a lease. After a crash it becomes interrupted at the next start, or when the lease ends.",
	Waiting: "The engine starts it again at its time: after an error, an interruption, or because something was not ready.",
	Parked:  "It waits for a person: `directorctl retry` runs it again. Everything is kept.",
	Done:    "Final; it never runs again in this plan.",
	Failed:  "A person mends the cause and runs `directorctl retry`, or gives up with `directorctl discard`.",
	Undoing: "The engine takes back what the step did.",
	Undone:  "Final.",
	Stuck:   "Taking back failed; an operator looks at it.",
}

var phaseMeaning = map[Phase]string{
	PhasePlanned:    "It can be read. Nothing has happened yet, and it holds nothing.",
	PhaseRunning:    "The engine runs its steps. It holds its cluster: no other plan can start there.",
	PhaseCancelling: "No step starts any more; the running ones end.",
	PhaseCancelled:  "It was stopped between steps. `directorctl retry` goes on, `directorctl discard` gives up.",
	PhaseParked:     "A step waits for a person, and nothing else can run. It still holds its cluster.",
	PhaseFailed:     "A step failed and nothing runs. `directorctl retry` runs what failed again and keeps what is done.",
	PhaseDone:       "Every step is done. Final.",
	PhaseDiscarded:  "Given up. Final.",
}
