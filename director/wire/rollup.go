package wire

import (
	"time"

	"github.com/director-kaas/kaas/director/plan"
)

// Steps is a page of the steps of a plan, in its order.
type Steps struct {
	Items     []Step         `json:"items" nullable:"false"`
	Continue  string         `json:"continue,omitempty" doc:"Absent at the end of the list; otherwise the query's continue for what follows."`
	Total     int            `json:"total" doc:"How many steps the query leaves, on all pages."`
	Statuses  map[string]int `json:"statuses" doc:"How many of these are in each status."`
	LastEvent int64          `json:"last_event" doc:"Number of the last event that is in this answer."`
}

// Matrix is a plan by nodes and groups of steps.
type Matrix struct {
	Groups    []StepGroup    `json:"groups" nullable:"false" doc:"In the plan's order."`
	Rows      []MatrixRow    `json:"rows" nullable:"false" doc:"The cluster first, then nodes in the plan's order."`
	Continue  string         `json:"continue,omitempty" doc:"Absent at the end of the rows; otherwise the query's continue for what follows."`
	Total     int            `json:"total" doc:"How many rows the query leaves, on all pages."`
	Statuses  map[string]int `json:"statuses" doc:"How many rows of the plan are in each status."`
	Status    string         `json:"status" doc:"Of the plan."`
	LastEvent int64          `json:"last_event" doc:"Number of the last event that is in this answer."`
}

// StepGroup is what steps of a class have in common, over all nodes.
type StepGroup struct {
	Name     string         `json:"name"`
	Kind     string         `json:"kind" doc:"Of its steps."`
	Statuses map[string]int `json:"statuses" doc:"How many of its steps are in each status."`
}

// MatrixRow is what a plan does for a node, or for the cluster.
type MatrixRow struct {
	Node   string       `json:"node,omitempty" doc:"Absent for the cluster."`
	Status string       `json:"status" doc:"Of its steps, the one that a reader wants to see first."`
	Cells  []MatrixCell `json:"cells" nullable:"false" doc:"Groups without steps for the node are left out."`
}

// MatrixCell is the steps of a group for a node.
type MatrixCell struct {
	Group      int        `json:"group" doc:"Place in groups, from 0."`
	Status     string     `json:"status" doc:"Of its steps, the one that a reader wants to see first."`
	Steps      int        `json:"steps"`
	Done       int        `json:"done"`
	Step       string     `json:"step" doc:"The first step with the status."`
	StartedAt  *time.Time `json:"started_at,omitempty"`
	FinishedAt *time.Time `json:"finished_at,omitempty" doc:"Absent unless all have finished."`
}

// EffectGroups is what a plan does to the world.
type EffectGroups struct {
	Items []EffectGroup `json:"items" nullable:"false" doc:"In the order of the plan's steps."`
}

// EffectGroup is the effects that do the same to the same kind of object.
type EffectGroup struct {
	Verb   string   `json:"verb"`
	Object string   `json:"object" doc:"vm, network, volume, image, file, api, registry or address."`
	Total  int      `json:"total" doc:"How many there are."`
	Names  []string `json:"names" nullable:"false" doc:"The first of them, each with its detail in parentheses."`
}

// EffectGroupsOf converts groups of effects with at most so many names of each.
func EffectGroupsOf(groups []plan.EffectGroup, most int) []EffectGroup {
	out := make([]EffectGroup, len(groups))
	for i, g := range groups {
		out[i] = EffectGroup{
			Verb: g.Verb, Object: g.Object, Total: len(g.Names), Names: texts(g.Names[:min(most, len(g.Names))]),
		}
	}
	return out
}

// StepsOf converts the steps at the places.
func StepsOf(p plan.Plan, s plan.State, at []int) []Step {
	out := make([]Step, len(at))
	for i, n := range at {
		out[i] = stepOf(p.Steps[n], plan.StateOf(&p, &s, n))
	}
	return out
}

// RowsOf converts rows of a matrix.
func RowsOf(rows []plan.Row) []MatrixRow {
	out := make([]MatrixRow, len(rows))
	for i, r := range rows {
		out[i] = MatrixRow{Node: r.Node, Status: string(r.Status), Cells: make([]MatrixCell, len(r.Cells))}
		for j, c := range r.Cells {
			out[i].Cells[j] = MatrixCell{
				Group: c.Group, Status: string(c.Status), Steps: c.Steps, Done: c.Done, Step: c.First,
				StartedAt: Optional(c.Started), FinishedAt: Optional(c.Finished),
			}
		}
	}
	return out
}

// GroupsOf converts groups of steps.
func GroupsOf(groups []plan.Group) []StepGroup {
	out := make([]StepGroup, len(groups))
	for i, g := range groups {
		out[i] = StepGroup{Name: g.Name, Kind: g.Kind, Statuses: map[string]int{}}
		for status, n := range g.Counts {
			out[i].Statuses[string(status)] = n
		}
	}
	return out
}
