package libvirt

import (
	"context"
	"fmt"

	virt "libvirt.org/go/libvirt"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

var _ hypervisor.Prober = (*Backend)(nil)

// Probe implements hypervisor.Prober: of each host the connection, what it can run, the storage pool, and whether VMs
// can be listed.
func (b *Backend) Probe(ctx context.Context) ([]hypervisor.Probe, error) {
	const op = "libvirt.probe"
	var out []hypervisor.Probe
	for _, h := range b.hosts {
		look := func(what string, fn func(c *virt.Connect) (string, error)) bool {
			p := hypervisor.Probe{Host: h.Name, What: what}
			p.Found, p.Err = call(ctx, h, op, fn)
			out = append(out, p)
			return p.Err == nil
		}
		connected := look("connection", func(c *virt.Connect) (string, error) {
			version, err := c.GetLibVersion()
			if err != nil {
				return "", err
			}
			return "libvirt " + dotted(version) + " at " + h.URI, nil
		})
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if !connected {
			continue // all else would say the same
		}
		look("virtualisation", func(c *virt.Connect) (string, error) { return b.probeKind(op, h, c) })
		if b.choosy() {
			look("machine", func(c *virt.Connect) (string, error) {
				kind, err := b.domainType(op, h, c)
				if err == nil {
					err = b.able(op, h, c, kind)
				}
				return b.machine(kind), err
			})
		}
		look("storage pool "+h.pools(), func(c *virt.Connect) (string, error) { return probePools(op, h, c) })
		look("VMs", func(c *virt.Connect) (string, error) {
			domains, err := c.ListAllDomains(0)
			for i := range domains {
				_ = domains[i].Free()
			}
			return fmt.Sprintf("%d can be seen", len(domains)), err
		})
	}
	return out, nil
}

// probeKind says how the host runs VMs, and with what.
func (b *Backend) probeKind(op string, h *host, c *virt.Connect) (string, error) {
	kind, err := b.domainType(op, h, c)
	if err != nil {
		return "", err
	}
	info, err := c.GetNodeInfo()
	if err != nil {
		return "", err
	}
	if kind == "qemu" {
		kind = "software emulation, which is slow: the host offers no KVM, or domainType is qemu"
	}
	return fmt.Sprintf("%s, %d CPUs, %d MiB of memory", kind, info.Cpus, info.Memory>>10), nil
}

// probePools says how much is free in the host's pools, and fails if it is too little.
func probePools(op string, h *host, c *virt.Connect) (string, error) {
	p, err := h.pool(op, c)
	if err != nil {
		return "", err
	}
	defer p.close()
	found := ""
	for _, in := range p.both() {
		if in.free < minFree {
			return "", director.Errorf(
				director.KindExhausted, op, "the storage pool %s on host %s has %d MiB left", in.name, h.Name,
				in.free>>20,
			).
				WithHint("free space in it, or name another pool")
		}
		if found != "" {
			found += " of disks, "
		}
		found += fmt.Sprintf("%d MiB of %d MiB free", in.free>>20, in.all>>20)
	}
	return found, nil
}

// dotted renders libvirt's number of a version: 9000000 is 9.0.0.
func dotted(v uint32) string { return fmt.Sprintf("%d.%d.%d", v/1_000_000, v/1000%1000, v%1000) }
