package documents

import (
	"context"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
)

// Draft is what storing documents would do.
type Draft struct {
	Problems  []director.Field
	Changes   []model.Change // none if there are problems
	Documents []model.Stored // as they would be stored
}

// Draft looks at the documents in text as Apply does, and stores nothing. What is wrong with them is not an error. What
// the author may not store is.
func (s *Service) Draft(ctx context.Context, by Author, text []byte, source string) (Draft, error) {
	var d Draft
	problems := func(err error) (Draft, error) {
		if d.Problems = director.FieldsOf(err); len(d.Problems) > 0 && director.KindOf(err) == director.KindInvalid {
			return d, nil
		}
		return Draft{}, err
	}
	docs, err := model.Parse(text, source)
	if err != nil {
		return problems(err)
	}
	if err := s.validate(docs); err != nil {
		return problems(err)
	}
	changes, err := s.store(ctx, by, docs, true, Condition{})
	if err != nil {
		return problems(err)
	}
	d.Changes = changes
	now := s.c.Now()
	for i := range docs {
		stored, err := s.c.Store.Document(ctx, docs[i].Ref())
		switch {
		case err == nil && changes[i].Action != "unchanged":
			stored.Generation++
		case err != nil && director.KindOf(err) == director.KindNotFound:
			stored = model.Stored{UID: "preview-" + docs[i].Metadata.Name, Generation: 1, Created: now}
		case err != nil:
			return Draft{}, err
		}
		stored.Document, stored.Updated, stored.UpdatedBy = docs[i], now, by.Name
		d.Documents = append(d.Documents, stored)
	}
	return d, nil
}
