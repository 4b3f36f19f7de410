package libvirt

import (
	"context"
	"slices"
	"sync"
	"time"

	virt "libvirt.org/go/libvirt"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// hostPatience is how long HostStates waits for a host.
const hostPatience = 8 * time.Second

// HostStates implements hypervisor.Hosts. A host answers if its libvirt does.
func (b *Backend) HostStates(ctx context.Context) ([]hypervisor.HostState, error) {
	const op = "libvirt.host_states"
	all := make([]hypervisor.HostState, len(b.all))
	var wg sync.WaitGroup
	for i, h := range b.all {
		wg.Go(func() {
			ask, cancel := context.WithTimeout(ctx, hostPatience)
			defer cancel()
			_, err := call(ask, h, op, func(c *virt.Connect) (*virt.NodeInfo, error) { return c.GetNodeInfo() })
			if err != nil && ctx.Err() == nil && ask.Err() != nil {
				err = director.Errorf(
					director.KindUnavailable, op, "host %s does not answer within %s", h.Name, hostPatience,
				)
			}
			all[i] = hypervisor.HostState{Host: h.Name, Err: err}
		})
	}
	wg.Wait()
	return all, interrupted(ctx, op)
}

// Without implements hypervisor.Hosts.
func (b *Backend) Without(hosts ...string) hypervisor.Backend {
	x := *b
	x.view = true
	x.hosts = slices.DeleteFunc(slices.Clone(b.all), func(h *host) bool { return slices.Contains(hosts, h.Name) })
	return &x
}

// Fence implements hypervisor.Hosts.
func (b *Backend) Fence(ctx context.Context, id hypervisor.ID, owner director.Stamp) error {
	const op = "libvirt.fence"
	return b.alone(ctx, op, machineKey(owner), func(work context.Context) error {
		_, h, err := b.get(work, op, id)
		if err != nil {
			return err
		}
		_, err = onDomain(work, h, op, id, func(d *domain) (none, error) {
			if d.mark.stamp() != owner || owner == (director.Stamp{}) {
				return none{}, director.Errorf(
					director.KindConflict, op, "the VM %s on host %s has another owner", d.name, h.Name,
				).
					WithHint("it is left as it is")
			}
			// Before it is off: a host that restarts in between must not start it.
			if err := d.SetAutostart(false); err != nil && !is(err, virt.ERR_NO_SUPPORT) {
				return none{}, err
			}
			return none{}, d.power(false)
		})
		return err
	})
}
