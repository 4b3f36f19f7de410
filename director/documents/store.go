package documents

import (
	"bytes"
	"context"
	"errors"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/store"
)

// errMoved is inside store's loop alone.
var errMoved = errors.New("the stored documents are others than those that were compared")

// maxCompared is how often documents are compared again because others were stored meanwhile.
const maxCompared = 10

// check looks for the document among the stored ones and holds the condition against it.
func check(c Condition, ref model.Ref, stored []model.Stored) error {
	for i := range stored {
		if stored[i].Ref() == ref {
			return c.Check(ref, &stored[i])
		}
	}
	return c.Check(ref, nil)
}

// store compares the documents with the stored ones and stores them. It compares outside of the transaction, which only
// looks whether what was compared is still there: a comparison may take long, and all writers wait for a transaction.
func (s *Service) store(
	ctx context.Context, by Author, docs []model.Document, dryRun bool, c Condition,
) ([]model.Change, error) {
	for range maxCompared {
		stored, err := s.c.Store.Documents(ctx, "")
		if err != nil {
			return nil, err
		}
		if err := by.may(docs, stored); err != nil {
			return nil, err
		}
		changes, err := merge(docs, stored)
		if err == nil && c.Any() {
			err = check(c, docs[0].Ref(), stored)
		}
		if err == nil && dryRun {
			err = standing(outside{ctx, s.c.Store}, docs, changes, stored)
		}
		if err != nil || dryRun {
			return changes, err
		}
		err = s.c.Store.Update(ctx, func(tx *store.Tx) error {
			versions, err := tx.Versions()
			if err != nil {
				return err
			}
			if !same(stored, versions) {
				return errMoved
			}
			if err := standing(tx, docs, changes, stored); err != nil {
				return err
			}
			return s.put(ctx, tx, by.Name, docs, changes)
		})
		if !errors.Is(err, errMoved) {
			return changes, err
		}
	}
	return nil, director.Errorf(
		director.KindUnavailable, "documents.apply", "other documents are stored all the time",
	).
		WithHint("try again")
}

// may returns why the author may not store the first document that is not allowed.
func (a Author) may(docs []model.Document, stored []model.Stored) error {
	if a.May == nil {
		return nil
	}
	for i := range docs {
		var was *model.Document
		for j := range stored {
			if stored[j].Ref() == docs[i].Ref() {
				was = &stored[j].Document
			}
		}
		if err := a.May(was, &docs[i]); err != nil {
			return err
		}
	}
	return nil
}

func same(stored []model.Stored, versions map[model.Ref]store.Version) bool {
	for _, s := range stored {
		if versions[s.Ref()] != (store.Version{UID: s.UID, Generation: s.Generation}) {
			return false
		}
	}
	return len(stored) == len(versions)
}

func (s *Service) put(
	ctx context.Context, tx *store.Tx, actor string, docs []model.Document, changes []model.Change,
) error {
	var answer any = changes
	if s.c.Answer != nil {
		answer = s.c.Answer(changes)
	}
	if err := tx.Witnessed(ctx, answer); err != nil {
		return err
	}
	now := s.c.Now()
	for i, c := range changes {
		if c.Action == "unchanged" {
			continue
		}
		if err := tx.PutDocument(docs[i], actor, now); err != nil {
			return err
		}
		verb := "apply"
		if words := unsigned(docs[i]); words != "" {
			verb = "apply unsigned: " + words
		}
		if err := tx.AuditChange(now, actor, verb, c.Ref.String(), c.Diff); err != nil {
			return err
		}
	}
	return nil
}

// unsigned returns why the document may be used without a signature.
func unsigned(d model.Document) string {
	switch {
	case d.Image != nil:
		return d.Image.Unsigned
	case d.Release != nil:
		return d.Release.Unsigned
	case d.Director != nil:
		return d.Director.Image.Unsigned
	}
	return ""
}

// compare returns the action that makes is of was, with the lines that differ.
func compare(was, is model.Document) (action, diff string, err error) {
	a, err1 := model.EncodeJSON(was)
	b, err2 := model.EncodeJSON(is)
	if err := errors.Join(err1, err2); err != nil {
		return "", "", err
	}
	if bytes.Equal(a, b) {
		return "unchanged", "", nil
	}
	before, err1 := model.Encode(was)
	after, err2 := model.Encode(is)
	return "changed", model.Diff(string(before), string(after)), errors.Join(err1, err2)
}
