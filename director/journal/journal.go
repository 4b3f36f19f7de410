// Package journal shows plans: their states, what they wait for, their events and the logs of their steps, and the
// stream of the whole director. It changes nothing.
package journal

import (
	"context"
	"io"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
)

// Query narrows ListPlans.
type Query struct {
	director.Page
	Cluster    string
	IDPrefix   string
	Statuses   []plan.Status
	Operations []plan.Operation
	Visible    *director.Visible // nil for all
	Archived   bool              // those that have left the database, and no others
}

// EventQuery narrows SearchEvents.
type EventQuery struct {
	After int64
	Kinds []plan.EventKind
	Step  string
	Limit int
}

// Engine tells that plans have changed.
type Engine interface {
	// Changed returns a channel that is closed at the next change.
	Changed() <-chan struct{}
}

// Archives has the plans that have left the database.
type Archives interface {
	// Plan returns an archived plan as it was.
	Plan(ctx context.Context, id string) (plan.View, error)
}

// Peers asks the director with an instance for the logs that it has. Errors: unavailable if it does not answer.
type Peers interface {
	StepLog(ctx context.Context, instance, plan, step string, attempt int, offset int64) (io.ReadCloser, error)
	LogLines(ctx context.Context, instance, plan string, q LogQuery) (LogWindow, error)
	SearchLog(ctx context.Context, instance, plan string, q LogSearch) (Hits, error)
}

// Config is what New needs.
type Config struct {
	Store    *store.Store
	Engine   Engine
	Archives Archives
	PlanLife time.Duration // how long a plan can be started after it was made; zero is for ever
	// LogPath is the file of the log of a step's attempt.
	LogPath func(plan, step string, attempt int) string
	// LogsOf reports whether the run logs of the director with that instance are where ours are; nil for a director
	// without peers.
	LogsOf func(instance string) bool
	// Peers is asked for logs that another director has; nil for a director that asks none.
	Peers Peers
	Now   func() time.Time
}

// Service shows plans. It is safe for concurrent use.
type Service struct {
	Config
	logs indexes
}

// New returns the service.
func New(c Config) *Service { return &Service{Config: c} }

// Plan returns the plan with its state, also one that is in an archive of this director, or not_found.
func (s *Service) Plan(ctx context.Context, id string) (plan.View, error) {
	p, state, err := s.Store.Plan(ctx, id)
	if director.KindOf(err) == director.KindNotFound && err != nil {
		if _, archived, aerr := s.Store.PlanArchived(ctx, id); aerr != nil {
			return plan.View{}, aerr
		} else if archived {
			return s.Archives.Plan(ctx, id)
		}
	}
	v := plan.View{Plan: p, State: state}
	if err != nil {
		return v, err
	}
	return v, s.waits(ctx, &v)
}

// ListPlans lists plans without their steps.
func (s *Service) ListPlans(ctx context.Context, q Query) ([]plan.Item, *director.Place, error) {
	list := s.Store.PlanPage
	if q.Archived {
		list = s.Store.PlanArchives
	}
	items, next, err := list(ctx, store.PlanQuery{
		Cluster: q.Cluster, IDPrefix: q.IDPrefix, Statuses: q.Statuses, Operations: q.Operations,
		Visible: q.Visible,
	}, q.Page)
	out := make([]plan.Item, len(items))
	for i, item := range items {
		out[i] = plan.Item{
			View: plan.View{Plan: item.Plan, State: item.State}, Done: item.Done, Total: item.Total,
		}
	}
	return out, next, err
}

// SearchEvents returns the events of a plan that fit.
func (s *Service) SearchEvents(ctx context.Context, id string, q EventQuery) ([]plan.Event, int64, error) {
	return s.Store.EventPage(ctx, id, store.EventQuery(q))
}

// waits says what the plan waits for, and until when one that has not started can be.
func (s *Service) waits(ctx context.Context, v *plan.View) error {
	out := plan.Outside{Now: s.Now(), Lines: map[string]plan.Line{}}
	if s.PlanLife > 0 && (v.State.Status == plan.StatusPlanned || v.State.Status == plan.StatusApproved) {
		v.Expires = v.Plan.CreatedAt.Add(s.PlanLife)
		out.Expires = v.Expires
	}
	var err error
	if out.Holders, err = s.Store.Holders(ctx, v.Plan.ID); err != nil {
		return err
	}
	lines, err := s.Store.BudgetWaits(ctx, v.Plan.ID)
	if err != nil {
		return err
	}
	users := map[string][]string{}
	for _, l := range lines {
		if _, known := users[l.Budget]; !known {
			if users[l.Budget], err = s.Store.BudgetUsers(ctx, l.Budget); err != nil {
				return err
			}
		}
		out.Lines[l.Step] = plan.Line{Budget: l.Budget, Since: l.Since, Users: users[l.Budget]}
	}
	v.Waits = plan.Waits(&v.Plan, &v.State, out)
	return nil
}
