package libvirt

import (
	"context"
	"time"

	virt "libvirt.org/go/libvirt"

	"github.com/director-kaas/kaas/director"
)

// call runs act with a connection to h. It returns when act does or when the context ends; libvirt's own calls cannot
// be interrupted, so act may then go on for a while in the background. A connection that breaks is recreated once,
// since everything here may be done twice.
func call[T any](ctx context.Context, h *host, op string, act func(c *virt.Connect) (T, error)) (T, error) {
	type result struct {
		value T
		err   error
	}
	var zero T
	if err := interrupted(ctx, op); err != nil {
		return zero, err
	}
	done := make(chan result, 1)
	go func() {
		for try := 0; ; try++ {
			c, err := h.connect(ctx, op)
			if err != nil {
				done <- result{err: err}
				return
			}
			value, err := act(c)
			alive := true
			if err != nil {
				var lost error
				alive, lost = c.IsAlive()
				alive = alive && lost == nil
			}
			_, _ = c.Close()
			if err == nil || alive || try > 0 || ctx.Err() != nil {
				done <- result{value, h.translate(op, err)}
				return
			}
			h.log.WarnContext(ctx, "connection lost, connecting again", "err", err)
		}
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		return zero, interrupted(ctx, op)
	}
}

// soon is call for what a host that is well answers at once. A host that does not answer within its patience is
// unavailable, however long the caller would wait.
func soon[T any](
	ctx context.Context, h *host, op string, patience time.Duration, act func(c *virt.Connect) (T, error),
) (T, error) {
	ask, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	value, err := call(ask, h, op, act)
	if err != nil && ctx.Err() == nil && ask.Err() != nil {
		err = director.Errorf(director.KindUnavailable, op, "host %s does not answer within %s", h.Name, patience).
			WithHint(
				"look at the host and at the network; if it is lost: directorctl node repair CLUSTER --lost-host %s",
				h.Name,
			)
	}
	return value, err
}

// inPool is call with the host's storage pool opened.
func inPool[T any](ctx context.Context, h *host, op string, act func(p *pool) (T, error)) (T, error) {
	return call(ctx, h, op, func(c *virt.Connect) (T, error) {
		p, err := h.pool(op, c)
		if err != nil {
			var zero T
			return zero, err
		}
		defer p.close()
		return act(p)
	})
}

// none is the answer of an act that has only an error.
type none struct{}

// onEach runs act on one host after the other, and ends at the first error.
func (b *fleet) onEach(ctx context.Context, op string, act func(h *host, c *virt.Connect) error) error {
	for _, h := range b.hosts {
		if _, err := call(ctx, h, op, func(c *virt.Connect) (none, error) { return none{}, act(h, c) }); err != nil {
			return err
		}
	}
	return nil
}

// onEachPool is onEach with the hosts' storage pools opened.
func (b *fleet) onEachPool(ctx context.Context, op string, act func(p *pool) error) error {
	for _, h := range b.hosts {
		if _, err := inPool(ctx, h, op, func(p *pool) (none, error) { return none{}, act(p) }); err != nil {
			return err
		}
	}
	return nil
}

// locked runs act while it holds the key's lock. It returns as soon as the context ends: a libvirt call that hangs
// keeps the lock and not the caller. act gets a context that does not end.
func locked[T any](
	ctx context.Context, b *fleet, op, key string, act func(work context.Context) (T, error),
) (T, error) {
	release, err := b.locks.Lock(ctx, key)
	if err != nil {
		var zero T
		return zero, interrupted(ctx, op)
	}
	type result struct {
		value T
		err   error
	}
	done := make(chan result, 1)
	go func() {
		defer release()
		var r result
		if r.err = interrupted(ctx, op); r.err == nil {
			r.value, r.err = act(context.WithoutCancel(ctx))
		}
		done <- r
	}()
	select {
	case r := <-done:
		return r.value, r.err
	case <-ctx.Done():
		var zero T
		return zero, interrupted(ctx, op)
	}
}

// alone is locked for an act that has only an error.
func (b *fleet) alone(ctx context.Context, op, key string, act func(work context.Context) error) error {
	_, err := locked(ctx, b, op, key, func(work context.Context) (none, error) { return none{}, act(work) })
	return err
}

func interrupted(ctx context.Context, op string) error {
	if ctx.Err() == nil {
		return nil
	}
	return director.Errorf(director.KindUnavailable, op, "interrupted: %w", context.Cause(ctx))
}

// The keys of locks.
func imageKey(name string) string        { return "image " + name }
func machineKey(s director.Stamp) string { return "machine " + s.Director + "/" + s.Machine }
