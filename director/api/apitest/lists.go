package apitest

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/clusters"
	"github.com/director-kaas/kaas/director/documents"
	"github.com/director-kaas/kaas/director/journal"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
)

// cut returns the part of a sorted list that the page asks for; place names an item in it.
func cut[T any](all []T, p director.Page, place func(T) string) ([]T, *director.Place) {
	if p.After != nil {
		if i := slices.IndexFunc(all, func(t T) bool { return place(t) == p.After.Name }); i >= 0 {
			all = all[i+1:]
		}
	}
	if p.Limit == 0 || len(all) <= p.Limit {
		return all, nil
	}
	return all[:p.Limit], &director.Place{Name: place(all[p.Limit-1])}
}

func among[T comparable](want []T, got T) bool { return len(want) == 0 || slices.Contains(want, got) }

// ListPlans lists plans, by age or by cluster.
func (o *Operations) ListPlans(_ context.Context, q journal.Query) ([]plan.Item, *director.Place, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []plan.Item
	for _, r := range o.plans {
		if (q.Cluster == "" || r.plan.Cluster == q.Cluster) && strings.HasPrefix(r.plan.ID, q.IDPrefix) &&
			among(q.Statuses, r.state.Status) && among(q.Operations, r.plan.Operation) {
			item := plan.Item{View: r.view(), Total: len(r.state.Steps)}
			for _, s := range r.state.Steps {
				if s.Status == plan.Done {
					item.Done++
				}
			}
			all = append(all, item)
		}
	}
	if q.Sort == "cluster" {
		slices.SortStableFunc(all, func(a, b plan.Item) int { return cmp.Compare(a.Plan.Cluster, b.Plan.Cluster) })
	}
	if q.Desc {
		slices.Reverse(all)
	}
	items, next := cut(all, q.Page, func(i plan.Item) string { return i.Plan.ID })
	return items, next, nil
}

// SearchEvents returns the events that fit.
func (o *Operations) SearchEvents(_ context.Context, id string, q journal.EventQuery) ([]plan.Event, int64, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	r, err := o.find(id)
	if err != nil {
		return nil, 0, err
	}
	var out []plan.Event
	for _, e := range r.events {
		if e.Seq > q.After && among(q.Kinds, e.Kind) && (q.Step == "" || e.Step == q.Step) {
			if out = append(out, e); len(out) == q.Limit {
				return out, e.Seq, nil
			}
		}
	}
	return out, max(q.After, r.state.Seq), nil
}

// ListDocuments lists documents.
func (o *Operations) ListDocuments(_ context.Context, q documents.Query) ([]model.Stored, *director.Place, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	docs, next := cut(o.documents(q), q.Page, func(d model.Stored) string { return d.Metadata.Name })
	return docs, next, nil
}

func (o *Operations) documents(q documents.Query) []model.Stored {
	var all []model.Stored
	for ref, d := range o.docs {
		if ref.Kind == q.Kind && strings.HasPrefix(ref.Name, q.NamePrefix) && q.Labels.Match(d.Metadata.Labels) {
			all = append(all, d)
		}
	}
	slices.SortFunc(all, func(a, b model.Stored) int {
		return strings.Compare(a.Metadata.Name, b.Metadata.Name)
	})
	if q.Desc {
		slices.Reverse(all)
	}
	return all
}

// ListClusters lists clusters.
func (o Clusters) ListClusters(_ context.Context, q clusters.Query) ([]clusters.View, *director.Place, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	var all []clusters.View
	for _, d := range o.documents(documents.Query{
		Page: q.Page, Kind: model.KindCluster, NamePrefix: q.NamePrefix, Labels: q.Labels,
	}) {
		if v := o.cluster(d); among(q.Statuses, v.Status) && among(q.PlanStatuses, v.PlanStatus) {
			all = append(all, v)
		}
	}
	views, next := cut(all, q.Page, func(v clusters.View) string { return v.Name })
	return views, next, nil
}
