package ansible

import "context"

// reservation is forks that were taken for a play before it is played.
type reservation struct {
	runner *Runner
	forks  int64
}

type reservationKey struct{}

// Reserve takes the forks that a play with the limit needs, and waits for them in the order of asking. waits is called if there are not enough. A Play with
// the returned context uses them; release gives them back. It is for callers whose time for the play must not run while it waits. Errors: those of ctx.
func (r *Runner) Reserve(ctx context.Context, limit []string, waits func()) (reserved context.Context, release func(), err error) {
	n := int64(r.want(Play{Limit: limit}))
	if err := r.acquire(ctx, n, waits); err != nil {
		return nil, nil, err
	}
	return context.WithValue(ctx, reservationKey{}, reservation{r, n}), func() { r.forks.Release(n) }, nil
}

// take takes the forks of a play, unless they are reserved already.
func (r *Runner) take(ctx context.Context, n int64, waits func()) (release func(), err error) {
	if have, ok := ctx.Value(reservationKey{}).(reservation); ok && have.runner == r && have.forks == n {
		return func() {}, nil
	}
	if err := r.acquire(ctx, n, waits); err != nil {
		return nil, err
	}
	return func() { r.forks.Release(n) }, nil
}

func (r *Runner) acquire(ctx context.Context, n int64, waits func()) error {
	if r.forks.TryAcquire(n) {
		return nil
	}
	waits()
	r.cfg.Observer.RunWaits()
	defer r.cfg.Observer.RunWaited()
	return r.forks.Acquire(ctx, n)
}
