package operations

import (
	"context"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/api"
	"github.com/director-kaas/kaas/director/hypervisor"
	"github.com/director-kaas/kaas/director/kube"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/planner"
)

// pretends is why the cluster of a simulation is not seen.
const pretends = "the cluster only pretends"

// missing is the power state of a VM that the hypervisor does not have.
const missing = "missing"

// Nodes returns the nodes of the cluster as its ledger, its hypervisor and its own API show them (requirement B12),
// with their certificates. What cannot be asked is left out, and said so.
func (o *Operations) Nodes(ctx context.Context, cluster string) (api.NodesView, error) {
	w, err := o.world(ctx, cluster)
	if err != nil {
		return api.NodesView{}, err
	}
	v, err := o.nodesOf(ctx, w)
	if err != nil {
		return v, err
	}
	v.AutoRepair = o.repairs.saying(cluster)
	if w.Installed != nil && v.Unseen != pretends {
		o.lookAtCertificates(ctx, w, &v)
	}
	for i := range v.Nodes {
		if n := &v.Nodes[i]; n.Problem == "" {
			n.Problem, _ = endingCertificates(n.Certificates, o.Now())
		}
	}
	return v, nil
}

// nodes is Nodes without what is asked of the nodes themselves.
func (o *Operations) nodes(ctx context.Context, cluster string) (api.NodesView, error) {
	w, err := o.world(ctx, cluster)
	if err != nil {
		return api.NodesView{}, err
	}
	return o.nodesOf(ctx, w)
}

func (o *Operations) nodesOf(ctx context.Context, w planner.World) (api.NodesView, error) {
	cluster := w.Cluster.Metadata.Name
	var v api.NodesView
	var err error
	if v.Plan, err = o.Store.Holder(ctx, cluster); err != nil {
		return v, err
	}
	nodes := map[string]kube.Node{}
	if w.Installed == nil {
		v.Unseen = "cluster " + cluster + " is not installed"
	} else if seen, err := o.lookAt(ctx, cluster); err != nil {
		if ctx.Err() != nil {
			return v, ctx.Err()
		}
		v.Unseen = director.MessageOf(err)
	} else if seen == nil {
		v.Unseen = pretends
	} else {
		for _, n := range seen {
			nodes[n.Name] = n
		}
	}
	power, down, err := o.powerBeside(ctx, w)
	if err != nil && ctx.Err() != nil {
		return v, ctx.Err()
	}
	spare := w.Spare()
	for _, m := range w.Nodes() {
		n := api.NodeView{
			Name: m.Name, Role: string(
				m.Role,
			), Pool: m.Pool, Address: m.Address, Host: m.Host, State: string(m.State), Version: m.Kubernetes,
			Wanted: w.Release.Release.Kubernetes, KeptBy: m.KeptBy, Spare: spare[m.Name], HostLost: w.Lost[m.Host],
			HostDown: down[m.Host],
		}
		if power != nil && !n.HostLost && n.HostDown == "" {
			n.Power = power[m.ID]
			if n.Power == "" {
				n.Power = missing
			}
		}
		seen, joined := nodes[m.Name]
		n.Kubelet, n.Ready, n.Cordoned, n.Etcd = seen.Version, seen.Ready, seen.Unschedulable, seen.Etcd
		if joined && !seen.Ready {
			n.Reason = seen.Reason + ": " + seen.Message
		}
		if !n.Spare {
			n.Problem, n.Repair = problemOf(m, n, joined, v.Unseen == "")
		}
		v.Nodes = append(v.Nodes, n)
	}
	return v, nil
}

// Ill names the nodes of the cluster that are not well, each with what is wrong with it. Certificates that only end soon
// do not make a node ill. unseen says why the cluster could not be asked.
func (o *Operations) Ill(ctx context.Context, cluster string) (ill []string, unseen string, err error) {
	v, err := o.Nodes(ctx, cluster)
	if err != nil {
		return nil, "", err
	}
	for _, n := range v.Nodes {
		switch soon, ended := endingCertificates(n.Certificates, o.Now()); {
		case n.Problem != "" && (n.Problem != soon || ended):
			ill = append(ill, n.Name+": "+n.Problem)
		case n.Version == "" && !n.Spare:
			ill = append(ill, n.Name+": it is not in the cluster yet")
		}
	}
	if v.Unseen == pretends {
		v.Unseen = ""
	}
	return ill, v.Unseen, nil
}

// problemOf says what is wrong with a node and which operation mends it. The VM is looked at first: a node whose VM is
// off has no other trouble yet.
func problemOf(m director.Machine, n api.NodeView, joined, asked bool) (string, plan.Operation) {
	member := m.Kubernetes != ""
	switch {
	case n.HostLost:
		return "its host " + m.Host + " was declared lost", plan.NodeReplace
	case n.HostDown != "":
		return "its host " + m.Host + " does not answer", plan.NodeReplace
	case m.State == director.MachineDetached:
		return "it was taken out of the cluster", plan.NodeRejoin
	case !member && m.State != director.MachinePresent:
		return "", "" // a plan makes it, or takes it away
	case n.Power == missing && member:
		return "its VM is gone", plan.NodeReplace
	case n.Power == string(hypervisor.PowerOff):
		return "its VM is switched off", plan.NodeRejoin
	case !asked || !member:
		return "", ""
	case !joined:
		return "the cluster does not know it", plan.NodeRejoin
	case !n.Ready:
		return "it is not ready", plan.NodeReplace
	case m.Role == director.RoleMaster && !n.Etcd:
		return "its etcd member is not ready", plan.NodeReplace
	case n.Kubelet != m.Kubernetes:
		return "its kubelet runs " + n.Kubelet + ", and it was brought to " + m.Kubernetes, ""
	}
	return "", ""
}

func (o *Operations) lookAt(ctx context.Context, cluster string) ([]kube.Node, error) {
	inst, _, err := o.Store.Installed(ctx, cluster)
	if err != nil {
		return nil, err
	}
	return o.look(ctx, inst)
}

// powerIn returns the power state of each VM by machine id, as the hypervisor says.
func (o *Operations) powerIn(ctx context.Context, b hypervisor.Backend) (map[string]string, error) {
	vms, err := b.List(ctx, hypervisor.Filter{Director: o.Director.ID})
	if err != nil {
		return nil, err
	}
	out := map[string]string{}
	for _, vm := range vms {
		out[vm.Stamp.Machine] = string(vm.Power)
	}
	return out, nil
}

// listPatience is how long the hosts may take to list their VMs before each of them is asked whether it answers at all.
const listPatience = 10 * time.Second

// powerBeside is power also while hosts do not answer: down says why, by host, and nothing is known of the VMs there.
func (o *Operations) powerBeside(ctx context.Context, w planner.World) (power, down map[string]string, err error) {
	b, err := o.view(ctx, w)
	if err != nil {
		return nil, nil, err
	}
	soon, cancel := context.WithTimeout(ctx, listPatience)
	power, err = o.powerIn(soon, b)
	cancel()
	if err == nil {
		return power, nil, nil
	}
	hosts, ok := hypervisor.Capability[hypervisor.Hosts](b)
	if !ok {
		return nil, nil, err
	}
	states, serr := hosts.HostStates(ctx)
	if serr != nil {
		return nil, nil, err
	}
	down = map[string]string{}
	out := keys(w.Lost)
	for _, s := range states {
		if s.Err != nil && !w.Lost[s.Host] {
			down[s.Host] = director.MessageOf(s.Err)
			out = append(out, s.Host)
		}
	}
	power, err = o.powerIn(ctx, hosts.Without(out...))
	return power, down, err
}

// Rehearse tells what a drain of the node would move away, and what would block it (requirement B4).
func (o *Operations) Rehearse(ctx context.Context, cluster, node string) ([]kube.Eviction, error) {
	const op = "operations.rehearse"
	if _, err := o.Store.Document(ctx, model.Ref{Kind: model.KindCluster, Name: cluster}); err != nil {
		return nil, err
	}
	inst, ok, err := o.Store.Installed(ctx, cluster)
	if err != nil {
		return nil, err
	}
	if !ok {
		return nil, director.Errorf(director.KindConflict, op, "cluster %s is not installed", cluster).
			WithHint("see what runs with: directorctl describe cluster %s", cluster)
	}
	client, err := o.Env.Cluster(ctx, inst.UID, inst.Name, inst.Endpoint)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return client.Rehearse(ctx, node)
}

// instant is now, as exactly as the store keeps it.
func (o *Operations) instant() time.Time { return o.Now().UTC().Truncate(time.Microsecond) }
