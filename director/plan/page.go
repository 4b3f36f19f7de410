package plan

import (
	"fmt"
	"strings"
)

// Page renders docs/reference/state-machine.md from the tables that the engine runs on.
func Page() string {
	var b strings.Builder
	b.WriteString(`# States of plans and steps

This page is generated from ` + "`director/plan/status.go`" + ` by ` + "`make generate`" + `; do not edit it.
The engine and
the replay of the journal use the same tables, and nothing else changes a status.

## A step

`)
	b.WriteString("```mermaid\nstateDiagram-v2\n    [*] --> pending\n")
	for _, s := range StepStatuses() {
		for _, e := range StepEvents() {
			if to, err := s.Next(e); err == nil {
				fmt.Fprintf(&b, "    %s --> %s: %s\n", s, to, e)
			}
		}
	}
	b.WriteString("```\n\n| status | what happens next |\n|---|---|\n")
	for _, s := range StepStatuses() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", s, stepMeaning[s])
	}
	b.WriteString("\n## A plan\n\n```mermaid\nstateDiagram-v2\n    [*] --> planned\n")
	for _, p := range Statuses() {
		for _, e := range PlanEvents() {
			if to, err := p.Next(e); err == nil {
				fmt.Fprintf(&b, "    %s --> %s: %s\n", p, to, e)
			}
		}
	}
	b.WriteString("```\n\n| status | what happens next |\n|---|---|\n")
	for _, p := range Statuses() {
		fmt.Fprintf(&b, "| `%s` | %s |\n", p, statusMeaning[p])
	}
	return b.String()
}

var stepMeaning = map[StepStatus]string{
	Pending: "The engine starts it when all that it needs is done. A crash leaves it so.",
	Running: "Its handler acts under a lease. After a crash it becomes interrupted at the next start, or when the " +
		"lease ends.",
	Waiting: "The engine starts it again at its time: after an error, an interruption, or because something was not " +
		"ready.",
	Parked:  "It waits for a person: `directorctl retry` runs it again. Everything is kept.",
	Done:    "It never runs again in this plan.",
	Skipped: "A person said with `directorctl skip` that the plan continues without it; the reason is in the journal.",
	Failed: "A person fixes the cause and runs `directorctl retry`, leaves it out with `directorctl skip`, undoes " +
		"everything with `directorctl undo`, or gives up with `directorctl discard`.",
	UndoDue: "The engine undoes what it did, once all that depends on it is undone.",
	Undoing: "Its handler undoes it, under a lease. After a crash it is due again.",
	Undone:  "What it did is undone. `directorctl retry` would run it again.",
	Stuck:   "Undoing failed. A person fixes the cause and runs `directorctl undo` again.",
}

var statusMeaning = map[Status]string{
	StatusPlanned:  "It can be read. Nothing has happened yet, and it holds nothing.",
	StatusApproved: "A person has said that it may be started. It holds nothing yet.",
	StatusRunning:  "The engine runs its steps. It holds its cluster: no other plan can start there.",
	StatusPaused: "No step starts any more and the running ones end. It still holds its cluster; `directorctl " +
		"resume` continues.",
	StatusCancelling: "No step starts any more; the running ones end.",
	StatusCancelled: "It was stopped between steps. `directorctl retry` lets it continue, `directorctl discard` " +
		"gives it up.",
	StatusParked: "A step waits for a person, and nothing else can run. It still holds its cluster.",
	StatusFailed: "A step failed and nothing runs. `directorctl retry` runs what failed again and keeps what is " +
		"done.",
	StatusUndoing:   "The engine undoes what can be undone, the last first. It holds its cluster.",
	StatusUndone:    "Everything that can be undone is. Final.",
	StatusDone:      "Every step is done or skipped. Final.",
	StatusDiscarded: "Given up. Final.",
}
