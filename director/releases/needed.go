package releases

import (
	"context"
	"maps"
	"slices"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/bundle"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/usage"
)

// Needed are the releases whose container images have to stay in the registry.
type Needed struct {
	Bundles []NeededBundle
	Names   map[string]bool // of documents of releases that there are, or that clusters run
	Digests map[string]bool // of the bundles that documents name, that are imported, or that plans may still need
}

// NeededBundle is a bundle that can be read, with the name of its document; empty if none names it.
type NeededBundle struct {
	Name string
	*bundle.Bundle
}

// Needed returns the releases that are not deleted, and what clusters and plans that are not over need. Errors:
// conflict if a cluster needs a release whose bundle cannot be read: then it is unknown which images it needs.
func (s *Service) Needed(ctx context.Context) (Needed, error) {
	docs, err := s.c.Store.Documents(ctx, "")
	if err != nil {
		return Needed{}, err
	}
	run, plans := usage.New(), usage.New()
	open, err := s.c.Store.OpenPlans(ctx, usage.Unfinished()...)
	if err == nil {
		err = plans.AddPlans(docs, open)
	}
	if err == nil {
		err = run.AddInstalled(ctx, s.c.Store, docs)
	}
	if err != nil {
		return Needed{}, err
	}
	used := releasesOf(run)
	for _, d := range docs {
		if d.Cluster != nil {
			used[d.Cluster.Release] = true
		}
	}
	n := Needed{Names: maps.Clone(used), Digests: map[string]bool{}}
	maps.Copy(n.Names, releasesOf(plans))
	for digest := range plans.Bundles {
		n.Digests[digest] = true
	}
	if err := s.addDocuments(&n, docs, used); err != nil {
		return Needed{}, err
	}
	return n, s.addImported(&n)
}

func releasesOf(u usage.Usage) map[string]bool {
	out := map[string]bool{}
	for ref := range u.Documents {
		if ref.Kind == model.KindRelease {
			out[ref.Name] = true
		}
	}
	return out
}

// addDocuments adds the releases of documents. Those that clusters use must be among them.
func (s *Service) addDocuments(n *Needed, docs []model.Stored, used map[string]bool) error {
	for _, d := range docs {
		if d.Release == nil {
			continue
		}
		name := d.Metadata.Name
		n.Names[name] = true
		b, err := s.open(*d.Release)
		if err != nil && used[name] {
			return director.Errorf(
				director.KindConflict, "releases.needed",
				"the bundle of Release/%s cannot be read, so it is not known which images its clusters need: %w", name,
				err,
			).WithHint("see what is wrong: directorctl release verify %s", name)
		}
		delete(used, name)
		if err == nil {
			n.add(name, b)
		}
	}
	for name := range used {
		return director.Errorf(
			director.KindConflict, "releases.needed",
			"a cluster runs the release %s, which has no document, so it is not known which images it needs", name,
		).WithHint("apply Release/%s again, or upgrade the cluster", name)
	}
	return nil
}

// addImported adds the imported bundles that no document names.
func (s *Service) addImported(n *Needed) error {
	files, err := s.c.Files.Files()
	if err != nil {
		return err
	}
	for _, f := range files {
		if n.Digests[f.Digest] {
			continue
		}
		n.Digests[f.Digest] = true
		if b, err := s.open(model.Release{Digest: f.Digest}); err == nil {
			n.add("", b)
		}
	}
	return nil
}

func (n *Needed) add(name string, b *bundle.Bundle) {
	n.Digests[b.Digest()] = true
	n.Bundles = append(n.Bundles, NeededBundle{name, b})
}

// Running is a release that clusters run.
type Running struct {
	Name    string // of the document
	Release model.Release
}

// Running returns the releases that clusters run and that have a document, by name. A cluster that is not created yet
// runs none.
func (s *Service) Running(ctx context.Context) ([]Running, error) {
	names, err := s.c.Store.InstalledReleases(ctx)
	if err != nil {
		return nil, err
	}
	docs, err := s.c.Store.Documents(ctx, model.KindRelease)
	out := []Running{}
	for _, d := range docs {
		if slices.Contains(names, d.Metadata.Name) {
			out = append(out, Running{d.Metadata.Name, *d.Release})
		}
	}
	return out, err
}

// Open returns the bundle of a release. Errors: not found if its files are not there.
func (s *Service) Open(r model.Release) (*bundle.Bundle, error) { return s.open(r) }
