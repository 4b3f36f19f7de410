package schedule

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/director-kaas/kaas/director"
)

// Images deletes images that nothing needs.
type Images interface {
	// Prune deletes from providers the images that no document, no VM and no unfinished plan names, and from the
	// director the files of which the same is true and that were imported before the time. It returns what was deleted,
	// and what could not be deleted with the reason.
	Prune(ctx context.Context, actor string, before time.Time, dryRun bool) ([]director.ImageLeft, error)
}

// ImagesJob deletes the images that nothing needs, as directorctl image prune does.
func ImagesJob(images Images, now func() time.Time) Job {
	about := "Deletes images from the providers that no document, no VM and no unfinished plan names, and such " +
		"files from the director, as directorctl image prune does."
	return Job{Name: "images", About: about, Repeatable: true, Prepare: func(p *Params) Work {
		age := p.Span("olderThan", 7*day, day)
		return func(ctx context.Context, run director.ScheduleRun) (Result, error) {
			left, err := images.Prune(ctx, actorOf(run), now().Add(-age), false)
			var brought, files int
			var bytes int64
			errs := []error{err}
			for _, i := range left {
				switch {
				case i.Kept != "":
					errs = append(errs, director.Errorf(
						director.KindUnavailable, "schedule.images", "image %s stays on provider %s: %s", i.Name,
						i.Provider, i.Kept,
					).
						WithHint("directorctl image prune --dry-run tells what is left"))
				case i.Provider != "":
					brought++
				default:
					files, bytes = files+1, bytes+i.Size
				}
			}
			return Result{
				Message: fmt.Sprintf(
					"removed %s of providers and %s (%s)", count(brought, "image"), count(files, "file"),
					megabytes(bytes),
				),
			}, errors.Join(errs...)
		}
	}}
}
