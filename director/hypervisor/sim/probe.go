package sim

import (
	"context"
	"fmt"

	"github.com/director-kaas/kaas/director/hypervisor"
)

var _ hypervisor.Prober = (*Backend)(nil)

// Probe implements hypervisor.Prober.
func (b *Backend) Probe(ctx context.Context) ([]hypervisor.Probe, error) {
	var out []hypervisor.Probe
	err := b.do(ctx, VerbCapacity, nil, func(op string, _ When) error {
		for _, name := range b.w.hostNames() {
			h := b.w.hosts[name]
			p := hypervisor.Probe{Host: name, What: "connection"}
			if h.down {
				p.Err = unreachable(op, name)
			} else {
				memory, space := b.w.free(h)
				p.Found = fmt.Sprintf("pretended, %d MiB of memory and %d MiB of disk free", memory>>20, space>>20)
			}
			out = append(out, p)
		}
		return nil
	})
	if err != nil && ctx.Err() == nil {
		return []hypervisor.Probe{{What: "connection", Err: err}}, nil
	}
	return out, err
}
