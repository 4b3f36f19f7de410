package ansible

import (
	"context"
	"strings"
)

// reservation is forks that were taken for a play before it is played.
type reservation struct {
	runner *Runner
	forks  int64
}

type reservationKey struct{}

// Reserve takes the forks that a play with the limit needs, and waits for them. plan is whose they are: of the plans
// that wait the one that holds the fewest is next, so none keeps another one waiting. waits is called if there are not
// enough. A Play with the returned context uses them; release gives them back. It is for callers whose time for the
// play must not run while it waits. Errors: those of ctx.
func (r *Runner) Reserve(
	ctx context.Context, plan string, limit []string, waits func(),
) (reserved context.Context, release func(), err error) {
	n := int64(r.want(Play{Limit: limit}))
	if err := r.acquire(ctx, plan, n, waits); err != nil {
		return nil, nil, err
	}
	return context.WithValue(ctx, reservationKey{}, reservation{r, n}), func() { r.forks.release(plan, n) }, nil
}

// take takes the forks of a play, unless they are reserved already.
func (r *Runner) take(ctx context.Context, id string, n int64, waits func()) (release func(), err error) {
	if have, ok := ctx.Value(reservationKey{}).(reservation); ok && have.runner == r && have.forks == n {
		return func() {}, nil
	}
	plan, _, _ := strings.Cut(id, "/")
	if err := r.acquire(ctx, plan, n, waits); err != nil {
		return nil, err
	}
	return func() { r.forks.release(plan, n) }, nil
}

func (r *Runner) acquire(ctx context.Context, plan string, n int64, waits func()) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if r.forks.tryAcquire(plan, n) {
		return nil
	}
	waits()
	r.cfg.Observer.RunWaits()
	defer r.cfg.Observer.RunWaited()
	return r.forks.acquire(ctx, plan, n)
}
