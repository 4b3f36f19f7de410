package registry

import (
	"context"
	"errors"
	"iter"
	"path"
	"slices"
	"strings"
	"time"

	"github.com/distribution/distribution/v3"
	"github.com/distribution/reference"
	"github.com/opencontainers/go-digest"
)

// Where distribution keeps what, see registry/storage/paths.go there. A repository has a link to each of its blobs.
const (
	repositoriesDir = "/docker/registry/v2/repositories"
	blobsDir        = "/docker/registry/v2/blobs"
	layersDir       = "_layers"
	revisionsDir    = "_manifests/revisions"
	tagsDir         = "_manifests/tags"
)

// What the director itself notes about content lies next to it, and moves with it.
const (
	ownersDir = "/docker/director/projects" // whose the images below a project's name are: its uid
	goneDir   = "/docker/director/gone"     // since when there is no project of the name
	trashDir  = "/docker/director/trash"    // blobs that are about to be deleted

	releasesDir     = "/docker/director/releases"      // images of each release, by its bundle and its name
	goneReleasesDir = "/docker/director/gone-releases" // since when a release is not needed
)

func repositoryDir(repository string, parts ...string) string {
	return path.Join(append([]string{repositoriesDir, repository}, parts...)...)
}

func linkPath(repository, kind string, d digest.Digest) string {
	return repositoryDir(repository, kind, d.Algorithm().String(), d.Encoded(), "link")
}

func blobPath(d digest.Digest) string {
	return path.Join(blobsDir, d.Algorithm().String(), d.Encoded()[:2], d.Encoded(), "data")
}

func trashPath(d digest.Digest) string {
	return path.Join(trashDir, d.Algorithm().String(), d.Encoded())
}

// list returns the names in a directory in order; none if it is not there.
func (r *Registry) list(ctx context.Context, dir string) ([]string, error) {
	paths, err := r.content.List(ctx, dir)
	if isGone(err) {
		return nil, nil
	}
	for i := range paths {
		paths[i] = path.Base(paths[i])
	}
	slices.Sort(paths)
	return paths, err
}

// exists reports whether something is at the path, and since when.
func (r *Registry) exists(ctx context.Context, p string) (since time.Time, ok bool, err error) {
	info, err := r.content.Stat(ctx, p)
	if isGone(err) {
		return time.Time{}, false, nil
	}
	if err != nil {
		return time.Time{}, false, err
	}
	return info.ModTime(), true, nil
}

// remove deletes a path. No error if nothing is there.
func (r *Registry) remove(ctx context.Context, p string) error {
	if err := r.content.Delete(ctx, p); err != nil && !isGone(err) {
		return err
	}
	return nil
}

// repositories returns the names of all repositories below a name, or of all, in a fixed order.
func (r *Registry) repositories(ctx context.Context, below string) iter.Seq2[string, error] {
	return func(yield func(string, error) bool) { r.walk(ctx, below, yield) }
}

func (r *Registry) walk(ctx context.Context, name string, yield func(string, error) bool) bool {
	entries, err := r.list(ctx, repositoryDir(name))
	if err != nil {
		return yield("", err)
	}
	if slices.ContainsFunc(entries, func(e string) bool { return e == layersDir || e == "_manifests" }) &&
		!yield(name, nil) {
		return false
	}
	for _, e := range entries {
		if !strings.HasPrefix(e, "_") && !r.walk(ctx, path.Join(name, e), yield) {
			return false
		}
	}
	return true
}

// linked returns the blobs that a repository has links of the kind to.
func (r *Registry) linked(ctx context.Context, repository, kind string) ([]digest.Digest, error) {
	var out []digest.Digest
	dir := repositoryDir(repository, kind)
	algorithms, err := r.list(ctx, dir)
	if err != nil {
		return nil, err
	}
	for _, algorithm := range algorithms {
		names, err := r.list(ctx, path.Join(dir, algorithm))
		if err != nil {
			return nil, err
		}
		for _, name := range names {
			d := digest.NewDigestFromEncoded(digest.Algorithm(algorithm), name)
			if d.Validate() == nil {
				out = append(out, d)
			}
		}
	}
	return out, nil
}

// links returns the blobs that repositories below a name, or all of them, have links to.
func (r *Registry) links(ctx context.Context, below string) (map[digest.Digest]bool, error) {
	out := map[digest.Digest]bool{}
	for name, err := range r.repositories(ctx, below) {
		if err != nil {
			return nil, err
		}
		for _, kind := range []string{layersDir, revisionsDir} {
			found, err := r.linked(ctx, name, kind)
			if err != nil {
				return nil, err
			}
			for _, d := range found {
				out[d] = true
			}
		}
	}
	return out, nil
}

// tagged returns the manifests that tags of the repository name.
func (r *Registry) tagged(ctx context.Context, repository string) (map[digest.Digest]bool, error) {
	tags, err := r.list(ctx, repositoryDir(repository, tagsDir))
	if err != nil {
		return nil, err
	}
	out := map[digest.Digest]bool{}
	for _, tag := range tags {
		text, err := r.content.GetContent(ctx, repositoryDir(repository, tagsDir, tag, "current", "link"))
		if isGone(err) {
			continue // it was deleted, or is about to be there
		}
		if err != nil {
			return nil, err
		}
		out[digest.Digest(text)] = true
	}
	return out, nil
}

// references returns what the manifest of the repository names, and whether there is such a manifest. What a manifest
// says to be elsewhere is not among it.
func (r *Registry) references(
	ctx context.Context, repository string, d digest.Digest,
) (out []digest.Digest, ok bool, err error) {
	m, err := r.manifests(ctx, repository)
	if err != nil {
		return nil, false, err
	}
	manifest, err := m.Get(ctx, d)
	if _, unknown := errors.AsType[distribution.ErrManifestUnknownRevision](err); unknown {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, err
	}
	for _, one := range manifest.References() {
		if len(one.URLs) == 0 {
			out = append(out, one.Digest)
		}
	}
	return out, true, nil
}

func (r *Registry) manifests(ctx context.Context, repository string) (distribution.ManifestService, error) {
	named, err := reference.WithName(repository)
	if err != nil {
		return nil, err
	}
	repo, err := r.namespace.Repository(ctx, named)
	if err != nil {
		return nil, err
	}
	return repo.Manifests(ctx)
}

// belongs reports whether the images below the name of a project are of this incarnation of it.
func (r *Registry) belongs(ctx context.Context, project, uid string) (bool, error) {
	r.owned.Lock()
	known := r.owners[project]
	r.owned.Unlock()
	if known == uid {
		return true, nil
	}
	text, err := r.content.GetContent(ctx, path.Join(ownersDir, project))
	if isGone(err) {
		return true, nil // there are none
	}
	return string(text) == uid, err
}

// claim makes the images below the name of a project those of this incarnation. Those of a former one are removed.
func (r *Registry) claim(ctx context.Context, project, uid string) error {
	r.owned.Lock()
	defer r.owned.Unlock()
	if r.owners[project] == uid {
		return nil
	}
	owner := path.Join(ownersDir, project)
	text, err := r.content.GetContent(ctx, owner)
	if err != nil && !isGone(err) {
		return err
	}
	if err == nil && string(text) != uid {
		if err := r.drop(ctx, project); err != nil {
			return err
		}
	}
	if string(text) != uid {
		err = r.content.PutContent(ctx, owner, []byte(uid))
	}
	if err == nil {
		r.owners[project] = uid
	}
	return err
}

// drop removes all images below the name of a project.
func (r *Registry) drop(ctx context.Context, project string) error {
	delete(r.owners, project)
	r.quotas.forget(project)
	if err := r.remove(ctx, repositoryDir(ProjectsPrefix+project)); err != nil {
		return err
	}
	return r.remove(ctx, path.Join(ownersDir, project))
}
