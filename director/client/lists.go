package client

import (
	"context"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/wire"
)

// mostPerPage is how many items one answer of the director holds at most.
const mostPerPage = 500

// ClusterColumns are the fields of clusters that tables show.
var ClusterColumns = []string{"name", "status", "release", "endpoint", "nodes", "plan", "plan_status"}

// all reads a list to its end.
func all[T any](part func(url.Values) ([]T, string, error)) ([]T, error) {
	var items []T
	for q := (url.Values{"limit": {strconv.Itoa(mostPerPage)}}); ; {
		some, next, err := part(q)
		if err != nil {
			return items, err
		}
		if items = append(items, some...); next == "" {
			return items, nil
		}
		q.Set("continue", next)
	}
}

// PlanFilter narrows Plans. What is empty does not narrow.
type PlanFilter struct {
	Cluster    string
	Statuses   []plan.Status
	Operations []string
	Archived   bool // those that have left the database, and no others
	Limit      int  // at most so many; 0 for all
}

// Plans lists plans, the newest first.
func (c *planCalls) Plans(ctx context.Context, f PlanFilter) ([]wire.PlanSummary, error) {
	q := url.Values{}
	if f.Cluster != "" {
		q.Set("cluster", f.Cluster)
	}
	if f.Archived {
		q.Set("archived", "true")
	}
	statuses := make([]string, len(f.Statuses))
	for i, p := range f.Statuses {
		statuses[i] = string(p)
	}
	for key, values := range map[string][]string{"status": statuses, "operation": f.Operations} {
		if len(values) > 0 {
			q.Set(key, strings.Join(values, ","))
		}
	}
	var items []wire.PlanSummary
	for {
		limit := mostPerPage
		if f.Limit > 0 {
			limit = min(f.Limit-len(items), mostPerPage)
		}
		q.Set("limit", strconv.Itoa(limit))
		var l wire.Plans
		if err := c.call(ctx, request{method: http.MethodGet, path: "/plans", query: q}, &l); err != nil {
			return items, err
		}
		items = append(items, l.Items...)
		if l.Continue == "" || f.Limit > 0 && len(items) >= f.Limit {
			return items, nil
		}
		q.Set("continue", l.Continue)
	}
}
