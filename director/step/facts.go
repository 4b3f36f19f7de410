package step

import (
	"encoding/json"
	"fmt"
	"slices"

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
	Nodes      []plan.MachineSpec `json:"nodes"`    // masters first, by name
	// Moves are the machines that follow those of the same name on another host.
	Moves []plan.MachineSpec `json:"moves,omitempty"`
	// Former are the releases that nodes are rolled back to, by version.
	Former map[string]ReleaseFacts `json:"former,omitempty"`
	// Networks are the further networks of nodes, by name.
	Networks map[string]model.Network `json:"networks,omitempty"`
}

// ReleaseFacts is the part of the facts that a release gives.
type ReleaseFacts struct {
	Bundle   string            `json:"bundle"`
	Tags     map[string]string `json:"tags"`
	Digest   string            `json:"digest"`
	Programs map[string]string `json:"programs"`
}

// At returns the facts with the former release of that version instead of the plan's own.
func (f Facts) At(version string) (Facts, error) {
	r, ok := f.Former[version]
	if !ok {
		return Facts{}, fmt.Errorf("step: the plan's facts have no release of %s", version)
	}
	f.Kubernetes, f.Bundle, f.Tags, f.Digest, f.Programs = version, r.Bundle, r.Tags, r.Digest, r.Programs
	return f, nil
}

// Moved returns the facts with what follows the named nodes in their places.
func (f Facts) Moved(names []string) Facts {
	f.Nodes = slices.Clone(f.Nodes)
	for i, m := range f.Nodes {
		if slices.Contains(names, m.Name) {
			for _, next := range f.Moves {
				if next.Name == m.Name {
					f.Nodes[i] = next
				}
			}
		}
	}
	return f
}

// DecodeFacts returns the facts that were frozen into a plan of any format up to plan.Format.
func DecodeFacts(c plan.Content) (Facts, error) {
	if err := c.Readable(); err != nil {
		return Facts{}, err
	}
	var f Facts
	if err := json.Unmarshal(c.Facts, &f); err != nil {
		return Facts{}, fmt.Errorf("step: the plan's facts cannot be read: %w", err)
	}
	return f, nil
}

// ClusterUID returns the uid of the cluster that the plan was made for, or "" if the plan does not tell.
func ClusterUID(c plan.Content) string {
	var of struct {
		UID string `json:"uid"`
	}
	if len(c.Facts) > 0 && json.Unmarshal(c.Facts, &of) == nil {
		uid, _ := director.DrillOf(of.UID)
		return uid
	}
	for _, s := range c.Steps { // a deletion has no facts
		if s.Kind == ClusterForget && json.Unmarshal(s.Params, &of) == nil {
			return of.UID
		}
	}
	return ""
}
