package journal

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
)

// The kinds of those who end a wait.
const (
	OwnerPerson   = "person"
	OwnerDirector = "director"
	OwnerPlan     = "plan"
)

// Owners are the kinds of those who end a wait.
func Owners() []string { return []string{OwnerPerson, OwnerDirector, OwnerPlan} }

// WaitQuery narrows Waits. What is empty does not narrow.
type WaitQuery struct {
	Owner   string // one of Owners
	Cluster string
	Visible *director.Visible // nil for all
}

// Waiting is a wait of a plan. Steps that wait for the same are one.
type Waiting struct {
	plan.Wait
	Kind      string // one of Owners
	Plan      string
	Cluster   string
	Operation plan.Operation
	Summary   string
	Status    plan.Status
	Steps     int    // how many of its steps wait so; 0 for the plan as a whole
	By        string // who made the plan
	Approval  bool   // a person has to agree to it before it starts
}

// Waits returns what plans wait for, the longest wait first: of those that have not ended, and of those that failed or
// were cancelled and left their cluster so.
func (s *Service) Waits(ctx context.Context, q WaitQuery) ([]Waiting, error) {
	items, _, err := s.Store.PlanPage(ctx, store.PlanQuery{
		Cluster: q.Cluster, Statuses: openStatuses(), Visible: q.Visible,
	}, director.Page{})
	if err != nil {
		return nil, err
	}
	left, err := s.leftBehind(ctx, q)
	if err != nil {
		return nil, err
	}
	var out []Waiting
	for _, item := range append(items, left...) {
		some, err := s.waitsOf(ctx, item.Plan.ID, q.Owner)
		if err != nil {
			return nil, err
		}
		out = append(out, some...)
	}
	slices.SortStableFunc(out, func(a, b Waiting) int {
		return cmp.Or(a.Since.Compare(b.Since), cmp.Compare(a.Plan, b.Plan))
	})
	return out, nil
}

// openStatuses are those of plans that move on by themselves, or by a word of a person.
func openStatuses() []plan.Status {
	return append([]plan.Status{plan.StatusPlanned, plan.StatusApproved}, plan.ActiveStatuses()...)
}

// leftBehind returns the newest plans of clusters that failed or were cancelled.
func (s *Service) leftBehind(ctx context.Context, q WaitQuery) ([]store.PlanItem, error) {
	clusters, _, err := s.Store.ClusterPage(ctx, q.Cluster, q.Visible, director.Page{})
	var out []store.PlanItem
	for _, c := range clusters {
		if (c.Status == plan.StatusFailed || c.Status == plan.StatusCancelled) &&
			(q.Cluster == "" || c.Name == q.Cluster) {
			out = append(out, store.PlanItem{Plan: plan.Plan{ID: c.Plan}})
		}
	}
	return out, err
}

func (s *Service) waitsOf(ctx context.Context, id, owner string) ([]Waiting, error) {
	v, err := s.Plan(ctx, id)
	if director.KindOf(err) == director.KindNotFound && err != nil {
		return nil, nil // it was pruned meanwhile
	}
	if err != nil || !v.Expires.IsZero() && v.Expires.Before(s.Now()) {
		return nil, err // who did not start it in time need not any more
	}
	var out []Waiting
	at := map[[3]string]int{}
	for _, w := range v.Waits {
		kind := ownerKind(w.Owner)
		if owner != "" && owner != kind {
			continue
		}
		key := [3]string{w.Reason, w.Owner, ""}
		if w.Step == "" {
			key[2] = "plan"
		}
		if i, known := at[key]; known {
			out[i].Steps++
			if w.Since.Before(out[i].Since) {
				out[i].Since = w.Since
			}
			continue
		}
		at[key] = len(out)
		next := Waiting{
			Wait: w, Kind: kind, Plan: id, Cluster: v.Plan.Cluster, Operation: v.Plan.Operation,
			Summary: v.Plan.Summary, Status: v.State.Status, By: v.Plan.CreatedBy,
			Approval: v.State.Status == plan.StatusPlanned && len(v.Plan.Approvals) > 0,
		}
		if w.Step != "" {
			next.Steps = 1
		}
		out = append(out, next)
	}
	return out, nil
}

// ownerKind is the kind of who ends a wait.
func ownerKind(owner string) string {
	switch {
	case owner == plan.OwnerPerson:
		return OwnerPerson
	case strings.HasPrefix(owner, "plan "):
		return OwnerPlan
	}
	return OwnerDirector
}

// PlanCounts counts the plans by their status.
func (s *Service) PlanCounts(ctx context.Context, visible *director.Visible) (map[string]int, error) {
	return s.Store.CountPlans(ctx, visible)
}
