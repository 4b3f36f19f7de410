package registry

import (
	"context"
	"encoding/json"
	"iter"
	"path"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/director-kaas/kaas/director"
)

// Release is a release bundle as far as its images are concerned.
type Release struct {
	Name   string         `json:"name"`   // of the document; empty for a bundle that none names
	Bundle string         `json:"bundle"` // digest of the bundle
	Images []ReleaseImage `json:"images"`
}

// ReleaseImage is where an image of a release is in the registry.
type ReleaseImage struct {
	Repository string        `json:"repository"`
	Tag        string        `json:"tag"`
	Digest     digest.Digest `json:"digest"`
}

// Needed says which images of releases stay: those of Releases, and of each release that was ever pushed under one of
// the names or from one of the bundles.
type Needed struct {
	Releases []Release
	Names    map[string]bool // of documents
	Bundles  map[string]bool // digests
}

func (n Needed) needs(r Release) bool { return n.Names[r.Name] || n.Bundles[r.Bundle] }

// Hold notes that the images of a release are about to be pushed. The collector keeps images whose release it does not
// know. It is idempotent, and removes no image.
func (r *Registry) Hold(ctx context.Context, release Release) error {
	if release.Name == "" || release.Bundle == "" {
		return director.Errorf(director.KindInternal, "registry.hold", "a release without a name or a digest")
	}
	text, err := json.Marshal(release)
	if err == nil {
		err = r.content.PutContent(ctx, releaseNote(release), text)
	}
	if err == nil {
		err = r.remove(ctx, releaseGone(release))
	}
	return err
}

// Lacks reports whether the registry has nothing under the tag of an image of the release. A tag that leads to another
// image stays what it is: another release has it. Layers are not looked at.
func Lacks(ctx context.Context, r *Registry, release Release) (bool, error) {
	c := collector{r}
	for _, image := range release.Images {
		is, tagged, err := c.tag(ctx, image)
		if err == nil && tagged {
			_, tagged, err = c.exists(ctx, linkPath(image.Repository, revisionsDir, is))
		}
		if err != nil || !tagged {
			return err == nil, err
		}
	}
	return false, nil
}

func releaseNote(r Release) string { return path.Join(releasesDir, r.Bundle, r.Name) }

func releaseGone(r Release) string { return path.Join(goneReleasesDir, r.Bundle, r.Name) }

// held returns the releases whose images were pushed and not removed since.
func (r collector) held(ctx context.Context) ([]Release, error) {
	bundles, err := r.list(ctx, releasesDir)
	if err != nil {
		return nil, err
	}
	var out []Release
	for _, bundle := range bundles {
		names, err := r.list(ctx, path.Join(releasesDir, bundle))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			text, err := r.content.GetContent(ctx, path.Join(releasesDir, bundle, name))
			if isGone(err) {
				continue
			}
			one := Release{}
			if err == nil {
				err = json.Unmarshal(text, &one)
			}
			if err != nil || one.Name != name || one.Bundle != bundle {
				return nil, director.Errorf(
					director.KindInternal, "registry.held",
					"the note of the images of release %s (%.12s) is damaged: %w", name, bundle, err,
				).WithHint("remove %s from the registry's content; the next plan of the release writes it again",
					path.Join(releasesDir, bundle, name))
			}
			out = append(out, one)
		}
	}
	return out, nil
}

// collectReleases removes the tags of images whose release has been gone for a while, and then what no image of a
// release needs. A push of a release holds it before it looks for tags, and the tags of what is held are written again
// after the removal, so a push at the same time lacks nothing. A collector that was killed between the two leaves the
// manifests, and the next one writes the tags.
func (r collector) collectReleases(ctx context.Context) error {
	needed, err := r.cfg.Releases(ctx)
	if err != nil {
		return err
	}
	if err := r.holdOlder(ctx, needed); err != nil {
		return err
	}
	before := r.now().Add(-goneFor)
	if err := r.untagReleases(ctx, needed, before); err != nil {
		return err
	}
	held, err := r.held(ctx)
	if err != nil {
		return err
	}
	gone, stay, err := r.judge(ctx, needed, held, before)
	if err != nil {
		return err
	}
	spared := map[digest.Digest]bool{}
	for image := range imagesOf(stay, needed.Releases) {
		spared[image.Digest] = true
		if err := r.tagImage(ctx, image); err != nil {
			return err
		}
	}
	for _, release := range gone {
		if err := r.forgetRelease(ctx, release); err != nil {
			return err
		}
	}
	return r.collectRepositories(ctx, "", spared)
}

// untagReleases removes the tags of the images that only releases have that are not needed since before.
func (r collector) untagReleases(ctx context.Context, needed Needed, before time.Time) error {
	held, err := r.held(ctx)
	if err != nil {
		return err
	}
	gone, stay, err := r.judge(ctx, needed, held, before)
	if err == nil {
		err = r.markReleases(ctx, needed, held)
	}
	if err != nil {
		return err
	}
	used := map[ReleaseImage]bool{}
	for image := range imagesOf(stay, needed.Releases) {
		used[image.place()] = true
	}
	for image := range imagesOf(gone) {
		if used[image.place()] {
			continue
		}
		if err := r.untagImage(ctx, image); err != nil {
			return err
		}
	}
	return nil
}

// imagesOf returns the images of all the releases.
func imagesOf(lists ...[]Release) iter.Seq[ReleaseImage] {
	return func(yield func(ReleaseImage) bool) {
		for _, list := range lists {
			for _, release := range list {
				for _, image := range release.Images {
					if !yield(image) {
						return
					}
				}
			}
		}
	}
}

// place is the image without what is there.
func (i ReleaseImage) place() ReleaseImage { return ReleaseImage{Repository: i.Repository, Tag: i.Tag} }

// holdOlder holds the needed releases that were pushed by a director that did not.
func (r collector) holdOlder(ctx context.Context, needed Needed) error {
	for _, release := range needed.Releases {
		if release.Name == "" {
			continue
		}
		_, there, err := r.exists(ctx, releaseNote(release))
		if err == nil && !there {
			err = r.Hold(ctx, release)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// judge tells the releases that are not needed since before from all others.
func (r collector) judge(
	ctx context.Context, needed Needed, held []Release, before time.Time,
) (gone, stay []Release, err error) {
	for _, release := range held {
		since, marked, err := r.exists(ctx, releaseGone(release))
		if err != nil {
			return nil, nil, err
		}
		if marked && !needed.needs(release) && !since.After(before) {
			gone = append(gone, release)
		} else {
			stay = append(stay, release)
		}
	}
	return gone, stay, nil
}

// markReleases notes since when a release is not needed, and that one is needed again.
func (r collector) markReleases(ctx context.Context, needed Needed, held []Release) error {
	for _, release := range held {
		mark := releaseGone(release)
		_, marked, err := r.exists(ctx, mark)
		switch is := needed.needs(release); {
		case err != nil:
		case marked && is:
			err = r.remove(ctx, mark)
		case !marked && !is:
			err = r.content.PutContent(ctx, mark, []byte("gone"))
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// untagImage removes the tag of an image, if it still leads to that image. The manifest counts as new from then on: it
// stays for long enough to get its tag again.
func (r collector) untagImage(ctx context.Context, image ReleaseImage) error {
	is, tagged, err := r.tag(ctx, image)
	if err != nil || !tagged || is != image.Digest {
		return err
	}
	manifest := linkPath(image.Repository, revisionsDir, image.Digest)
	_, there, err := r.exists(ctx, manifest)
	if err == nil && there {
		err = r.content.PutContent(ctx, manifest, []byte(image.Digest))
	}
	if err != nil {
		return err
	}
	return r.remove(ctx, repositoryDir(image.Repository, tagsDir, image.Tag))
}

// tagImage writes the tag of an image that is there without it.
func (r collector) tagImage(ctx context.Context, image ReleaseImage) error {
	_, tagged, err := r.tag(ctx, image)
	if err != nil || tagged {
		return err
	}
	_, there, err := r.exists(ctx, linkPath(image.Repository, revisionsDir, image.Digest))
	if err != nil || !there {
		return err
	}
	tag := repositoryDir(image.Repository, tagsDir, image.Tag)
	algorithm, hex := image.Digest.Algorithm().String(), image.Digest.Encoded()
	err = r.content.PutContent(ctx, path.Join(tag, "index", algorithm, hex, "link"), []byte(image.Digest))
	if err == nil {
		err = r.content.PutContent(ctx, path.Join(tag, "current", "link"), []byte(image.Digest))
	}
	return err
}

// tag returns what the tag of an image leads to.
func (r collector) tag(ctx context.Context, image ReleaseImage) (is digest.Digest, tagged bool, err error) {
	text, err := r.content.GetContent(ctx, repositoryDir(image.Repository, tagsDir, image.Tag, "current", "link"))
	if isGone(err) {
		return "", false, nil
	}
	return digest.Digest(text), err == nil, err
}

// forgetRelease removes the notes about a release whose images are gone.
func (r collector) forgetRelease(ctx context.Context, release Release) error {
	err := r.remove(ctx, releaseGone(release))
	if err == nil {
		err = r.remove(ctx, releaseNote(release))
	}
	if err == nil {
		r.cfg.Logger.InfoContext(
			ctx, "the images of a release that was deleted are removed", "release", release.Name,
			"bundle", release.Bundle,
		)
	}
	return err
}
