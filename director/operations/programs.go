package operations

import (
	"context"
	"slices"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/store"
)

// UsedPrograms returns the digests of the bundles whose programs nodes may still fetch: of the releases that clusters run or are to run, and of plans that can
// go on. It fails if one of them cannot be told: then nobody knows which programs are not used.
func (o *Operations) UsedPrograms(ctx context.Context) (map[string]bool, error) {
	docs, err := o.Store.Documents(ctx, "")
	if err != nil {
		return nil, err
	}
	bundles, names := map[string]model.Release{}, map[string]bool{}
	for _, d := range docs {
		switch {
		case d.Release != nil:
			bundles[d.Metadata.Name] = *d.Release
		case d.Cluster != nil:
			names[d.Cluster.Release] = true
			inst, ok, err := o.Store.Installed(ctx, d.Metadata.Name)
			if err != nil {
				return nil, err
			}
			if ok {
				names[inst.Document.Cluster.Release] = true
			}
		}
	}
	used := map[string]bool{}
	for name := range names {
		bundle, known := bundles[name]
		if !known {
			return nil, director.Errorf(director.KindConflict, "operations.programs", "a cluster runs the release %s, which has no document, so it is not known which programs are used", name).
				WithHint("apply Release/%s again, or upgrade the cluster", name)
		}
		dir, err := o.bundleDir(bundle)
		if err != nil {
			return nil, err
		}
		digest, err := steps.BundleDigest(dir)
		if err != nil {
			return nil, err
		}
		used[digest] = true
	}
	ends := []plan.Phase{plan.PhaseDone, plan.PhaseUndone, plan.PhaseDiscarded}
	phases := slices.DeleteFunc(plan.Phases(), func(p plan.Phase) bool { return slices.Contains(ends, p) })
	ids, err := o.Store.Plans(ctx, store.PlanFilter{Phases: phases})
	if err != nil {
		return nil, err
	}
	for _, id := range ids {
		p, _, err := o.Store.Plan(ctx, id)
		if err != nil {
			return nil, err
		}
		if len(p.Facts) == 0 {
			continue
		}
		facts, err := planner.DecodeFacts(p.Content)
		if err != nil {
			return nil, err
		}
		used[facts.Digest] = true
	}
	return used, nil
}
