package libvirt

import (
	"context"
	"fmt"

	virt "libvirt.org/go/libvirt"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

var _ hypervisor.Diagnoser = (*Backend)(nil)

// Diagnose implements hypervisor.Diagnoser: whether the domain runs, and why not. QEMU pauses a domain whose disk
// cannot be written, which looks like a guest that hangs.
func (b *Backend) Diagnose(ctx context.Context, id hypervisor.ID) ([]hypervisor.Probe, error) {
	const op = "libvirt.diagnose"
	vm, h, err := b.get(ctx, op, id)
	if err != nil {
		return nil, err
	}
	return onDomain(ctx, h, op, id, func(d *domain) ([]hypervisor.Probe, error) {
		state, reason, err := d.GetState()
		if err != nil {
			return nil, err
		}
		p := hypervisor.Probe{Host: h.Name, What: "domain"}
		if p.Err = halted(op, vm.Name, h.Name, state, reason); p.Err == nil {
			p.Found = "running"
		}
		out := []hypervisor.Probe{p}
		if !d.active {
			return out, nil
		}
		disks, err := d.GetDiskErrors(0)
		if err != nil { // not every hypervisor tells
			return out, nil
		}
		for _, disk := range disks {
			what := "cannot be read or written"
			if disk.Error == virt.DOMAIN_DISK_ERROR_NO_SPACE {
				what = "has no space left below it"
			}
			out = append(out, hypervisor.Probe{
				Host: h.Name, What: "disk " + disk.Disk,
				Err: director.Errorf(director.KindExhausted, op, "the disk %s of %s %s", disk.Disk, vm.Name, what).
					WithHint(
						"look at the storage pool %s of host %s, and resume the domain then: virsh -c %s resume %s",
						h.Pool, h.Name, h.URI, vm.Name,
					),
			})
		}
		return out, nil
	})
}

// halted says why the domain does not run, or nil if it does.
func halted(op, name, host string, state virt.DomainState, reason int) error {
	wrong := func(what, hint string) error {
		return director.Errorf(director.KindUnavailable, op, "the domain %s on host %s %s", name, host, what).
			WithHint("%s", hint)
	}
	switch state {
	case virt.DOMAIN_RUNNING, virt.DOMAIN_BLOCKED:
		return nil
	case virt.DOMAIN_PAUSED:
		if virt.DomainPausedReason(reason) == virt.DOMAIN_PAUSED_IOERROR {
			return wrong(
				"was paused, because a disk cannot be written",
				"free space in its storage pool, and resume it with virsh",
			)
		}
		return wrong("is paused", "a person has paused it, or a backup runs: resume it with virsh")
	case virt.DOMAIN_CRASHED:
		return wrong("has crashed", "look at its log on the host, below /var/log/libvirt")
	case virt.DOMAIN_SHUTOFF:
		if r := virt.DomainShutoffReason(reason); r == virt.DOMAIN_SHUTOFF_CRASHED || r == virt.DOMAIN_SHUTOFF_FAILED {
			return wrong("ended by itself", "look at its log on the host, below /var/log/libvirt")
		}
		return wrong("is off", "a person has switched it off, or its host has restarted")
	default:
		return wrong(fmt.Sprintf("is in state %d", state), "look at it with virsh")
	}
}
