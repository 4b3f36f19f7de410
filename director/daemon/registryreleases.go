package daemon

import (
	"context"

	"github.com/opencontainers/go-digest"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/bundle"
	"github.com/director-kaas/kaas/director/registry"
	"github.com/director-kaas/kaas/director/releases"
	"github.com/director-kaas/kaas/director/steps"
)

// registryReleases says whose images stay in the registry, which starts before what knows that.
type registryReleases struct {
	registry *registry.Registry
	held     func() bool // the director works on nothing
	ready    chan struct{}
	service  *releases.Service
}

func newRegistryReleases(held func() bool) *registryReleases {
	return &registryReleases{held: held, ready: make(chan struct{})}
}

// open names what knows the releases. It is called once.
func (r *registryReleases) open(s *releases.Service) {
	r.service = s
	close(r.ready)
}

// needed returns the releases whose images stay. It waits until they are known. Errors: unavailable while the director
// is held: another one may have releases of which this one does not know.
func (r *registryReleases) needed(ctx context.Context) (registry.Needed, error) {
	select {
	case <-ctx.Done():
		return registry.Needed{}, ctx.Err()
	case <-r.ready:
	}
	if r.held() {
		return registry.Needed{}, director.Errorf(
			director.KindUnavailable, "registry.needed", "the director is held, so it removes no images of releases",
		)
	}
	n, err := r.service.Needed(ctx)
	out := registry.Needed{Names: n.Names, Bundles: n.Digests}
	for _, b := range n.Bundles {
		out.Releases = append(out.Releases, releaseOf(b.Name, b.Bundle))
	}
	return out, err
}

// hold notes whose images are about to be pushed.
func (r *registryReleases) hold(ctx context.Context, name string, b *bundle.Bundle) error {
	return r.registry.Hold(ctx, releaseOf(name, b))
}

func releaseOf(name string, b *bundle.Bundle) registry.Release {
	out := registry.Release{Name: name, Bundle: b.Digest()}
	for _, i := range b.Images() {
		out.Images = append(out.Images, registry.ReleaseImage{
			Repository: steps.RegistryPrefix + "/" + i.Name, Tag: i.Tag, Digest: digest.Digest(i.Digest.String()),
		})
	}
	return out
}
