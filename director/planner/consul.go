package planner

import (
	"time"

	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// consulLimit bounds a step that asks a Consul: no plan waits for one that hangs.
const consulLimit = 90 * time.Second

// register registers the cluster in the Consul that it names, if it names one.
func (d *draft) register(needs ...string) {
	d.consul(step.ConsulRegister, "Register the cluster in Consul", "create", needs)
}

// deregister removes the cluster's entries from the Consul that it names, and returns what to wait for.
func (d *draft) deregister(needs []string) []string {
	if id := d.consul(step.ConsulDeregister, "Remove the cluster from Consul", "delete", needs); id != "" {
		return append([]string{id}, needs...)
	}
	return needs
}

func (d *draft) consul(kind, title, verb string, needs []string) string {
	name := d.w.Cluster.Cluster.Discovery.Consul
	if name == "" {
		return ""
	}
	return d.add(plan.Step{
		ID: kind + "/" + d.Cluster, Kind: kind, Title: title, Needs: unique(needs),
		Params: encode(step.ConsulParams{Consul: name, UID: d.w.Cluster.UID, Cluster: d.Cluster}),
		Effects: []plan.Effect{{
			Verb: verb, Object: "api", Name: "Consul/" + name, Detail: "entries of the API server",
		}},
		Attempts: 3, Timeout: consulLimit, Estimate: time.Second,
	})
}
