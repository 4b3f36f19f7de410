package libvirt

import (
	"context"
	"time"

	virt "libvirt.org/go/libvirt"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// Delete implements hypervisor.Backend. The domain goes last, so that a half-done Delete is still listed.
func (b *domains) Delete(ctx context.Context, id hypervisor.ID, o hypervisor.DeleteOptions) error {
	const op = "libvirt.delete"
	return b.alone(ctx, op, machineKey(
		o.Owner,
	), func(work context.Context) error { return b.delete(ctx, work, op, id, o) })
}

// delete is Delete under the machine's lock. It waits for the guest as long as ctx does; what it has begun besides, it
// ends.
func (b *domains) delete(ctx, work context.Context, op string, id hypervisor.ID, o hypervisor.DeleteOptions) error {
	vm, h, err := b.get(work, op, id)
	if err != nil && director.KindOf(err) != director.KindNotFound {
		return err
	}
	if err != nil { // gone; so are its volumes, unless the domain was removed by hand
		if string(id) != domainUUID(o.Owner) {
			return nil
		}
		return b.onEachPool(work, op, func(p *pool) error {
			own, err := p.dataDisks(func(s director.Stamp, _ string) bool { return s == o.Owner })
			if err != nil {
				return err
			}
			var names []string
			for _, d := range own {
				names = append(names, d.Name)
			}
			if err := p.labelAll(names, o); err != nil {
				return err
			}
			return p.removeMachine(id, o)
		})
	}
	if vm.Stamp != o.Owner || o.Owner == (director.Stamp{}) {
		return director.Errorf(
			director.KindConflict, op, "the VM %s on host %s has another owner (%s/%s)", vm.Name, h.Name,
			vm.Stamp.Director, vm.Stamp.Machine,
		).
			WithHint("it is left as it is; remove it by hand if it is yours")
	}
	if err := b.shutdown(ctx, op, h, id, o.Grace); err != nil {
		return err
	}
	_, err = call(work, h, op, func(c *virt.Connect) (none, error) { return none{}, b.deleteDomain(op, h, c, id, o) })
	return err
}

// shutdown asks the guest to power off and waits for it, at most for grace. No error if it does not comply.
func (b *domains) shutdown(ctx context.Context, op string, h *host, id hypervisor.ID, grace time.Duration) error {
	active := func(ask bool) (bool, error) {
		return call(ctx, h, op, func(c *virt.Connect) (bool, error) {
			d, err := findDomain(c, string(id))
			if d == nil || err != nil {
				return false, err
			}
			defer func() { _ = d.Free() }()
			if ask && d.active {
				if err := d.Shutdown(); err != nil {
					h.log.InfoContext(ctx, "guest takes no request to shut down", "vm", d.name, "err", err)
					return false, nil
				}
			}
			return d.active, nil
		})
	}
	if grace <= 0 {
		return nil
	}
	deadline := time.NewTimer(grace)
	defer deadline.Stop()
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for ask := true; ; ask = false {
		if on, err := active(ask); !on || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-deadline.C:
			return nil
		case <-ctx.Done():
			return interrupted(ctx, op)
		}
	}
}

// deleteDomain deletes the domain with all that goes with it. Each line may be the last one, and the next call
// continues from there.
func (b *domains) deleteDomain(
	op string, h *host, c *virt.Connect, id hypervisor.ID, o hypervisor.DeleteOptions,
) error {
	d, err := findDomain(c, string(id))
	if d == nil || err != nil {
		return err
	}
	defer func() { _ = d.Free() }()
	if d.mark.stamp() != o.Owner {
		return director.Errorf(director.KindConflict, op, "the VM %s has another owner now", d.name)
	}
	if err := d.power(false); err != nil {
		return err
	}
	if d.mark.Made != "" { // from here on it is half a machine
		if err := setMade(d.Domain, o.Owner, ""); err != nil {
			return err
		}
	}
	if err := b.at("unmade"); err != nil {
		return err
	}
	p, err := h.pool(op, c)
	if err != nil {
		return err
	}
	defer p.close()
	attached, err := p.attached(d)
	if err != nil {
		return err
	}
	var names []string
	for _, a := range attached {
		if a.Stamp.Director == o.Owner.Director {
			names = append(names, a.Name)
		}
	}
	if err := p.labelAll(names, o); err != nil {
		return err
	}
	if err := b.at("labelled"); err != nil {
		return err
	}
	if err := p.removeMachine(id, o); err != nil {
		return err
	}
	if err := b.at("removed"); err != nil {
		return err
	}
	return undefine(d.Domain)
}

func undefine(dom *virt.Domain) error {
	err := dom.UndefineFlags(virt.DOMAIN_UNDEFINE_MANAGED_SAVE | virt.DOMAIN_UNDEFINE_SNAPSHOTS_METADATA |
		virt.DOMAIN_UNDEFINE_CHECKPOINTS_METADATA | virt.DOMAIN_UNDEFINE_NVRAM)
	if is(err, virt.ERR_INVALID_ARG, virt.ERR_NO_SUPPORT) { // a driver without NVRAM or checkpoints
		err = dom.Undefine()
	}
	if is(err, virt.ERR_NO_DOMAIN) {
		return nil
	}
	return err
}
