package api

import (
	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
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

// ClusterQuery narrows ListClusters.
type ClusterQuery struct {
	director.Page
	NamePrefix string
	Labels     model.Selector
	Statuses   []string
	Phases     []plan.Phase // of the plan that holds the cluster or failed on it
	NoMachines bool         // count them alone: reading those of a fleet takes longer than all else
}

// EventQuery narrows SearchEvents.
type EventQuery struct {
	After int64
	Kinds []plan.EventKind
	Step  string
	Limit int
}
