package documents

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/store"
	"github.com/director-kaas/kaas/director/usage"
)

// DeleteDocumentIf is DeleteDocument if the document fulfils the condition when it is deleted, and stale otherwise. The
// images of a deleted document are taken off providers afterwards: no plan can take them up then, and what is left when
// the director dies goes with the next prune.
func (s *Service) DeleteDocumentIf(ctx context.Context, actor string, ref model.Ref, c Condition) error {
	doc, err := s.c.Store.Document(ctx, ref)
	if err != nil {
		return err
	}
	if err := c.Check(ref, &doc); err != nil {
		return err
	}
	places, err := s.mayDelete(ctx, doc)
	if err != nil {
		return err
	}
	err = s.c.Store.Update(ctx, func(tx *store.Tx) error {
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
		whole := ref.Kind == model.KindCluster || ref.Kind == model.KindDirector
		if i := slices.IndexFunc(docs, func(d model.Stored) bool {
			return d.Ref() == ref
		}); i >= 0 && whole {
			if err := forget(tx, docs[i], actor, s.c.Now()); err != nil {
				return err
			}
		}
		if ref.Kind == model.KindCertificateAuthority {
			if err := tx.ForgetSecrets(doc.UID); err != nil {
				return err
			}
		}
		if err := tx.DeleteDocument(ref); err != nil {
			return err
		}
		if err := tx.NoteImages(places); err != nil {
			return err
		}
		return tx.Audit(s.c.Now(), actor, "delete", ref.String())
	})
	if err != nil {
		return err
	}
	return s.c.Images.Remove(ctx, doc, places)
}

// mayDelete is a conflict if something needs the document. It returns where the contents of an image may be.
func (s *Service) mayDelete(ctx context.Context, doc model.Stored) ([]director.ProviderImage, error) {
	if !usage.Needed(doc.Kind) {
		return nil, nil
	}
	docs, err := s.c.Store.Documents(ctx, "")
	if err != nil {
		return nil, err
	}
	u, err := usage.Of(ctx, s.c.Store, docs)
	if err != nil {
		return nil, err
	}
	if doc.Kind == model.KindRelease {
		if err := u.AddInstalled(ctx, s.c.Store, docs); err != nil {
			return nil, err
		}
	}
	if err := u.MayGo(doc.Ref()); err != nil || doc.Kind != model.KindImage {
		return nil, err
	}
	return s.c.Images.Places(ctx, doc, docs)
}

// forget removes the document of a cluster or a director with the record of what was installed, its secrets and the
// plans that could be moved on. It refuses while that has machines, or while a plan holds it.
func forget(tx *store.Tx, doc model.Stored, by string, at time.Time) error {
	const op = "documents.delete"
	name, what := doc.Metadata.Name, strings.ToLower(string(doc.Kind))
	holders, err := tx.PlansIn(name, plan.ActiveStatuses()...)
	if err != nil {
		return err
	}
	if len(holders) > 0 {
		return director.Errorf(director.KindConflict, op, "plan %s holds %s %s", holders[0], what, name).
			WithHint("wait for its end, or stop it with: directorctl cancel %s", holders[0])
	}
	machines, err := tx.Living(doc.UID)
	if err != nil {
		return err
	}
	drills, err := tx.Living(director.DrillUID(doc.UID))
	if err != nil {
		return err
	}
	if len(drills) > 0 {
		return director.Errorf(director.KindConflict, op, "VM %s of a restore drill is still there", drills[0]).
			WithHint("the director deletes it by itself; then delete the document")
	}
	if len(machines) > 0 {
		plans := "directorctl delete cluster "
		if doc.Kind == model.KindDirector {
			plans = "directorctl director delete "
		}
		return director.Errorf(director.KindConflict, op, "%s %s has %d VMs", what, name, len(machines)).
			WithHint("plan its deletion: %s%s", plans, name)
	}
	stopped := []plan.Status{plan.StatusPlanned, plan.StatusApproved, plan.StatusFailed, plan.StatusCancelled}
	if err := tx.DiscardPlans(name, "the document of the "+what+" was deleted", by, at, stopped...); err != nil {
		return err
	}
	return tx.ForgetCluster(doc.UID, name)
}
