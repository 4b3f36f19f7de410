package api

import (
	"strings"

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

// DocumentQuery narrows ListDocuments.
type DocumentQuery struct {
	director.Page
	Kind       model.Kind
	NamePrefix string
	Labels     Labels
}

// ClusterQuery narrows ListClusters.
type ClusterQuery struct {
	director.Page
	NamePrefix string
	Labels     Labels
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

// Labels are conditions on labels, all of which must hold: "key=value", or "key" for any value.
type Labels []string

// Match reports whether the labels fulfil every condition.
func (l Labels) Match(labels map[string]string) bool {
	for _, want := range l {
		key, value, exact := strings.Cut(want, "=")
		got, ok := labels[key]
		if !ok || exact && got != value {
			return false
		}
	}
	return true
}
