package daemon

import (
	"context"
	"errors"
	"log/slog"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/bundle"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/registry"
	"github.com/director-kaas/kaas/director/releases"
)

// pushRelease is steps.Env.PushRelease.
type pushRelease func(ctx context.Context, name string, b *bundle.Bundle, unsigned string) error

// fillEvery is how often the director looks whether its registry lacks images of releases that clusters run. Plans push
// what they need; a director that was restored, or that lost its registry, has none of it.
const fillEvery = time.Minute

// registryFill pushes the images of the releases that clusters run into a registry that lacks them.
type registryFill struct {
	registry *registry.Registry
	releases *releases.Service
	push     pushRelease
	log      *slog.Logger

	full map[string]model.Release // by the name of its document: what the registry had when it was looked at
}

// fill returns what fills the registry, once it is open.
func (r *registryReleases) fill(push pushRelease, log *slog.Logger) *registryFill {
	return &registryFill{
		registry: r.registry, releases: r.service, push: push, log: log, full: map[string]model.Release{},
	}
}

// pass looks at each release that was not seen whole since the director started. One whose bundle is not there is left
// for later: an administrator may bring it. It is not safe for concurrent use.
func (f *registryFill) pass(ctx context.Context) error {
	running, err := f.releases.Running(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for _, r := range running {
		if f.full[r.Name] != r.Release {
			errs = append(errs, f.fill(ctx, r))
		}
	}
	return errors.Join(errs...)
}

func (f *registryFill) fill(ctx context.Context, r releases.Running) error {
	b, err := f.releases.Open(r.Release)
	if director.KindOf(err) == director.KindNotFound {
		return nil
	} else if err != nil {
		return err
	}
	lacks, err := registry.Lacks(ctx, f.registry, releaseOf(r.Name, b))
	if err != nil {
		return err
	}
	if lacks {
		if err := f.push(ctx, r.Name, b, r.Release.Unsigned); err != nil {
			return err
		}
		f.log.InfoContext(
			ctx, "the registry has the images of a release again", "release", r.Name, "bundle", b.Digest(),
		)
	}
	f.full[r.Name] = r.Release
	return nil
}
