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

// patience is how long a host may take to answer.
type patience struct {
	state time.Duration // a question about the host itself
	list  time.Duration // one about all of its VMs or pools, of which a busy host may have many

	discover time.Duration // one of a person who waits for the answer
}

var usualPatience = patience{state: 8 * time.Second, list: 30 * time.Second, discover: 15 * time.Second}

// HostStates implements hypervisor.Hosts. A host answers if its libvirt does.
func (b *Backend) HostStates(ctx context.Context) ([]hypervisor.HostState, error) {
	const op = "libvirt.host_states"
	all := make([]hypervisor.HostState, len(b.all))
	var wg sync.WaitGroup
	for i, h := range b.all {
		wg.Go(func() {
			_, err := soon(ctx, h, op, b.patience.state, func(c *virt.Connect) (*virt.NodeInfo, error) {
				return c.GetNodeInfo()
			})
			all[i] = hypervisor.HostState{Host: h.Name, Err: err}
		})
	}
	wg.Wait()
	return all, interrupted(ctx, op)
}

// Without implements hypervisor.Hosts.
func (b *Backend) Without(hosts ...string) hypervisor.Backend {
	f := *b.fleet
	f.view = true
	f.hosts = slices.DeleteFunc(slices.Clone(b.all), func(h *host) bool { return slices.Contains(hosts, h.Name) })
	return newBackend(&f)
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
