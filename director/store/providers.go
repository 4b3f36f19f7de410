package store

import (
	"context"
	"slices"
	"strings"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
)

// ProviderNames returns the named providers, or all, by name and each once. Errors: not_found for one that has no
// document.
func (s *documentStore) ProviderNames(ctx context.Context, named []string) ([]string, error) {
	docs, err := s.Documents(ctx, model.KindProvider)
	if err != nil {
		return nil, err
	}
	var all []string
	for _, d := range docs {
		all = append(all, d.Metadata.Name)
	}
	for _, n := range named {
		if !slices.Contains(all, n) {
			return nil, director.Errorf(director.KindNotFound, "store.providers", "there is no Provider/%s", n).
				WithHint("there are: %s", strings.Join(all, ", "))
		}
	}
	if len(named) > 0 {
		all = slices.Compact(slices.Sorted(slices.Values(named)))
	}
	return all, nil
}
