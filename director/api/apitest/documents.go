package apitest

import (
	"context"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/documents"
	"github.com/director-kaas/kaas/director/model"
)

// ApplyIf stores a document on a condition.
func (o *Operations) ApplyIf(
	_ context.Context, by documents.Author, text []byte, source string, dryRun bool, cond documents.Condition,
) ([]model.Change, error) {
	docs, err := model.Parse(text, source)
	if err != nil {
		return nil, err
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	var changes []model.Change
	for _, d := range docs {
		c := model.Change{Ref: d.Ref(), Action: "created"}
		s, had := o.docs[d.Ref()]
		was := &s
		if !had {
			was = nil
		}
		if err := cond.Check(d.Ref(), was); err != nil {
			return nil, err
		}
		if had {
			was, _ := model.Encode(s.Document)
			is, _ := model.Encode(d)
			c.Action, c.Diff = "changed", model.Diff(string(was), string(is))
			if c.Diff == "" {
				c.Action = "unchanged"
			}
		}
		changes = append(changes, c)
		if dryRun || c.Action == "unchanged" {
			continue
		}
		if !had {
			s.Created = time.Now()
		}
		s.Document, s.Generation, s.Updated, s.UpdatedBy = d, s.Generation+1, time.Now(), by.Name
		o.docs[d.Ref()] = s
		e := director.StreamEvent{
			Source: director.SourceAudit, Kind: string(d.Kind), Name: d.Metadata.Name, What: "apply", By: by.Name,
		}
		if d.Cluster != nil {
			e.Cluster = e.Name
		}
		o.announce(e)
	}
	return changes, nil
}

// Document returns one document.
func (o *Operations) Document(_ context.Context, ref model.Ref) (model.Stored, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	d, ok := o.docs[ref]
	if !ok {
		return d, notFound("there is no %s", ref)
	}
	return d, nil
}

// DeleteDocumentIf removes a document on a condition.
func (o *Operations) DeleteDocumentIf(_ context.Context, _ string, ref model.Ref, c documents.Condition) error {
	o.mu.Lock()
	defer o.mu.Unlock()
	d, ok := o.docs[ref]
	if !ok {
		return notFound("there is no %s", ref)
	}
	if err := c.Check(ref, &d); err != nil {
		return err
	}
	delete(o.docs, ref)
	return nil
}
