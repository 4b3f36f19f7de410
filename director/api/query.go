package api

import (
	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
)

// PlanQuery narrows ListPlans.
type PlanQuery struct {
	director.Page
	Cluster    string
	IDPrefix   string
	Phases     []plan.Phase
	Operations []plan.Operation
	Archived   bool // those that have left the database, and no others
}

// EventQuery narrows SearchEvents.
type EventQuery struct {
	After int64
	Kinds []plan.EventKind
	Step  string
	Limit int
}
