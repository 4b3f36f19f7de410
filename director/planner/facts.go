package planner

import (
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// FactsOf returns the facts of a cluster whose machines exist, for an inventory outside a plan.
func FactsOf(w World) step.Facts {
	var machines []sized
	for _, m := range w.alive() {
		machines = append(machines, w.sized(m))
	}
	return w.facts(machines)
}

func (w World) facts(machines []sized) step.Facts {
	f := step.Facts{
		Cluster: w.Cluster.Metadata.Name, UID: w.Cluster.UID, Document: *w.Cluster.Cluster, Network: *w.Network.Network,
		Kubernetes: w.Release.Release.Kubernetes, Bundle: w.Release.Release.Bundle, Tags: w.Bundle.ImageTags,
		Registry: w.Director.Registry,
		Digest:   w.Bundle.Digest, Programs: w.Bundle.Programs, Agents: w.agents(),
		Registries: outerRegistries{w}.list(),
	}
	if c := w.Consul.Consul; c != nil && w.Cluster.Cluster.Discovery.DNS {
		f.Forward = &step.Forward{Domain: c.Domain, Servers: c.NameServers()}
	}
	for _, m := range machines {
		f.Nodes = append(f.Nodes, plan.SpecOf(m.Machine))
		for _, n := range m.NICs {
			if u, known := w.Underlays[n.Network]; known {
				if f.Networks == nil {
					f.Networks = map[string]model.Network{}
				}
				f.Networks[n.Network] = *u.Network
			}
		}
	}
	return f
}
