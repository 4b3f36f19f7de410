package planner

import (
	"fmt"
	"strconv"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
)

// Create returns the plan that brings the cluster of w from nothing, or from an unfinished creation, to its document. A plan without
// steps means that it is there. Errors: exhausted if the pool has too few addresses, conflict if the cluster was installed from another
// generation of its document.
func Create(w World) (plan.Content, error) {
	c := *w.Cluster.Cluster
	content := plan.Content{Operation: plan.ClusterCreate, Cluster: w.Cluster.Metadata.Name, Playbooks: w.Director.Playbooks, Models: w.refs()}
	if w.Installed != nil {
		if changed := difference(w); changed != "" {
			return plan.Content{}, &director.Error{
				Kind: director.KindConflict, Op: "planner.create", Msg: "cluster " + content.Cluster + " runs, and its document has changed since:\n" + changed,
				Hint: "this director creates and deletes clusters; take the change back with apply, or delete the cluster and create it anew",
			}
		}
		content.Summary = "Cluster " + content.Cluster + " is as its model says; nothing is to be done."
		return content, nil
	}
	if c.Masters.Count > 1 {
		return plan.Content{}, &director.Error{
			Kind: director.KindInvalid, Op: "planner.create", Msg: "this director creates clusters with one master",
			Fields: []director.Field{{Path: "spec.masters.count", Msg: strconv.Itoa(c.Masters.Count) + " masters are not offered yet", Hint: "set it to 1"}},
		}
	}
	machines, err := w.machines()
	if err != nil {
		return plan.Content{}, err
	}
	content.Summary = fmt.Sprintf("Create cluster %s: %s and %s, Kubernetes %s on provider %s.",
		content.Cluster, count(c.Masters.Count, "master"), count(c.WorkerCount(), "worker"), w.Release.Release.Kubernetes, c.Provider)
	for _, m := range machines {
		content.Machines = append(content.Machines, planMachine(m.Machine))
	}
	content.Facts = encode(w.facts(machines))
	b := &builder{op: content.Operation}
	w.create(b, machines)
	content.Steps = w.estimated(b.steps)
	content.Estimate = plan.CriticalPath(content.Steps)
	return content, nil
}

// create writes the steps. VMs boot side by side; a worker is prepared while the control plane comes up.
func (w World) create(b *builder, machines []sized) {
	c := *w.Cluster.Cluster
	name := w.Cluster.Metadata.Name
	endpoint := machines[0].Address + ":" + strconv.Itoa(Port)
	cluster := ClusterParams{UID: w.Cluster.UID, Name: name, Generation: w.Cluster.Generation, Document: c, Labels: w.Cluster.Metadata.Labels, Endpoint: endpoint}

	release := b.add(plan.Step{
		ID: StepReleasePush + "/" + c.Release, Kind: StepReleasePush, Title: "Bring the images of " + c.Release + " into the registry",
		Params:   encode(ReleaseParams{Name: c.Release, Bundle: w.Release.Release.Bundle, Digest: w.Bundle.Digest}),
		Effects:  []plan.Effect{{Verb: "create", Object: "registry", Name: w.Director.Registry, Detail: strconv.Itoa(len(w.Bundle.ImageTags)) + " images, unless they are there"}},
		Attempts: 5, Timeout: 15 * time.Minute, Estimate: 15 * time.Second,
	})
	network := b.add(plan.Step{
		ID: StepNetworkEnsure + "/" + c.Network, Kind: StepNetworkEnsure, Title: "Make network " + c.Network,
		Params:   encode(NetworkParams{Provider: c.Provider, Name: c.Network, UID: w.Network.UID, Network: *w.Network.Network}),
		Effects:  []plan.Effect{{Verb: "create", Object: "network", Name: c.Network, Detail: w.Network.Network.Mode + " " + w.Network.Network.CIDR.String()}},
		Attempts: 5, Timeout: 2 * time.Minute, Estimate: 2 * time.Second,
	})
	image := b.add(plan.Step{
		ID: StepImageEnsure + "/" + c.Image, Kind: StepImageEnsure, Title: "Bring image " + c.Image + " to provider " + c.Provider,
		Params:   encode(ImageParams{Provider: c.Provider, Name: c.Image, Image: *w.Image.Image}),
		Effects:  []plan.Effect{{Verb: "create", Object: "image", Name: c.Image, Detail: "unless it is there"}},
		Attempts: 5, Timeout: 30 * time.Minute, Estimate: 15 * time.Second,
	})
	pki := b.add(plan.Step{
		ID: StepClusterPKI + "/" + name, Kind: StepClusterPKI, Title: "Make the certificate authorities",
		Params:   encode(cluster),
		Effects:  []plan.Effect{{Verb: "create", Object: "secret", Name: name, Detail: "cluster, etcd and front-proxy CA, service account key, encryption key; sealed"}},
		Attempts: 3, Timeout: time.Minute, Estimate: time.Second,
	})
	prepared := map[string]string{}
	for _, m := range machines {
		params := encode(w.vmParams(m))
		ensure := b.add(plan.Step{
			ID: StepVMEnsure + "/" + m.Name, Kind: StepVMEnsure, Node: m.Name, Title: "Make VM " + m.Name, Needs: []string{network, image}, Params: params,
			Effects: vmEffects(m, "create"), Budgets: clones(c.Provider, m.Host),
			Attempts: 5, Timeout: 10 * time.Minute, Estimate: 4 * time.Second,
		})
		boot := b.add(plan.Step{
			ID: StepVMBoot + "/" + m.Name, Kind: StepVMBoot, Node: m.Name, Title: "Wait for " + m.Name + " to boot", Needs: []string{ensure}, Params: params,
			Attempts: 2, Timeout: 10 * time.Minute, Estimate: time.Minute,
		})
		prepared[m.Name] = b.play("prepare", m.Name, "Prepare "+m.Name, []string{boot, release, pki}, []string{m.Name}, 50*time.Second,
			plan.Effect{Verb: "change", Object: "file", Name: m.Name, Detail: "host name, registry trust, container runtime, time"})
	}
	master := machines[0]
	control := b.play("control_plane", master.Name, "Bring up the control plane on "+master.Name, []string{prepared[master.Name], pki}, []string{master.Name}, 3*time.Minute,
		plan.Effect{Verb: "create", Object: "api", Name: endpoint, Detail: "etcd, API server, controller manager, scheduler"})
	network2 := b.play("pod_network", name, "Install the pod network", []string{control}, nil, 25*time.Second,
		plan.Effect{Verb: "create", Object: "api", Name: c.Pods.Plugin, Detail: "pods " + c.Pods.CIDR.String()})
	joined := []string{network2}
	for _, m := range machines[1:] {
		joined = append(joined, b.play("workers", m.Name, "Join worker "+m.Name, []string{control, prepared[m.Name]}, []string{m.Name}, 40*time.Second,
			plan.Effect{Verb: "create", Object: "api", Name: "node/" + m.Name}))
	}
	cluster.Nodes = names(machines)
	ready := b.add(plan.Step{
		ID: StepKubeReady + "/" + name, Kind: StepKubeReady, Title: "Wait until all nodes are ready", Needs: joined, Params: encode(cluster),
		Attempts: 3, Timeout: 15 * time.Minute, Estimate: 45 * time.Second,
	})
	verified := b.play("verify", name, "Check DNS, pod network and registry from inside", []string{ready}, nil, 45*time.Second,
		plan.Effect{Verb: "create", Object: "api", Name: "check pods", Detail: "removed again"})
	b.add(plan.Step{
		ID: StepClusterReady + "/" + name, Kind: StepClusterReady, Title: "Record what was installed", Needs: []string{verified}, Params: encode(cluster),
		Attempts: 3, Timeout: time.Minute, Estimate: time.Second,
	})
}

// difference returns what of the document is not as it was installed.
func difference(w World) string {
	if w.Installed.Generation == w.Cluster.Generation {
		return ""
	}
	render := func(c model.Cluster) string {
		b, err := model.Encode(model.Document{Kind: model.KindCluster, Metadata: w.Cluster.Metadata, Cluster: &c})
		if err != nil {
			return err.Error()
		}
		return string(b)
	}
	return model.Diff(render(w.Installed.Cluster), render(*w.Cluster.Cluster))
}
