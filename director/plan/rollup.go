package plan

import (
	"slices"
	"strings"
	"time"
)

// StepFilter narrows the steps of a plan. What is empty does not narrow.
type StepFilter struct {
	IDs      []string
	Nodes    []string // NoNode for the steps that concern the cluster
	Groups   []string // classes of steps
	Kinds    []string
	Statuses []StepStatus
	Text     string // in the id, title, message or node, in any case
	Started  bool   // those that have not are left out
}

// NoNode is the name of the cluster where a node is named.
const NoNode = "-"

// fits reports whether the filter leaves the step in.
func (f StepFilter) fits(step *Step, st *StepState) bool {
	node := step.Node
	if node == "" {
		node = NoNode
	}
	if len(f.IDs) > 0 && !slices.Contains(f.IDs, step.ID) ||
		f.Started && st.StartedAt.IsZero() ||
		len(f.Nodes) > 0 && !slices.Contains(f.Nodes, node) ||
		len(f.Groups) > 0 && !slices.Contains(f.Groups, step.Class()) ||
		len(f.Kinds) > 0 && !slices.Contains(f.Kinds, step.Kind) ||
		len(f.Statuses) > 0 && !slices.Contains(f.Statuses, st.Status) {
		return false
	}
	if f.Text == "" {
		return true
	}
	text := strings.ToLower(f.Text)
	return slices.ContainsFunc([]string{step.ID, step.Title, st.Message, step.Node}, func(in string) bool {
		return strings.Contains(strings.ToLower(in), text)
	})
}

// Select returns the places of the steps that the filter leaves, in the plan's order.
func (f StepFilter) Select(p *Plan, s *State) []int {
	var out []int
	for i := range p.Steps {
		st := StateOf(p, s, i)
		if f.fits(&p.Steps[i], &st) {
			out = append(out, i)
		}
	}
	return out
}

// StateOf is the state of the step at the place. States are in the plan's order; a plan that was never stored has none.
func StateOf(p *Plan, s *State, i int) StepState {
	if i < len(s.Steps) && s.Steps[i].ID == p.Steps[i].ID {
		return s.Steps[i]
	}
	if found := s.Step(p.Steps[i].ID); found != nil {
		return *found
	}
	return StepState{ID: p.Steps[i].ID, Status: Pending}
}

// Matrix is a plan by nodes and groups of steps.
type Matrix struct {
	Groups []Group // in the plan's order
	Rows   []Row   // of the cluster first, then of nodes in the plan's order
}

// Group is what steps of the same class have in common.
type Group struct {
	Name   string // their class
	Kind   string
	Counts map[StepStatus]int
}

// Row is what a plan does for a node, or for the cluster.
type Row struct {
	Node   string     // empty for the cluster
	Status StepStatus // of all of its steps together
	Cells  []Cell     // in the order of groups; groups without steps for the node have none
}

// Cell is the steps of a group for a node.
type Cell struct {
	Group       int // place among the groups
	Status      StepStatus
	Steps, Done int
	First       string // id of the step that says most: the first with the status
	Started     time.Time
	Finished    time.Time // of the last one; zero unless all have finished
}

// urgency orders statuses by what a reader wants to see first.
var urgency = []StepStatus{Stuck, Failed, Parked, Undoing, Running, UndoDue, Waiting, Pending, Undone, Skipped, Done}

// worse returns the status that says more about both.
func worse(a, b StepStatus) StepStatus {
	if a == "" || slices.Index(urgency, b) < slices.Index(urgency, a) {
		return b
	}
	return a
}

// Rollup returns the plan by nodes and groups. Rollback steps that have nothing to undo are left out.
func Rollup(p *Plan, s *State) Matrix {
	var m Matrix
	groups, rows := map[string]int{}, map[string]int{}
	cells := map[[2]int]int{}
	row := func(node string) int {
		at, known := rows[node]
		if !known {
			at = len(m.Rows)
			rows[node] = at
			m.Rows = append(m.Rows, Row{Node: node})
		}
		return at
	}
	row("")
	for i := range p.Steps {
		step, st := &p.Steps[i], StateOf(p, s, i)
		if step.Back() && st.Status == Pending {
			continue
		}
		g, known := groups[step.Class()]
		if !known {
			g = len(m.Groups)
			groups[step.Class()] = g
			m.Groups = append(m.Groups, Group{Name: step.Class(), Kind: step.Kind, Counts: map[StepStatus]int{}})
		}
		m.Groups[g].Counts[st.Status]++
		at := row(step.Node)
		r := &m.Rows[at]
		r.Status = worse(r.Status, st.Status)
		c, known := cells[[2]int{at, g}]
		if !known {
			c = len(r.Cells)
			cells[[2]int{at, g}] = c
			r.Cells = append(r.Cells, Cell{Group: g, Finished: st.FinishedAt})
		}
		r.Cells[c].add(st)
	}
	if len(m.Rows[0].Cells) == 0 {
		m.Rows = m.Rows[1:]
	}
	for i := range m.Rows {
		slices.SortFunc(m.Rows[i].Cells, func(a, b Cell) int { return a.Group - b.Group })
	}
	return m
}

// add takes another step into the cell.
func (c *Cell) add(st StepState) {
	if status := worse(c.Status, st.Status); status != c.Status {
		c.Status, c.First = status, st.ID
	}
	c.Steps++
	if st.Status == Done {
		c.Done++
	}
	if !st.StartedAt.IsZero() && (c.Started.IsZero() || st.StartedAt.Before(c.Started)) {
		c.Started = st.StartedAt
	}
	switch {
	case st.FinishedAt.IsZero():
		c.Finished = time.Time{}
	case !c.Finished.IsZero() && st.FinishedAt.After(c.Finished):
		c.Finished = st.FinishedAt
	}
}
