package sim

import (
	"context"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// Adopt implements hypervisor.Adopter.
func (b *Backend) Adopt(
	ctx context.Context, key director.Stamp, name string, disks []hypervisor.Disk,
) (hypervisor.VM, error) {
	var got hypervisor.VM
	err := b.do(ctx, VerbAdopt, []string{key.Machine, name}, func(op string, when When) error {
		w := b.w
		v, err := w.adoptable(op, key, name)
		if err != nil || when == Midway {
			return err
		}
		if v.Stamp != key {
			if err := w.whole(op, key, disks); err != nil {
				return err
			}
			v.Stamp, v.spec.Key = key, key
			w.stamps[key] = v
			for _, d := range disks {
				if w.disks[diskKey{d.Owner(key), d.Serial}] != nil {
					v.spec.DataDisks = append(v.spec.DataDisks, d)
				}
			}
		}
		v.made = true
		w.power(v, hypervisor.PowerOn)
		got = v.seen()
		return nil
	})
	if err != nil {
		return hypervisor.VM{}, err
	}
	return got, nil
}

// adoptable finds the VM of the name that has no owner.
func (w *things) adoptable(op string, key director.Stamp, name string) (*vm, error) {
	ours := w.byStamp(key)
	for _, v := range w.vms {
		switch {
		case v.Name != name || v == ours:
		case v.Stamp != (director.Stamp{}):
			return nil, director.Errorf(director.KindConflict, op, "the VM %s has another owner", name).
				WithHint("it is left as it is")
		case ours != nil:
			return nil, director.Errorf(
				director.KindConflict, op, "there are two VMs named %s, and one is ours already", name,
			).
				WithHint("remove the one that is not wanted by hand")
		default:
			return v, nil
		}
	}
	if ours == nil {
		return nil, director.Errorf(director.KindNotFound, op, "there is no VM named %q", name)
	}
	return ours, nil
}
