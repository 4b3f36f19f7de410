package vsphere

import (
	"context"

	"github.com/vmware/govmomi/object"
	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
)

// groupPool returns the resource pool for VMs of the group: one of its own below the provider's, where the
// configuration asks for that, and made if need be. One that is there is taken as it is, so that an administrator can
// make it first, with limits. Pools stay when they are empty, like folders.
func (b *machines) groupPool(
	ctx context.Context, op string, p *place, group string,
) (pool types.ManagedObjectReference, err error) {
	pool = p.pool.Reference()
	if !b.cfg.ClusterPools || group == "" {
		return pool, nil
	}
	err = b.alone(ctx, op, "pool "+group, func() error {
		ref, err := childPool(ctx, p, group)
		if err != nil || ref != nil {
			if ref != nil {
				pool = *ref
			}
			return err
		}
		made, err := p.pool.Create(ctx, group, types.DefaultResourceConfigSpec())
		if hasFault[types.DuplicateName](err) { // another director has, since we looked
			if ref, err = childPool(ctx, p, group); err == nil && ref != nil {
				pool = *ref
			}
			return err
		}
		if err != nil {
			return b.translate(ctx, op, "resource pool "+group, err)
		}
		b.conn.log.InfoContext(ctx, "resource pool made", "pool", group)
		pool = made.Reference()
		return nil
	})
	return pool, err
}

// childPool returns the resource pool of that name below the provider's, or nil.
func childPool(ctx context.Context, p *place, name string) (*types.ManagedObjectReference, error) {
	found, err := retrieve(ctx, p.vim, types.PropertyFilterSpec{
		ObjectSet: []types.ObjectSpec{{Obj: p.pool.Reference(), Skip: types.NewBool(
			true,
		), SelectSet: []types.BaseSelectionSpec{
			&types.TraversalSpec{Type: "ResourcePool", Path: "resourcePool"},
		}}},
		PropSet: []types.PropertySpec{{Type: "ResourcePool", PathSet: []string{"name"}}},
	})
	for _, o := range found {
		for _, v := range o.PropSet {
			if v.Val == name {
				return &o.Obj, nil
			}
		}
	}
	return nil, err
}

// The custom attributes by which people find and sort the director's VMs in vCenter. Nothing is found by them here:
// everybody may change them.
const (
	attributeCluster  = "kaas.cluster"
	attributeDirector = "kaas.director"
)

// describe sets the VM's custom attributes, where the configuration asks for them.
func (b *machines) describe(ctx context.Context, op string, p *place, s hypervisor.Spec, m *machine) error {
	if !b.cfg.Attributes {
		return nil
	}
	for name, value := range map[string]string{attributeCluster: s.Group, attributeDirector: s.Key.Director} {
		key, err := b.attribute(ctx, op, p, name)
		if err != nil {
			return err
		}
		if _, err := methods.SetField(ctx, p.vim, &types.SetField{
			This: *p.vim.ServiceContent.CustomFieldsManager, Entity: m.ref, Key: key, Value: value,
		}); err != nil {
			return b.translate(ctx, op, "the attribute "+name+" of "+m.name, err)
		}
	}
	return nil
}

// attribute returns the key of the custom attribute, and defines it if need be.
func (b *machines) attribute(ctx context.Context, op string, p *place, name string) (key int32, err error) {
	err = b.alone(ctx, op, "attribute "+name, func() error {
		p.mu.Lock()
		known, found := p.attributes[name]
		p.mu.Unlock()
		if found {
			key = known
			return nil
		}
		fields, err := object.NewCustomFieldsManager(p.vim).Field(ctx)
		if err != nil {
			return b.translate(ctx, op, "the custom attributes", err)
		}
		var def *types.CustomFieldDef
		for i := range fields {
			if fields[i].Name == name {
				def = &fields[i]
			}
		}
		if def == nil {
			if def, err = object.NewCustomFieldsManager(p.vim).Add(
				ctx, name, "VirtualMachine", nil, nil,
			); hasFault[types.DuplicateName](err) {
				return director.Errorf(director.KindUnavailable, op, "another director defines the attribute %s", name).
					WithHint("the director checks it again")
			}
			if err != nil {
				return b.translate(ctx, op, "the custom attribute "+name, err)
			}
		}
		key = def.Key
		p.mu.Lock()
		defer p.mu.Unlock()
		p.attributes[name] = key
		return nil
	})
	return key, err
}
