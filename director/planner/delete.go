package planner

import (
	"fmt"
	"time"

	"github.com/director-kaas/kaas/director/plan"
)

// Delete returns the plan that takes the cluster of w away with its VMs, addresses, secrets and document.
func Delete(w World) (plan.Content, error) {
	name, c := w.Cluster.Metadata.Name, *w.Cluster.Cluster
	content := plan.Content{Operation: plan.ClusterDelete, Cluster: name, Playbooks: w.Director.Playbooks, Models: w.refs()}
	b := &builder{op: content.Operation}
	var gone []string
	for _, m := range w.alive() {
		s := sized{Machine: m, VMSize: w.sizeOf(m)}
		content.Machines = append(content.Machines, planMachine(m))
		gone = append(gone, b.add(plan.Step{
			ID: StepVMDelete + "/" + m.Name, Kind: StepVMDelete, Node: m.Name, Title: "Delete VM " + m.Name, Params: encode(w.vmParams(s)),
			Effects:  vmEffects(s, "delete"),
			Attempts: 5, Timeout: 10 * time.Minute, Estimate: 5 * time.Second,
		}))
	}
	if len(w.Sharers) == 0 && len(w.Machines) > 0 { // a cluster that never had a machine never had its network made
		gone = []string{b.add(plan.Step{
			ID: StepNetworkDelete + "/" + c.Network, Kind: StepNetworkDelete, Title: "Delete network " + c.Network, Needs: gone,
			Params:   encode(NetworkParams{Provider: c.Provider, Name: c.Network, UID: w.Network.UID, Network: *w.Network.Network}),
			Effects:  []plan.Effect{{Verb: "delete", Object: "network", Name: c.Network}},
			Attempts: 5, Timeout: 2 * time.Minute, Estimate: 2 * time.Second,
		})}
	}
	b.add(plan.Step{
		ID: StepClusterForget + "/" + name, Kind: StepClusterForget, Title: "Forget the cluster", Needs: gone,
		Params:   encode(ClusterParams{UID: w.Cluster.UID, Name: name, Generation: w.Cluster.Generation, Document: c}),
		Effects:  []plan.Effect{{Verb: "delete", Object: "document", Name: "Cluster/" + name}, {Verb: "delete", Object: "secret", Name: name}},
		Attempts: 3, Timeout: time.Minute, Estimate: time.Second,
	})
	content.Approvals = []string{fmt.Sprintf("it destroys cluster %s with %s and all data on their disks", name, count(len(content.Machines), "VM"))}
	content.Summary = fmt.Sprintf("Delete cluster %s: %s with disks and addresses, its secrets and its document.", name, count(len(content.Machines), "VM"))
	content.Steps = w.estimated(b.steps)
	content.Estimate = plan.CriticalPath(content.Steps)
	return content, nil
}
