package snapshot

import (
	"context"
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director/model"
)

// drafted is a store in which some documents are other ones.
type drafted struct {
	Store
	docs []model.Stored
}

// With returns a reader that reads these documents instead of stored ones of their names.
func (r *Reader) With(docs []model.Stored) *Reader {
	c := r.c
	c.Store = drafted{c.Store, docs}
	return &Reader{c}
}

// Document implements Store.
func (d drafted) Document(ctx context.Context, ref model.Ref) (model.Stored, error) {
	if i := slices.IndexFunc(d.docs, func(s model.Stored) bool { return s.Ref() == ref }); i >= 0 {
		return d.docs[i], nil
	}
	return d.Store.Document(ctx, ref)
}

// Documents implements Store.
func (d drafted) Documents(ctx context.Context, kind model.Kind) ([]model.Stored, error) {
	all, err := d.Store.Documents(ctx, kind)
	if err != nil {
		return nil, err
	}
	for _, s := range d.docs {
		if kind != "" && s.Kind != kind {
			continue
		}
		if i := slices.IndexFunc(all, func(o model.Stored) bool { return o.Ref() == s.Ref() }); i >= 0 {
			all[i] = s
		} else {
			all = append(all, s)
		}
	}
	slices.SortStableFunc(all, func(a, b model.Stored) int {
		return strings.Compare(a.Ref().String(), b.Ref().String())
	})
	return all, nil
}
