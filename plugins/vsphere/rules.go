package vsphere

import (
	"context"
	"slices"

	"github.com/vmware/govmomi/vim25/methods"
	"github.com/vmware/govmomi/vim25/types"

	"github.com/director-kaas/kaas/director/hypervisor"
)

// ruleName is the name of the group's DRS rule. It is the rule's identity: rules have no place for a stamp.
func ruleName(group string) string { return "kaas-" + group + "-apart" }

// leaving is what keyApart says of a machine that is deleted.
const leaving = "leaving"

// apart returns the machines of the group that share no host with each other.
func (b *center) apart(ctx context.Context, p *place, group string) ([]*machine, error) {
	folder, err := p.knownGroup(ctx, group)
	if err != nil || folder == nil {
		return nil, err
	}
	all, err := below(ctx, p.vim, folder.Reference())
	return slices.DeleteFunc(all, func(m *machine) bool {
		return m.extra[keyApart] != "yes" || m.extra[keyGroup] != group || m.stamp().Director == ""
	}), err
}

// keepApart brings the DRS rule of the group in step with the machines that say that they share no host. Every VM does
// this after it was made, and after it was marked as leaving, so the last one sees them all. A rule of fewer than two
// VMs is none.
func (b *machines) keepApart(ctx context.Context, op string, p *place, group string) error {
	return b.alone(ctx, op, groupKey(group), func() error {
		members, err := b.apart(ctx, p, group)
		if err != nil {
			return err
		}
		var want []types.ManagedObjectReference
		for _, m := range members {
			want = append(want, m.ref)
		}
		cluster, err := b.clusterConfig(ctx, p)
		if err != nil {
			return err
		}
		if cluster.DrsConfig.Enabled == nil || !*cluster.DrsConfig.Enabled {
			b.conn.log.WarnContext(
				ctx, "drs is off, so that the rule that keeps masters apart is not followed", "rule", ruleName(group),
			)
		}
		change := ruleChange(cluster.Rule, group, want)
		if change == nil {
			return nil
		}
		_, err = b.run(ctx, op, p.vim, func() (types.ManagedObjectReference, error) {
			res, err := methods.ReconfigureComputeResource_Task(ctx, p.vim, &types.ReconfigureComputeResource_Task{
				This: p.cluster.Reference(), Modify: true,
				Spec: &types.ClusterConfigSpecEx{RulesSpec: []types.ClusterRuleSpec{*change}},
			})
			if err != nil {
				return types.ManagedObjectReference{}, err
			}
			return res.Returnval, nil
		})
		return err
	})
}

// ruleChange is what brings the rules in step, or nil if they are.
func ruleChange(
	rules []types.BaseClusterRuleInfo, group string, want []types.ManagedObjectReference,
) *types.ClusterRuleSpec {
	byValue := func(x, y types.ManagedObjectReference) int { return slices.Compare([]byte(x.Value), []byte(y.Value)) }
	slices.SortFunc(want, byValue)
	for _, r := range rules {
		have, ok := r.(*types.ClusterAntiAffinityRuleSpec)
		if !ok || have.Name != ruleName(group) {
			continue
		}
		vms := slices.SortedFunc(slices.Values(have.Vm), byValue)
		switch {
		case len(want) < 2:
			return &types.ClusterRuleSpec{
				ArrayUpdateSpec: types.ArrayUpdateSpec{
					Operation: types.ArrayUpdateOperationRemove, RemoveKey: have.Key,
				},
			}
		case slices.Equal(vms, want) && have.Enabled != nil && *have.Enabled:
			return nil
		}
		info := *have
		info.Vm, info.Enabled = want, types.NewBool(true)
		return &types.ClusterRuleSpec{
			ArrayUpdateSpec: types.ArrayUpdateSpec{Operation: types.ArrayUpdateOperationEdit}, Info: &info,
		}
	}
	if len(want) < 2 {
		return nil
	}
	return &types.ClusterRuleSpec{
		ArrayUpdateSpec: types.ArrayUpdateSpec{Operation: types.ArrayUpdateOperationAdd},
		Info: &types.ClusterAntiAffinityRuleSpec{
			ClusterRuleInfo: types.ClusterRuleInfo{Name: ruleName(group), Enabled: types.NewBool(true)}, Vm: want,
		},
	}
}

// apartOf tells whether the machine takes part in a rule.
func apartOf(s hypervisor.Spec) bool { return s.Apart && s.Group != "" }
