package snapshot

import (
	"errors"
	"path"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/bundle"
	"github.com/director-kaas/kaas/director/confine"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/planner"
	"github.com/director-kaas/kaas/director/provenance"
	"github.com/director-kaas/kaas/director/steps"
)

// Gate says whether a bundle is used. *provenance.Gate implements it.
type Gate interface {
	Release(b *bundle.Bundle, unsigned string) (provenance.Reason, error)
}

// Bundles reads the bundles of releases.
type Bundles struct {
	Dirs     confine.Dirs               // where they may lie
	Imported func(digest string) string // where an imported one is
	Gate     Gate
}

// Dir returns where the bundle of the release is, with no link left to follow.
func (b Bundles) Dir(r model.Release) (string, error) {
	if r.Bundle == "" && b.Imported != nil {
		return b.Imported(r.Digest), nil
	}
	dir, err := b.Dirs.Find(r.Bundle)
	if errors.Is(err, confine.ErrOutside) {
		return "", director.Errorf(
			director.KindInvalid, "snapshot.release", "the release bundle is not allowed: %s", err,
		).
			WithHint("move it there, or name its directory in bundleDirs of the director's configuration")
	}
	if err != nil {
		return r.Bundle, nil // who opens it says what is wrong
	}
	return dir, nil
}

// Read returns what a plan needs of the bundle, which must be for the release's version.
func (b Bundles) Read(r model.Release) (planner.Bundle, error) {
	dir, err := b.Dir(r)
	if err != nil {
		return planner.Bundle{}, err
	}
	opened, err := bundle.Open(dir)
	if r.Bundle == "" && director.KindOf(err) == director.KindNotFound {
		return planner.Bundle{}, director.Errorf(
			director.KindNotFound, "snapshot.release", "this director has no imported release with the digest %.12s",
			r.Digest,
		).
			WithHint("import it: directorctl release import FILE")
	}
	if err != nil {
		return planner.Bundle{}, err
	}
	if got := opened.Release().Kubernetes; got != r.Kubernetes {
		return planner.Bundle{}, &director.Error{
			Kind: director.KindInvalid, Op: "snapshot.release",
			Msg: "the bundle in " + dir + " is for Kubernetes " + got,
			Fields: []director.Field{
				{Path: "spec.kubernetes", Msg: r.Kubernetes + " is not what the bundle holds", Hint: "write " + got},
			},
		}
	}
	if err := opened.Complete(); err != nil { // before a plan is half done that needs what is missing
		return planner.Bundle{}, err
	}
	reason, err := b.Gate.Release(opened, r.Unsigned)
	if err != nil {
		return planner.Bundle{}, err
	}
	out := planner.Bundle{
		Digest: opened.Digest(), Unsigned: reason.Words, Components: opened.Release().Components,
		ImageTags: map[string]string{},
		Programs:  map[string]string{},
	}
	for _, i := range opened.Images() {
		out.ImageTags[i.Name] = i.Tag
	}
	for _, f := range steps.Programs(opened) {
		out.Programs[path.Base(f.Path)] = f.SHA256
	}
	return out, nil
}
