package api

import (
	"context"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
)

// Lists is what the API asks of Operations for its lists. Each returns at most Page.Limit items and the place to go on from, which is nil
// at the end. What is empty in a query does not narrow the list. An order that a list does not know is invalid.
type Lists interface {
	// ListPlans lists plans; the usual order is the newest first.
	ListPlans(ctx context.Context, q PlanQuery) ([]PlanItem, *director.Place, error)
	// ListDocuments lists documents of one kind; the usual order is by name.
	ListDocuments(ctx context.Context, q DocumentQuery) ([]model.Stored, *director.Place, error)
	// ListClusters lists clusters by name.
	ListClusters(ctx context.Context, q ClusterQuery) ([]ClusterView, *director.Place, error)
	// SearchEvents returns the events of a plan that fit, in order, and the number up to which the journal was looked through.
	SearchEvents(ctx context.Context, id string, q EventQuery) ([]plan.Event, int64, error)
}

// PlanQuery narrows ListPlans.
type PlanQuery struct {
	director.Page
	Cluster    string
	IDPrefix   string
	Phases     []plan.Phase
	Operations []plan.Operation
}

// PlanItem is a plan as a list shows it: without its steps.
type PlanItem struct {
	PlanView
	Done, Total int // steps
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
