package planner

import (
	"strings"

	"github.com/director-kaas/kaas/director/plan"
)

// What holds while a step has failed or waits for a person. Whoever is called at night wants to know this first.
const (
	safeNothingYet  = "the cluster does not exist yet; nothing runs on it"
	safeNoWorkloads = "the control plane may run already, but the cluster was never handed over; nothing of yours runs on it"
	safeNodesRun    = "the nodes that have joined run on; the cluster is not handed over before its checks have passed"
	safeRuns        = "the cluster runs; only the director's record of it is missing"
	safeDeleting    = "the cluster is being taken away: count on nothing that ran on it; nothing of other clusters is touched"
	safeDeleted     = "the cluster is gone; what is left is to tidy up, and nothing of other clusters is touched"
)

// safety is the table behind Step.Safety: by operation, and then by the kind of step or, for a play, by the name of its playbook. "" is for
// every other step of the operation.
var safety = map[plan.Operation]map[string]string{
	plan.ClusterCreate: {
		"":               safeNothingYet,
		"control_plane":  safeNoWorkloads,
		"pod_network":    safeNoWorkloads,
		"workers":        safeNodesRun,
		StepKubeReady:    safeNodesRun,
		"verify":         safeNodesRun,
		StepClusterReady: safeRuns,
	},
	plan.ClusterDelete: {
		"":                safeDeleting,
		StepNetworkDelete: safeDeleted,
		StepClusterForget: safeDeleted,
	},
}

// safetyOf returns the sentence for the step. An operation that the table does not know has none.
func safetyOf(op plan.Operation, s plan.Step) string {
	table := safety[op]
	key := s.Kind
	if key == StepPlay {
		key, _, _ = strings.Cut(s.ID, "/")
	}
	if text, ok := table[key]; ok {
		return text
	}
	return table[""]
}
