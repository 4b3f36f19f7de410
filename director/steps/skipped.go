package steps

import (
	"context"
	"slices"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// A step that a person has had skipped did nothing, or was done by hand. What the steps behind it record must be true
// all the same: they record what the plan's own steps have done, and of a node with a skipped step what the cluster
// itself says.

// members returns the nodes of p that the plan has made members at the version of p. Nodes that the plan has no steps
// for keep the record that they have.
func (e kubeSteps) members(ctx context.Context, r plan.Run, p step.ClusterParams) ([]string, error) {
	skipped, err := e.Records.SkippedSteps(ctx, r.Plan.ID)
	if err != nil {
		return nil, err
	}
	worked, unsure := map[string]bool{}, map[string]bool{}
	for _, s := range r.Plan.Steps {
		if s.Node != "" && !s.Back() {
			worked[s.Node] = true
			unsure[s.Node] = unsure[s.Node] || skipped[s.ID]
		}
	}
	var out, ask []string
	for _, n := range p.Nodes {
		switch {
		case unsure[n]:
			ask = append(ask, n)
		case worked[n]:
			out = append(out, n)
		}
	}
	if len(ask) == 0 {
		return out, nil
	}
	seen, err := e.versions(ctx, r, p.UID, p.Name, p.Endpoint)
	if err != nil {
		return nil, err
	}
	for _, n := range ask {
		if seen[n] == p.Kubernetes && p.Kubernetes != "" {
			out = append(out, n)
		}
	}
	return out, nil
}

// stays reports whether the node is a member still though the plan is behind its removal: that was skipped, and the
// cluster knows the node.
func (e kubeSteps) stays(ctx context.Context, r plan.Run, p step.NodeParams) (bool, error) {
	if skipped, err := e.skipped(ctx, r); err != nil || !skipped {
		return false, err
	}
	if p.Endpoint == "" {
		return true, nil
	}
	seen, err := e.versions(ctx, r, p.UID, p.Cluster, p.Endpoint)
	if err != nil {
		return false, err
	}
	_, there := seen[p.Node]
	return there || seen == nil, nil
}

// wasMade is a conflict if the making of m was skipped and the hypervisor has no VM of it: there is nothing to wait
// for.
func (e vmSteps) wasMade(ctx context.Context, r plan.Run, m plan.MachineSpec) error {
	skipped, err := e.skipped(ctx, r)
	if err != nil || !skipped {
		return err
	}
	b, err := e.backend(ctx, m.Provider)
	if err != nil {
		return err
	}
	vms, err := b.List(ctx, hypervisor.Filter{Director: e.Director, Machine: m.ID})
	if err != nil || len(vms) > 0 {
		return err
	}
	return director.Errorf(
		director.KindConflict, "vm.boot", "there is no VM of %s, since the step that makes it was skipped", m.Name,
	).
		WithHint("skip this step too, or discard the plan and plan again")
}

// skipped reports whether a step that the run's step needs was skipped.
func (e Clusters) skipped(ctx context.Context, r plan.Run) (bool, error) {
	if e.Records == nil || r.Plan == nil {
		return false, nil
	}
	steps, err := e.Records.SkippedSteps(ctx, r.Plan.ID)
	return slices.ContainsFunc(r.Step.Needs, func(n string) bool { return steps[n] }), err
}

// versions asks the cluster for the versions of its nodes that are ready, "" for those that are not, by name; nil from
// a cluster that only pretends.
func (e kubeSteps) versions(ctx context.Context, r plan.Run, uid, cluster, endpoint string) (map[string]string, error) {
	var out map[string]string
	err := e.await(ctx, r, uid, cluster, endpoint, func(ctx context.Context, client API) (string, error) {
		nodes, err := client.Nodes(ctx)
		if err != nil || nodes == nil {
			return "", err
		}
		out = make(map[string]string, len(nodes))
		for _, n := range nodes {
			if out[n.Name] = ""; n.Ready {
				out[n.Name] = n.Version
			}
		}
		return "", nil
	})
	return out, err
}
