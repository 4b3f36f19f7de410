package access

import (
	"context"
	"errors"
	"log/slog"
	"maps"
	"slices"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
)

// keysActor is who makes and starts the plans that bring token keys. No user can have a name with a space.
const keysActor = "token keys"

// keysPause is how long no other plan brings token keys to a cluster after one that did not come to its end: keys are
// published a day before they are used, so there is time for a person.
const keysPause = time.Hour

// Plans makes and starts plans. *planning.Service implements it.
type Plans interface {
	MakePlan(ctx context.Context, actor, cluster string, r plan.Request) (plan.View, error)
	Start(ctx context.Context, actor, planID, hash string) error
}

// Keeper has plans bring token keys to the masters of clusters that have others.
type Keeper struct {
	Store  *store.Store
	Issuer steps.IssuerDocuments
	Plans  Plans
	Now    func() time.Time
	Log    *slog.Logger
}

// Keep looks at every cluster, and starts a plan for each whose masters have other token keys than the issuer. A
// cluster that has never had any waits for its next upgrade or for a person. It is called again and again.
func (k Keeper) Keep(ctx context.Context) error {
	clusters, err := k.Store.TokenKeys(ctx)
	if err != nil || len(clusters) == 0 {
		return err
	}
	discovery, jwks, err := k.Issuer.Documents(ctx)
	if err != nil {
		return err
	}
	digest := steps.KeysDigest(discovery, jwks)
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(clusters)) {
		if clusters[name] == digest {
			continue
		}
		if err := k.bring(ctx, name); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func (k Keeper) bring(ctx context.Context, cluster string) error {
	_, installed, err := k.Store.Installed(ctx, cluster)
	if err != nil || !installed {
		return err
	}
	if busy, err := k.busy(ctx, cluster); err != nil || busy {
		return err
	}
	p, err := k.Plans.MakePlan(ctx, keysActor, cluster, plan.Request{Operation: plan.ClusterTokenKeys})
	if err != nil || len(p.Plan.Steps) == 0 {
		return err
	}
	// Another director may have been faster, or a person has started a plan.
	if err := k.Plans.Start(ctx, keysActor, p.Plan.ID, p.Plan.Hash); director.KindOf(err) == director.KindConflict {
		return nil
	} else if err != nil {
		return err
	}
	k.Log.InfoContext(ctx, "token keys are brought to a cluster", "cluster", cluster, "plan_id", p.Plan.ID)
	return nil
}

// busy reports whether another plan holds the cluster, a person has just made one, or one of ours has failed a moment
// ago.
func (k Keeper) busy(ctx context.Context, cluster string) (bool, error) {
	const most = 20
	ids, err := k.Store.Plans(ctx, store.PlanFilter{Cluster: cluster, Limit: most})
	if err != nil {
		return false, err
	}
	for _, id := range ids {
		p, state, err := k.Store.Plan(ctx, id)
		if err != nil {
			return false, err
		}
		recent := k.Now().Sub(p.CreatedAt) < keysPause
		ours := p.CreatedBy == keysActor
		switch state.Status {
		case plan.StatusPlanned, plan.StatusApproved: // a plan that is made supersedes those that wait
			if recent && !ours {
				return true, nil
			}
		case plan.StatusFailed, plan.StatusCancelled, plan.StatusUndone:
			if recent && ours {
				return true, nil
			}
		case plan.StatusDone, plan.StatusDiscarded:
		case plan.StatusRunning, plan.StatusPaused, plan.StatusCancelling, plan.StatusParked, plan.StatusUndoing:
			return true, nil
		}
	}
	return false, nil
}
