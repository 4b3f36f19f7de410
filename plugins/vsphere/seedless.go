package vsphere

import (
	"context"

	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

var _ hypervisor.Seeds = (*Backend)(nil)

// RemoveSeed implements hypervisor.Seeds. The guest has taken its userdata out already if it honours cleanup-guestinfo;
// what is left here is taken out in any case. The metadata stays: it names the machine and its network, which is no
// secret.
func (b *machines) RemoveSeed(ctx context.Context, id hypervisor.ID, owner director.Stamp) error {
	const op = "vsphere.remove_seed"
	return b.alone(ctx, op, machineKey(owner), func() error {
		return b.translate(ctx, op, "VM "+string(id), b.forget(b.removeSeed(ctx, op, id, owner)))
	})
}

func (b *machines) removeSeed(ctx context.Context, op string, id hypervisor.ID, owner director.Stamp) error {
	p, err := b.place(ctx, op)
	if err != nil {
		return err
	}
	m, err := lookup(ctx, p, string(id))
	if err != nil {
		return err
	}
	if m == nil {
		return director.Errorf(director.KindNotFound, op, "there is no VM with the id %s", id)
	}
	if m.stamp() != owner || owner == (director.Stamp{}) {
		return director.Errorf(
			director.KindConflict, op, "the VM %s has another owner (%s/%s)", m.name, m.stamp().Director,
			m.stamp().Machine,
		).
			WithHint("it is left as it is")
	}
	left, err := extraOf(ctx, p, m, guestUser, guestUser+".encoding")
	if err != nil || len(left) == 0 {
		return err
	}
	var spec types.VirtualMachineConfigSpec
	for _, key := range left {
		spec.ExtraConfig = append(spec.ExtraConfig, option(key, "")) // which removes it
	}
	if err := b.reconfigure(ctx, op, p, m, spec); err != nil {
		return err
	}
	return b.at("seed removed")
}

// extraOf returns which of the keys have a value in the machine's extraConfig.
func extraOf(ctx context.Context, p *place, m *machine, keys ...string) ([]string, error) {
	var paths []string
	for _, k := range keys {
		paths = append(paths, `config.extraConfig["`+k+`"]`)
	}
	found, err := retrieve(ctx, p.vim, types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{Obj: m.ref}},
		PropSet:   []types.PropertySpec{{Type: "VirtualMachine", PathSet: paths}},
	})
	if err != nil {
		return nil, err
	}
	var out []string
	for _, o := range found {
		for _, v := range o.PropSet {
			if option, ok := v.Val.(types.OptionValue); ok && option.Value != "" {
				out = append(out, option.Key)
			}
		}
	}
	return out, nil
}
