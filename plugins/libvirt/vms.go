package libvirt

import (
	"cmp"
	"context"
	"slices"

	"github.com/google/uuid"
	virt "libvirt.org/go/libvirt"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// locate returns the VM and the host that has it, or a nil host. Errors: unavailable if it was found nowhere and a host
// did not answer.
func (b *fleet) locate(ctx context.Context, op, id string) (hypervisor.VM, *host, error) {
	var failed error
	for _, h := range b.hosts {
		vm, err := call(ctx, h, op, func(c *virt.Connect) (hypervisor.VM, error) {
			d, err := findDomain(c, id)
			if d == nil || err != nil {
				return hypervisor.VM{}, err
			}
			defer func() { _ = d.Free() }()
			return d.vm(h), nil
		})
		if vm.ID != "" {
			return vm, h, nil
		}
		failed = cmp.Or(failed, err)
	}
	return hypervisor.VM{}, nil, failed
}

// Get implements hypervisor.Backend.
func (b *Backend) Get(ctx context.Context, id hypervisor.ID) (hypervisor.VM, error) {
	const op = "libvirt.get"
	vm, _, err := b.get(ctx, op, id)
	return vm, err
}

func (b *fleet) get(ctx context.Context, op string, id hypervisor.ID) (hypervisor.VM, *host, error) {
	if uuid.Validate(string(id)) != nil {
		return hypervisor.VM{}, nil, notThere(op, id)
	}
	vm, h, err := b.locate(ctx, op, string(id))
	if h == nil && err == nil {
		err = notThere(op, id)
	}
	return vm, h, err
}

func notThere(op string, id hypervisor.ID) error {
	return director.Errorf(director.KindNotFound, op, "there is no VM with the id %s", id)
}

// ofDomains returns what of tells of the domains of all hosts, which must answer. A domain that goes away meanwhile is
// left out.
func ofDomains[T any](
	ctx context.Context, b *fleet, op string, flags virt.ConnectListAllDomainsFlags, of func(*host, *domain) []T,
) ([]T, error) {
	var all []T
	for _, h := range b.hosts {
		rows, err := soon(ctx, h, op, b.patience.list, func(c *virt.Connect) ([]T, error) {
			domains, err := c.ListAllDomains(flags)
			if err != nil {
				return nil, err
			}
			var rows []T
			for i := range domains {
				d, err := inspect(&domains[i])
				if err != nil {
					return nil, err
				}
				if d == nil {
					continue
				}
				rows = append(rows, of(h, d)...)
				_ = d.Free()
			}
			return rows, nil
		})
		if err != nil {
			return nil, err
		}
		all = append(all, rows...)
	}
	return all, nil
}

// List implements hypervisor.Backend. All hosts must answer.
func (b *fleet) List(ctx context.Context, f hypervisor.Filter) ([]hypervisor.VM, error) {
	const op = "libvirt.list"
	if f.Director == "" && !f.Strangers {
		return nil, director.Invalid(op, "the filter is wrong", []director.Field{{Path: "director", Msg: "is empty"}})
	}
	all, err := ofDomains(ctx, b, op, 0, func(h *host, d *domain) []hypervisor.VM {
		if !f.Match(d.mark.stamp()) {
			return nil
		}
		return []hypervisor.VM{d.vm(h)}
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(x, y hypervisor.VM) int {
		return cmp.Or(cmp.Compare(x.Name, y.Name), cmp.Compare(x.ID, y.ID))
	})
	return all, nil
}

// withDomain runs act with the domain. Errors: not_found if there is none.
func withDomain[T any](op string, c *virt.Connect, id hypervisor.ID, act func(d *domain) (T, error)) (T, error) {
	var zero T
	d, err := findDomain(c, string(id))
	if err != nil {
		return zero, err
	}
	if d == nil {
		return zero, notThere(op, id)
	}
	defer func() { _ = d.Free() }()
	return act(d)
}

// onDomain is call with a domain of the host.
func onDomain[T any](
	ctx context.Context, h *host, op string, id hypervisor.ID, act func(d *domain) (T, error),
) (T, error) {
	return call(ctx, h, op, func(c *virt.Connect) (T, error) { return withDomain(op, c, id, act) })
}

// SetPower implements hypervisor.Backend. Off is immediate; Delete has the patient way.
func (b *Backend) SetPower(ctx context.Context, id hypervisor.ID, p hypervisor.Power) error {
	const op = "libvirt.set_power"
	if p != hypervisor.PowerOn && p != hypervisor.PowerOff {
		return director.Errorf(director.KindInvalid, op, "%q is not a power state", p)
	}
	_, h, err := b.get(ctx, op, id)
	if err != nil {
		return err
	}
	_, err = onDomain(ctx, h, op, id, func(d *domain) (none, error) {
		return none{}, d.power(p == hypervisor.PowerOn)
	})
	return err
}

// ConsoleTail implements hypervisor.Console. It is empty for a VM that has printed nothing yet.
func (b *Backend) ConsoleTail(ctx context.Context, id hypervisor.ID, maxBytes int) ([]byte, error) {
	const op = "libvirt.console_tail"
	vm, h, err := b.get(ctx, op, id)
	if err != nil {
		return nil, err
	}
	if vm.Stamp == (director.Stamp{}) {
		return nil, director.Errorf(
			director.KindNotFound, op, "the VM %s is not the director's; its console is not kept", vm.Name,
		)
	}
	return inPool(ctx, h, op, func(p *pool) ([]byte, error) {
		v, err := p.find(consoleName(vm.Stamp))
		if v == nil || err != nil {
			return nil, err
		}
		defer func() { _ = v.Free() }()
		return tail(p.conn, v, maxBytes)
	})
}
