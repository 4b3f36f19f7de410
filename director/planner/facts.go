package planner

import (
	"encoding/json"
	"fmt"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
	"github.com/director-kaas/kaas/director/plan"
)

// Facts is what the inventory of the cluster is rendered from, frozen into the plan. It holds no secret.
type Facts struct {
	Cluster    string             `json:"cluster"`
	UID        string             `json:"uid"`
	Document   model.Cluster      `json:"document"`
	Network    model.Network      `json:"network"`
	Kubernetes string             `json:"kubernetes"`
	Bundle     string             `json:"bundle"` // directory of the release bundle on the director
	Tags       map[string]string  `json:"tags"`
	Registry   string             `json:"registry"`
	Digest     string             `json:"digest"`   // of the bundle
	Programs   map[string]string  `json:"programs"` // SHA-256 of what an upgrade puts on nodes, by name
	Nodes      []director.Machine `json:"nodes"`    // masters first, by name
}

// FactsOf returns the facts of a cluster whose machines exist, for an inventory outside a plan.
func FactsOf(w World) Facts {
	var machines []sized
	for _, m := range w.alive() {
		machines = append(machines, w.sized(m))
	}
	return w.facts(machines)
}

// DecodeFacts reads what Create froze into a plan.
func DecodeFacts(c plan.Content) (Facts, error) {
	var f Facts
	if err := json.Unmarshal(c.Facts, &f); err != nil {
		return Facts{}, fmt.Errorf("planner: the plan's facts cannot be read: %w", err)
	}
	return f, nil
}

func (w World) facts(machines []sized) Facts {
	f := Facts{
		Cluster: w.Cluster.Metadata.Name, UID: w.Cluster.UID, Document: *w.Cluster.Cluster, Network: *w.Network.Network,
		Kubernetes: w.Release.Release.Kubernetes, Bundle: w.Release.Release.Bundle, Tags: w.Bundle.ImageTags, Registry: w.Director.Registry,
		Digest: w.Bundle.Digest, Programs: w.Bundle.Programs,
	}
	for _, m := range machines {
		f.Nodes = append(f.Nodes, m.Machine)
	}
	return f
}
