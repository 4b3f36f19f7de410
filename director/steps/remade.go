package steps

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
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
func (i Installation) outlived(r plan.Run) bool {
	return r.Plan != nil && r.Plan.CreatedAt.Before(i.Restored)
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

// remake finds out what to do with a VM whose host key this director cannot know: the former director made or booted
// it after the bundle. A VM that shows a certificate of its host key by the cluster's SSH authority is taken as it is,
// node or not; so is one that has become a node since then, where the cluster proves its host key. A VM that is no node
// is made again. Others are left to a person. It returns mismatch for a VM that the director has met before, or that
// others have made: then another host answers. It may be cut off and called again, after vmEnsure.
func (e vmSteps) remake(ctx context.Context, r plan.Run, p step.VMParams, mismatch error) error {
	if adopted, err := e.adoptedKey(ctx, p.Machine.ID); err != nil || adopted != "" {
		return cmp.Or(err, mismatch)
	}
	key, err := e.KnownHostKey(ctx, p.Machine.ID)
	if err != nil {
		return err
	}
	// A machine keeps its own private key.
	if met := key.Public != "" && key.Private == ""; met || !e.outlived(r) {
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
	certificate, away := e.Nodes.HostCertificate(ctx, p.Machine.Row())
	if known, err := e.vouched(ctx, r, p.Machine, certificate); err != nil {
		return err
	} else if known {
		return e.vmEnsure(ctx, r, p)
	}
	node, err := e.nodeSince(ctx, r, p.Machine)
	switch {
	case err != nil && ctx.Err() != nil:
		return err // the director stops
	case err != nil:
		return plan.Park(err, "bring the API of the cluster back and retry: directorctl retry "+r.Plan.ID)
	case node != nil:
		return e.adoptNode(ctx, r, p, *node, away)
	}
	r.Note(ctx, p.Machine.Name+" is from after the bundle that this director was restored from: making it again")
	if err := e.vmRemove(ctx, r, p); err != nil {
		return err
	}
	return e.vmEnsure(ctx, r, p)
}

// vouched reports whether the certificate that the machine shows is of its host key and by one of the cluster's SSH
// authorities, and takes that key then.
func (e vmSteps) vouched(ctx context.Context, r plan.Run, m plan.MachineSpec, certificate string) (bool, error) {
	if certificate == "" {
		return false, nil
	}
	uid, err := clusterUID(r, m)
	if err != nil {
		return false, err
	}
	err = e.takeVouched(ctx, uid, m.ID, certificate)
	if err != nil && director.KindOf(err) == director.KindConflict {
		r.Note(ctx, "the certificate that "+m.Name+" shows is not accepted: "+err.Error())
		return false, nil
	} else if err != nil {
		return false, err
	}
	r.Note(ctx, m.Name+" is from after the bundle that this director was restored from. It shows that its host key "+
		"is signed by its cluster's authority, and stays as it is")
	return true, nil
}

// memberPatience is how long a cluster may take to say which nodes it has.
const memberPatience = time.Minute

// nodeSince returns the node that the machine has become after the bundle, as the cluster has it, and nil if the
// cluster says that it is none.
func (e Clusters) nodeSince(ctx context.Context, r plan.Run, m plan.MachineSpec) (*kube.Node, error) {
	const op = "vm.boot"
	uid, err := clusterUID(r, m)
	if err != nil {
		return nil, err
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
		err = e.await(ctx, r, uid, m.Cluster, endpoint, look)
	}
	if err != nil {
		return nil, director.Errorf(
			director.KindConflict, op, "the VM of %s is from after the bundle that this director was restored from, "+
				"and the cluster does not say whether it is a node: %w", m.Name, err,
		)
	}
	i := slices.IndexFunc(nodes, func(n kube.Node) bool { return n.Name == m.Name })
	if i < 0 {
		return nil, nil
	}
	return &nodes[i], nil
}

// adoptNode takes the VM as it is that has become a node after the bundle, if the cluster has its host key with the
// director's own signature: what answers at its address has to prove that key from then on. Otherwise the node is
// left to a person. away is why the machine did not answer, which may still prove itself later: the step is tried again
// then.
func (e vmSteps) adoptNode(ctx context.Context, r plan.Run, p step.VMParams, node kube.Node, away error) error {
	m := p.Machine
	uid, err := clusterUID(r, m)
	if err != nil {
		return err
	}
	err = e.LearnHostKey(ctx, uid, m.Row(), node)
	switch {
	case err != nil && director.KindOf(err) == director.KindConflict && away != nil:
		return director.Errorf(
			director.KindUnavailable, "vm.boot",
			"%s has become a node after the bundle that this director was restored from, and does not answer at %s: %w",
			m.Name, m.Address, errors.Join(err, away),
		)
	case err != nil && director.KindOf(err) == director.KindConflict:
		return plan.Park(director.Errorf(
			director.KindConflict, "vm.boot", "%s has become a node after the bundle that this director was restored "+
				"from, which does not know its host key: %w", m.Name, err,
		), outOfCluster(r.Plan.ID, m))
	case err != nil:
		return err
	}
	r.Note(ctx, m.Name+" has become a node after the bundle that this director was restored from: it stays as it is")
	return e.vmEnsure(ctx, r, p)
}

// outOfCluster says how a person takes a node out of its cluster, so that its VM is made again.
func outOfCluster(id string, m plan.MachineSpec) string {
	member := ""
	if m.Role == director.RoleMaster {
		member = "remove its member of etcd (etcdctl member list, etcdctl member remove ID, in the pod of another " +
			"master), and "
	}
	return fmt.Sprintf(
		"look at the node. If its VM may be made again, take it out of the cluster: directorctl kubeconfig %[1]s "+
			">kubeconfig; kubectl --kubeconfig kubeconfig drain %[2]s --ignore-daemonsets --delete-emptydir-data; "+
			"%[3]skubectl --kubeconfig kubeconfig delete node %[2]s; then: directorctl retry %[4]s",
		m.Cluster, m.Name, member, id,
	)
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
func (e releaseSteps) pushAgain(ctx context.Context, r plan.Run) error {
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
