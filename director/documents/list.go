package documents

import (
	"context"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/store"
)

// Query narrows ListDocuments.
type Query struct {
	director.Page
	Kind       model.Kind
	NamePrefix string
	Labels     model.Selector
	Visible    *director.Visible // nil for all
}

// ListDocuments lists documents of one kind.
func (s *Service) ListDocuments(ctx context.Context, q Query) ([]model.Stored, *director.Place, error) {
	if len(q.Labels) == 0 {
		return s.c.Store.DocumentPage(ctx, q.Kind, q.NamePrefix, q.Visible, q.Page)
	}
	var out []model.Stored
	read := func(p director.Page) ([]model.Stored, *director.Place, error) {
		return s.c.Store.DocumentPage(ctx, q.Kind, q.NamePrefix, q.Visible, p)
	}
	place := func(d model.Stored) *director.Place { return store.DocumentPlace(d, q.Sort) }
	next, err := director.Scan(q.Page, read, place, func(docs []model.Stored) ([]bool, error) {
		keep := make([]bool, len(docs))
		for i, d := range docs {
			if keep[i] = q.Labels.Match(d.Metadata.Labels); keep[i] {
				out = append(out, d)
			}
		}
		return keep, nil
	})
	return out[:min(len(out), q.Limit)], next, err
}
