package planning

import (
	"context"
	"maps"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/snapshot"
	"github.com/director-kaas/kaas/director/steps"
	"github.com/director-kaas/kaas/director/usage"
)

// UsedPrograms returns the digests of the bundles whose programs nodes may still fetch: of the releases that clusters
// run or are to run, and of plans that can continue. It fails if one of them cannot be told: then it is unknown which
// programs are not used.
func (s *Service) UsedPrograms(ctx context.Context) (map[string]bool, error) {
	docs, err := s.Store.Documents(ctx, "")
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
			inst, ok, err := s.Store.Installed(ctx, d.Metadata.Name)
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
			return nil, director.Errorf(
				director.KindConflict, "planning.programs",
				"a cluster runs the release %s, which has no document, so it is not known which programs are used",
				name,
			).
				WithHint("apply Release/%s again, or upgrade the cluster", name)
		}
		digest, err := s.digest(bundle)
		if err != nil {
			return nil, err
		}
		used[digest] = true
	}
	plans, err := s.Store.OpenPlans(ctx, usage.Unfinished()...)
	if err != nil {
		return nil, err
	}
	u := usage.New()
	if err := u.AddPlans(docs, plans); err != nil {
		return nil, err
	}
	maps.Copy(used, u.Programs)
	return used, nil
}

// digest returns the digest of the release's bundle.
func (s *Service) digest(r model.Release) (string, error) {
	if r.Bundle == "" {
		return r.Digest, nil
	}
	dir, err := snapshot.Bundles{Dirs: s.Confine.Bundles}.Dir(r)
	if err != nil {
		return "", err
	}
	return steps.BundleDigest(dir)
}
