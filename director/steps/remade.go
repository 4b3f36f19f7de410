package steps

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/kube"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// outlived reports whether the plan was under way in the bundle from which this director was restored. What the former
// director did after the bundle is not in this one's database.
func (e Env) outlived(r plan.Run) bool {
	return r.Plan != nil && r.Plan.CreatedAt.Before(e.Restored)
}

// unknown reports whether the former director made the machine's VM after the bundle: this one does not know the host
// key that the VM was given.
func (e vmSteps) unknown(ctx context.Context, r plan.Run, machine string) (bool, error) {
	if !e.outlived(r) {
		return false, nil
	}
	if key, err := e.adoptedKey(ctx, machine); err != nil || key != "" {
		return false, err
	}
	key, err := e.KnownHostKey(ctx, machine)
	return key.Public == "", err
}

// remake makes a VM again whose host key this director cannot know: the former director made or booted it after the
// bundle. A VM that has become a node since then, or may have, is left to a person. It returns mismatch for a VM that
// the director has met before, or that others have made: then another host answers. It may be cut off and called again,
// after vmEnsure.
func (e vmSteps) remake(ctx context.Context, r plan.Run, p step.VMParams, mismatch error) error {
	if adopted, err := e.adoptedKey(ctx, p.Machine.ID); err != nil || adopted != "" {
		return cmp.Or(err, mismatch)
	}
	key, err := e.KnownHostKey(ctx, p.Machine.ID)
	if err != nil {
		return err
	}
	if met := key.Public != "" && key.Private == ""; met || !e.outlived(r) { // a machine keeps its own private key
		return mismatch
	}
	b, err := e.backend(ctx, p.Machine.Provider)
	if err != nil {
		return err
	}
	vms, err := b.List(ctx, hypervisor.Filter{Director: e.Director, Machine: p.Machine.ID})
	if err != nil {
		return err
	}
	if len(vms) != 1 {
		return mismatch
	}
	if err := e.noNode(ctx, r, p.Machine); err != nil && ctx.Err() != nil {
		return err // the director stops
	} else if err != nil {
		return plan.Park(err, "look at the node. Take it out of the cluster by hand (kubectl drain, kubectl delete "+
			"node; of a master the member of etcd, too) and retry: then its VM is made again")
	}
	r.Note(ctx, p.Machine.Name+" is from after the bundle that this director was restored from: making it again")
	if err := e.vmRemove(ctx, r, p); err != nil {
		return err
	}
	return e.vmEnsure(ctx, r, p)
}

// memberPatience is how long a cluster may take to say which nodes it has.
const memberPatience = time.Minute

// noNode returns nil if the cluster says that the machine is none of its nodes.
func (e Env) noNode(ctx context.Context, r plan.Run, m plan.MachineSpec) error {
	const op = "vm.boot"
	uid, err := clusterUID(r, m)
	if err != nil {
		return err
	}
	var nodes []kube.Node
	look := func(ctx context.Context, api API) (_ string, err error) {
		nodes, err = api.Nodes(ctx)
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, memberPatience)
	defer cancel()
	err = director.Errorf(director.KindNotFound, op, "the plan does not say where its API is")
	if endpoint := endpointOf(r.Plan.Steps, m.ID); endpoint != "" {
		err = (kubeSteps{e}).await(ctx, r, uid, m.Cluster, endpoint, look)
	}
	if err != nil {
		return director.Errorf(
			director.KindConflict, op, "the VM of %s is from after the bundle that this director was restored from, "+
				"and the cluster does not say whether it is a node: %w", m.Name, err,
		)
	}
	if slices.ContainsFunc(nodes, func(n kube.Node) bool { return n.Name == m.Name }) {
		return director.Errorf(
			director.KindConflict, op, "%s has become a node after the bundle that this director was restored from, "+
				"which does not know its host key", m.Name,
		)
	}
	return nil
}

// endpointOf returns where the plan reaches the API of the cluster when the machine has become a node.
func endpointOf(steps []plan.Step, machine string) string {
	for _, s := range steps {
		var p step.NodeParams
		if s.Kind == step.NodeReady && json.Unmarshal(s.Params, &p) == nil && p.Machine == machine {
			return p.Endpoint
		}
	}
	return ""
}

// pushAgain fills the registry for a plan whose releases the former director has pushed: the registry is not in a
// bundle.
func (e Env) pushAgain(ctx context.Context, r plan.Run) error {
	if !e.outlived(r) {
		return nil
	}
	for _, s := range r.Plan.Steps {
		if s.Kind != step.ReleasePush {
			continue
		}
		var p step.ReleaseParams
		if err := json.Unmarshal(s.Params, &p); err != nil {
			return director.Errorf(director.KindInternal, "release.push", "step %s cannot be read: %w", s.ID, err)
		}
		if err := e.releasePush(ctx, r, p); err != nil {
			return err
		}
	}
	return nil
}
