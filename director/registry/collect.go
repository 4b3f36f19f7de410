package registry

import (
	"context"
	"errors"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/distribution/distribution/v3/registry/storage"
	"github.com/opencontainers/go-digest"

	"github.com/director-kaas/kaas/director"
)

const (
	unneededFor = 24 * time.Hour     // how old something is that is removed because nothing needs it
	goneFor     = 7 * 24 * time.Hour // how long images stay after their project or their release was deleted
)

// collector removes what nothing needs from the content of a registry.
type collector struct{ *Registry }

// collect removes the images of projects and releases that are gone, what no image that stays needs, and blobs without
// a repository. It may run on several directors at once, while anyone pushes: whatever it removes it looks at once more
// afterwards, and puts it back if it is needed by then. A push in turn looks at all that it needs after it is written
// (see sure), so that one of the two always notices.
func (r collector) collect(ctx context.Context) error {
	var errs []error
	if r.cfg.People != nil {
		errs = append(errs, r.collectProjects(ctx))
	}
	if r.cfg.Releases != nil {
		errs = append(errs, r.collectReleases(ctx))
	}
	return errors.Join(append(errs, r.sweep(ctx))...)
}

// collectProjects removes the images of projects that are gone, and what no image of a project needs.
func (r collector) collectProjects(ctx context.Context) error {
	projects, err := r.cfg.People.Projects(ctx)
	if err != nil {
		return err
	}
	names, err := r.list(ctx, repositoryDir("projects"))
	if err != nil {
		return err
	}
	var errs []error
	for _, name := range names {
		if _, there := projects[name]; there {
			errs = append(
				errs, r.remove(ctx, path.Join(goneDir, name)), r.collectRepositories(ctx, ProjectsPrefix+name, nil),
			)
		} else {
			errs = append(errs, r.collectGone(ctx, name))
		}
		r.quotas.forget(name)
	}
	return errors.Join(errs...)
}

// collectGone removes the images of a project that has been gone for a while.
func (r collector) collectGone(ctx context.Context, project string) error {
	note := path.Join(goneDir, project)
	since, noted, err := r.exists(ctx, note)
	switch {
	case err != nil:
		return err
	case !noted:
		return r.content.PutContent(ctx, note, []byte("gone"))
	case r.now().Sub(since) < goneFor:
		return nil
	}
	r.owned.Lock()
	defer r.owned.Unlock()
	if err := r.drop(ctx, project); err != nil {
		return err
	}
	r.cfg.Logger.InfoContext(ctx, "the images of a project that was deleted are removed", "project", project)
	return r.remove(ctx, note)
}

// collectRepositories removes what nothing needs in the repositories below a name, or with none in those that are not
// of projects. Manifests that are spared stay without a tag.
func (r collector) collectRepositories(ctx context.Context, below string, spared map[digest.Digest]bool) error {
	before := r.now().Add(-unneededFor)
	var errs []error
	for name, err := range r.repositories(ctx, below) {
		if err != nil {
			return err
		}
		if below == "" && strings.HasPrefix(name, ProjectsPrefix) {
			continue
		}
		err = r.untag(ctx, name, spared, before)
		if err == nil {
			var layers []digest.Digest
			if layers, err = r.linked(ctx, name, layersDir); err == nil {
				err = r.unlink(ctx, name, layers, before)
			}
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// needed returns what the manifests of the repository name, and the manifests that a tag leads to.
func (r collector) needed(ctx context.Context, repository string) (named, led map[digest.Digest]bool, err error) {
	revisions, err := r.linked(ctx, repository, revisionsDir)
	if err != nil {
		return nil, nil, err
	}
	tagged, err := r.tagged(ctx, repository)
	if err != nil {
		return nil, nil, err
	}
	named, led = map[digest.Digest]bool{}, map[digest.Digest]bool{}
	names := map[digest.Digest][]digest.Digest{}
	for _, d := range revisions {
		var readable bool
		if names[d], readable, err = r.references(ctx, repository, d); err != nil {
			return nil, nil, err
		}
		if !readable {
			if err := r.missing(ctx, repository, d); err != nil {
				return nil, nil, err
			}
		}
		for _, one := range names[d] {
			named[one] = true
		}
	}
	var follow func(d digest.Digest)
	follow = func(d digest.Digest) {
		if !led[d] {
			led[d] = true
			for _, one := range names[d] {
				follow(one)
			}
		}
	}
	for d := range tagged {
		follow(d)
	}
	return named, led, nil
}

// missing returns nil if the repository has no manifest of the digest. Nothing is removed next to one that it has and
// that cannot be read: what that names is not known.
func (r collector) missing(ctx context.Context, repository string, d digest.Digest) error {
	_, there, err := r.exists(ctx, linkPath(repository, revisionsDir, d))
	if err == nil && there {
		err = director.Errorf(
			director.KindInternal, "registry.collect", "the manifest %s of %s cannot be read", d, repository,
		).WithHint("push the image again, or delete it")
	}
	return err
}

// untag removes manifests from before then that no tag leads to, and that are not spared.
func (r collector) untag(
	ctx context.Context, repository string, spared map[digest.Digest]bool, before time.Time,
) error {
	_, led, err := r.needed(ctx, repository)
	if err != nil {
		return err
	}
	tags, err := r.list(ctx, repositoryDir(repository, tagsDir))
	if err != nil {
		return err
	}
	revisions, err := r.linked(ctx, repository, revisionsDir)
	if err != nil {
		return err
	}
	var removed []digest.Digest
	vacuum := storage.NewVacuum(ctx, r.content)
	for _, d := range revisions {
		since, there, err := r.exists(ctx, linkPath(repository, revisionsDir, d))
		if err != nil {
			return err
		}
		if led[d] || spared[d] || !there || since.After(before) {
			continue
		}
		if err := vacuum.RemoveManifest(repository, d, tags); err != nil && !isGone(err) {
			return err
		}
		removed = append(removed, d)
	}
	if len(removed) == 0 {
		return nil
	}
	tagged, err := r.tagged(ctx, repository)
	if err != nil {
		return err
	}
	return r.putBack(ctx, repository, revisionsDir, slices.DeleteFunc(removed, func(d digest.Digest) bool {
		return !tagged[d]
	}))
}

// unlink removes those of the layers from before then that no manifest of the repository names.
func (r collector) unlink(ctx context.Context, repository string, layers []digest.Digest, before time.Time) error {
	named, _, err := r.needed(ctx, repository)
	if err != nil {
		return err
	}
	var removed []digest.Digest
	for _, d := range layers {
		link := linkPath(repository, layersDir, d)
		since, there, err := r.exists(ctx, link)
		if err != nil {
			return err
		}
		if named[d] || !there || since.After(before) {
			continue
		}
		if err := r.remove(ctx, path.Dir(link)); err != nil {
			return err
		}
		removed = append(removed, d)
	}
	if len(removed) == 0 {
		return nil
	}
	if named, _, err = r.needed(ctx, repository); err != nil {
		return err
	}
	return r.putBack(ctx, repository, layersDir, slices.DeleteFunc(removed, func(d digest.Digest) bool {
		return !named[d]
	}))
}

func (r collector) putBack(ctx context.Context, repository, kind string, links []digest.Digest) error {
	var errs []error
	for _, d := range links {
		errs = append(errs, r.content.PutContent(ctx, linkPath(repository, kind, d), []byte(d.String())))
	}
	return errors.Join(errs...)
}

// sweep removes blobs that no repository has. They are moved away first, and back if one has them by then; what an
// earlier sweep left there is decided in the same way.
func (r collector) sweep(ctx context.Context) error {
	links, err := r.links(ctx, "")
	if err != nil {
		return err
	}
	before := r.now().Add(-unneededFor)
	for d, err := range r.blobs(ctx) {
		if err != nil {
			return err
		}
		since, there, err := r.exists(ctx, blobPath(d))
		if err != nil {
			return err
		}
		if links[d] || !there || since.After(before) {
			continue
		}
		if err := r.content.Move(ctx, blobPath(d), trashPath(d)); err != nil && !isGone(err) {
			return err
		}
	}
	return r.emptyTrash(ctx)
}

func (r collector) emptyTrash(ctx context.Context) error {
	algorithms, err := r.list(ctx, trashDir)
	if err != nil || len(algorithms) == 0 {
		return err
	}
	var trash []digest.Digest
	for _, algorithm := range algorithms {
		names, err := r.list(ctx, path.Join(trashDir, algorithm))
		if err != nil {
			return err
		}
		for _, name := range names {
			trash = append(trash, digest.NewDigestFromEncoded(digest.Algorithm(algorithm), name))
		}
	}
	if len(trash) == 0 {
		return nil
	}
	links, err := r.links(ctx, "")
	if err != nil {
		return err
	}
	var errs []error
	removed := 0
	for _, d := range trash {
		_, again, err := r.exists(ctx, blobPath(d))
		switch {
		case err != nil:
		case links[d] && !again:
			if err = r.content.Move(ctx, trashPath(d), blobPath(d)); isGone(err) {
				err = nil // another director has done it
			}
		default:
			err = r.remove(ctx, trashPath(d))
			removed++
		}
		errs = append(errs, err)
	}
	if removed > 0 {
		r.cfg.Logger.InfoContext(ctx, "blobs that no image needs are removed from the registry", "blobs", removed)
	}
	return errors.Join(errs...)
}

// blobs returns all blobs.
func (r collector) blobs(ctx context.Context) func(yield func(digest.Digest, error) bool) {
	return func(yield func(digest.Digest, error) bool) {
		algorithms, err := r.list(ctx, blobsDir)
		if err != nil {
			yield("", err)
			return
		}
		for _, algorithm := range algorithms {
			parts, err := r.list(ctx, path.Join(blobsDir, algorithm))
			if err != nil && !yield("", err) {
				return
			}
			for _, part := range parts {
				names, err := r.list(ctx, path.Join(blobsDir, algorithm, part))
				if err != nil && !yield("", err) {
					return
				}
				for _, name := range names {
					d := digest.NewDigestFromEncoded(digest.Algorithm(algorithm), name)
					if d.Validate() == nil && !yield(d, nil) {
						return
					}
				}
			}
		}
	}
}
