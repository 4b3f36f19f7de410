package operations

import (
	"context"
	"slices"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/usage"
)

// DeleteDocumentIf is DeleteDocument if the document fulfils the condition when it is deleted, and stale otherwise. The
// images of a deleted document are taken off providers afterwards: no plan can take them up then, and what is left when
// the director dies goes with the next prune.
func (o *Operations) DeleteDocumentIf(ctx context.Context, actor string, ref model.Ref, c api.Condition) error {
	doc, err := o.Store.Document(ctx, ref)
	if err != nil {
		return err
	}
	if err := c.Check(ref, &doc); err != nil {
		return err
	}
	places, err := o.mayDelete(ctx, doc)
	if err != nil {
		return err
	}
	err = o.Store.Update(ctx, func(tx *store.Tx) error {
		docs, err := tx.Documents()
		if err == nil {
			err = check(c, ref, docs)
		}
		if err == nil {
			err = usage.Unused(tx, ref, docs)
		}
		if err != nil {
			return err
		}
		if i := slices.IndexFunc(docs, func(
			d model.Stored,
		) bool {
			return d.Ref() == ref
		}); i >= 0 && ref.Kind == model.KindCluster {
			if err := forget(tx, docs[i], actor, o.Now()); err != nil {
				return err
			}
		}
		if err := tx.DeleteDocument(ref); err != nil {
			return err
		}
		if err := tx.NoteImages(places); err != nil {
			return err
		}
		return tx.Audit(o.Now(), actor, "delete", ref.String())
	})
	if err != nil {
		return err
	}
	return o.Images.Remove(ctx, doc, places)
}

// mayDelete is a conflict if something needs the document. It returns where the contents of an image may be.
func (o *Operations) mayDelete(ctx context.Context, doc model.Stored) ([]director.ProviderImage, error) {
	if !usage.Needed(doc.Kind) {
		return nil, nil
	}
	docs, err := o.Store.Documents(ctx, "")
	if err != nil {
		return nil, err
	}
	u, err := usage.Of(ctx, o.Store, docs)
	if err != nil {
		return nil, err
	}
	if doc.Kind == model.KindRelease {
		if err := u.AddInstalled(ctx, o.Store, docs); err != nil {
			return nil, err
		}
	}
	if err := u.MayGo(doc.Ref()); err != nil || doc.Kind != model.KindImage {
		return nil, err
	}
	return o.Images.Places(ctx, doc, docs)
}
