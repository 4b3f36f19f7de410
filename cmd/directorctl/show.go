package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
)

// printPlan shows a frozen plan, and the state of its run if it has started.
func printPlan(w io.Writer, p wire.Plan) {
	say(w, "Plan %s: %s %s\n", p.ID, p.Operation, p.Cluster)
	tw := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	line := func(name, text string) {
		if text != "" {
			say(tw, "  %s\t%s\n", name, text)
		}
	}
	line("summary", p.Summary)
	line("status", p.Status)
	line("why", p.Message)
	line("hint", p.Hint)
	var from []string
	for _, m := range p.Models {
		from = append(from, fmt.Sprintf("%s/%s@%d", m.Kind, m.Name, m.Generation))
	}
	line("made", "by "+p.CreatedBy+" at "+p.CreatedAt.Local().Format("2006-01-02 15:04:05"))
	line("from", strings.Join(from, ", "))
	line("hash", p.Hash)
	if p.EstimateSeconds > 0 {
		line("estimate", "about "+span(wire.Span(p.EstimateSeconds)))
	}
	if p.StartedAt != nil && p.FinishedAt != nil {
		line("took", span(p.FinishedAt.Sub(*p.StartedAt)))
	}
	if p.ApprovedBy != "" {
		line("approved", "by "+p.ApprovedBy)
	}
	if p.ExpiresAt != nil {
		line("expires", p.ExpiresAt.Local().Format("2006-01-02 15:04:05"))
	}
	_ = tw.Flush() // as say
	for _, reason := range p.Approvals {
		say(w, "  asks for agreement: %s\n", reason)
	}
	for _, warning := range p.Warnings {
		say(w, "  warning: %s\n", warning)
	}
	if len(p.Machines) > 0 {
		sayLine(w, "\nMachines")
		table(w, "NAME ROLE POOL ADDRESS HOST", func(row func(...string)) {
			for _, m := range p.Machines {
				row(m.Name, m.Role, m.Pool, m.Address, m.Host)
			}
		})
	}
	printEffects(w, p)
	printSteps(w, p)
	printWaits(w, p, time.Now())
}

// printWaits says why nothing more happens just now, and who can end that.
func printWaits(w io.Writer, p wire.Plan, now time.Time) {
	if len(p.Waits) == 0 {
		return
	}
	sayLine(w, "\nWaits")
	table(w, "STEP REASON OWNER SINCE LATEST", func(row func(...string)) {
		for _, wait := range p.Waits {
			step, since, latest := wait.Step, "", "-"
			if step == "" {
				step = "the plan"
			}
			if wait.Since != nil {
				since = age(now.Sub(*wait.Since)) + " ago"
			}
			if wait.Deadline != nil {
				latest = wait.Deadline.Local().Format("15:04:05")
			}
			row(step, wait.Reason, wait.Owner, since, latest)
		}
	})
}

var verbMarks = map[string]string{
	"create": "+", "change": "~", "delete": "-", "keep": "=", "restart": "!", "evict": "!", "fence": "!",
}

// printEffects lists what the plan changes in the world, by node.
func printEffects(w io.Writer, p wire.Plan) {
	var order []string
	byNode := make(map[string][]wire.Effect)
	for _, s := range needed(p.Steps) {
		for _, e := range s.Effects {
			if _, ok := byNode[s.Node]; !ok {
				order = append(order, s.Node)
			}
			if !slices.Contains(byNode[s.Node], e) {
				byNode[s.Node] = append(byNode[s.Node], e)
			}
		}
	}
	if len(order) == 0 {
		return
	}
	slices.SortStableFunc(order, func(a, b string) int { // the cluster first, nodes as they come
		switch {
		case a == b:
			return 0
		case a == "":
			return -1
		case b == "":
			return 1
		}
		return 0
	})
	sayLine(w, "\nEffects")
	for _, node := range order {
		name := node
		if name == "" {
			name = "cluster"
		}
		say(w, "  %s\n", name)
		for _, e := range byNode[node] {
			mark := verbMarks[e.Verb]
			if mark == "" {
				mark = "*"
			}
			text := strings.TrimSpace(mark + " " + e.Verb + " " + e.Object + " " + e.Name)
			if e.Detail != "" {
				text += " (" + e.Detail + ")"
			}
			say(w, "    %s\n", text)
		}
	}
}

// printSteps lists the steps by number with the numbers that each needs first.
func printSteps(w io.Writer, p wire.Plan) {
	if len(p.Steps) == 0 {
		sayLine(w, "\nNo steps: nothing is to be done.")
		return
	}
	steps := needed(p.Steps)
	number := make(map[string]int, len(steps))
	for i, s := range steps {
		number[s.ID] = i + 1
	}
	started := plan.Status(p.Status) != plan.StatusPlanned
	sayLine(w, "\nSteps")
	header := "# STEP WHAT AFTER ESTIMATE"
	if started {
		header = "# STEP WHAT AFTER STATUS TIME"
	}
	table(w, header, func(row func(...string)) {
		for i, s := range steps {
			var needs []int
			for _, n := range s.Needs {
				if at := number[n]; at > 0 {
					needs = append(needs, at)
				}
			}
			cells := []string{strconv.Itoa(i + 1), s.ID, s.Title, ranges(needs)}
			if !started {
				row(append(cells, span(wire.Span(s.EstimateSeconds)))...)
				continue
			}
			status := s.Status
			if s.Attempt > 1 {
				status += " (attempt " + strconv.Itoa(s.Attempt) + ")"
			}
			took := ""
			if s.StartedAt != nil && s.FinishedAt != nil {
				took = span(s.FinishedAt.Sub(*s.StartedAt))
			}
			row(append(cells, status, took)...)
		}
	})
	printWaysBack(w, p)
	explained := []plan.StepStatus{plan.Failed, plan.Parked, plan.Waiting, plan.Stuck}
	for _, s := range p.Steps {
		if s.Message == "" || !slices.Contains(explained, plan.StepStatus(s.Status)) {
			continue
		}
		say(w, "\n%s is %s: %s\n", s.ID, s.Status, s.Message)
		if s.Hint != "" {
			say(w, "  hint: %s\n", s.Hint)
		}
		if s.Safety != "" && s.Status != string(plan.Waiting) {
			say(w, "  meanwhile: %s\n", s.Safety)
		}
	}
}

// needed leaves out the steps that only run after a failure, as long as there is none.
func needed(steps []wire.Step) []wire.Step {
	return slices.DeleteFunc(slices.Clone(
		steps,
	), func(s wire.Step) bool { return len(s.Undoes) > 0 && s.Status == string(plan.Pending) })
}

// printWaysBack tells what happens to a node that fails.
func printWaysBack(w io.Writer, p wire.Plan) {
	if plan.Status(p.Status) == plan.StatusDone {
		return
	}
	var nodes []string
	ways := map[string][]string{}
	for _, s := range p.Steps {
		if len(s.Undoes) == 0 || s.Status != string(plan.Pending) {
			continue
		}
		if ways[s.Node] == nil {
			nodes = append(nodes, s.Node)
		}
		ways[s.Node] = append(ways[s.Node], s.Title)
	}
	if len(nodes) == 0 {
		return
	}
	sayLine(w, "\nIf one of these nodes fails, it is rolled back automatically, and the others stay as they are")
	for _, n := range nodes {
		say(w, "  %s: %s\n", n, strings.Join(ways[n], "; "))
	}
}

// ranges renders numbers as 1-3,5.
func ranges(n []int) string {
	slices.Sort(n)
	var parts []string
	for i := 0; i < len(n); {
		j := i
		for j+1 < len(n) && n[j+1] == n[j]+1 {
			j++
		}
		switch j {
		case i:
			parts = append(parts, strconv.Itoa(n[i]))
		case i + 1:
			parts = append(parts, strconv.Itoa(n[i]), strconv.Itoa(n[j]))
		default:
			parts = append(parts, strconv.Itoa(n[i])+"-"+strconv.Itoa(n[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}

// span renders a duration for people: 0.4s, 12s, 3m05s, 1h02m.
func span(d time.Duration) string {
	switch {
	case d <= 0:
		return ""
	case d < 10*time.Second:
		return strconv.FormatFloat(d.Seconds(), 'f', 1, 64) + "s"
	case d < time.Minute:
		return strconv.Itoa(int(d.Round(time.Second).Seconds())) + "s"
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	}
	return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
}
