package planner

import (
	"strings"

	"github.com/director-kaas/kaas/director/plan"
	"github.com/director-kaas/kaas/director/step"
)

// What holds while a step has failed or waits for a person. A person who is called at night wants to know this first.
const (
	safeNothingYet  = "the cluster does not exist yet; nothing runs on it"
	safeNoWorkloads = "the control plane may run already, but the cluster was never handed over; nothing of yours " +
		"runs on it"
	safeNodesRun = "the nodes that have joined run on; the cluster is not handed over before its checks have passed"
	safeRuns     = "the cluster runs; only the director's record of it is missing"
	safeDeleting = "the cluster is being taken away: count on nothing that ran on it; nothing of other clusters " +
		"is touched"
	safeDeleted    = "the cluster is gone; what is left is to tidy up, and nothing of other clusters is touched"
	safeUntouched  = "the cluster runs as before; nothing of it was touched yet"
	safeNotYetNode = "the cluster runs as before; the node that was to come is not in use yet"
	safeDrain      = "the cluster runs, and the node is schedulable again unless the message says otherwise; " +
		"nothing was deleted"
	safeOut = "the cluster runs without this node; its pods have moved to others, or were given up where " +
		"the plan says so"
	safeUpgrading = "the other nodes run on; this one is cordoned and its pods have moved away"
	safeBack      = "the other nodes run on; this worker is being rolled back to what it ran before"
	safePulls     = "the cluster runs as before; its nodes pull with the former password or with the new one, and " +
		"both are accepted"
	safeKeys = "the cluster runs as before; masters may still have the former token keys, and those are " +
		"published a day " +
		"before they are used"
	safeCerts = "the cluster runs as before; a node has its former certificates or its new ones, and the others " +
		"accept both"
	safeEnded = "pods run on; the cluster has no control plane before its masters have certificates that have not " +
		"ended"
	safeEncryption = "the cluster runs as before; each master has all keys that a Secret may be encrypted with"
	safeSigning    = "the cluster runs as before; each API server accepts the tokens of the key that signs, and of " +
		"the former one until the last step"
	safeAuthority = "the cluster runs as before; each node trusts the authority that signs, and the former one " +
		"until the last step"
	safeSSH = "the cluster runs as before; nodes let the director in by its present SSH authority, and by the former " +
		"one until the last step"
	safeConsul     = "the cluster runs as before; what it has in Consul, and what it finds there, may be that of before"
	safeRegistries = "the cluster runs as before; a node pulls by the former outer registries or by the new ones"
	safeHeld       = "the pods on the workers run on; their kubelets may be stopped, and the restore starts them again"
	safeMasters    = "the pods on the workers run on; the cluster has no control plane before the restore has ended"
	safeRestoring  = "pods run on; the control plane may be stopped. The former data of etcd is on each master, in " +
		"/var/lib/etcd/before-PLAN"
	safeAsked    = "nothing changes while the answer is awaited; the cluster is as the steps before have left it"
	safeRestored = "the backup is restored and the control plane runs; not all nodes have been seen ready"
	safeDrill    = "the cluster runs as before: a drill touches no node of it, and its VM is deleted by itself"
	safeSnapshot = "the cluster runs and the worker is in use; its VM still has a snapshot, which grows with what " +
		"the VM writes"
	safeNoDirector = "the director does not exist yet; nothing is managed by it"
	safeStarted    = "the director may run already; only the record of it is missing"
	safeAsIs       = "the director runs as before; nothing of it was touched yet"
	safeStopped    = "the director is stopped, and goes back to its former VM by itself; its clusters run on"
	safeComesBack  = "the director is stopped, and its former VM is being made again; its clusters run on"
	safeNewVM      = "the director runs on its new VM; what is left is to tidy up"
	safeDirector   = "the director is being taken away; the clusters that it made run on"
	safeShared     = "the cluster runs; what all nodes share may still be as it was before"
)

// safety is the table behind Step.Safety: by operation, and then by the kind of step or, for a play, by the name of its
// playbook. "" is for every other step of the operation.
var safety = map[plan.Operation]map[string]string{
	plan.ClusterCreate: {
		"":                safeNothingYet,
		"control_plane":   safeNoWorkloads,
		"pod_network":     safeNoWorkloads,
		"workers":         safeNodesRun,
		step.KubeReady:    safeNodesRun,
		"verify":          safeNodesRun,
		step.ClusterReady: safeRuns,

		step.ConsulToken: safeConsul,
		"consul_sync":    safeConsul,
	},
	plan.ClusterScale:         onNodes,
	plan.ClusterUpgrade:       onNodes,
	plan.ClusterRotatePull:    {"": safePulls},
	plan.ClusterTokenKeys:     {"": safeKeys},
	plan.ClusterRotateCerts:   {"": safeCerts, step.DirectorBackup: safeUntouched},
	plan.ClusterEncryptionKey: {"": safeEncryption},
	plan.ClusterSigningKey:    {"": safeSigning},
	plan.ClusterCA:            {"": safeAuthority, "clocks": safeUntouched},
	plan.ClusterEtcdCA:        {"": safeAuthority, "clocks": safeUntouched},
	plan.ClusterFrontProxyCA:  {"": safeAuthority, "clocks": safeUntouched},
	plan.ClusterSSHAuthority:  {"": safeSSH},
	plan.ClusterConsul:        {"": safeConsul, step.ClusterReady: safeRuns},
	plan.ClusterRegistries:    {"": safeRegistries, step.ClusterReady: safeRuns},
	plan.ClusterBackup:        {"": safeUntouched},
	plan.ClusterRestore: {
		"":             safeUntouched,
		"hold":         safeHeld,
		step.VMRemove:  safeMasters,
		step.VMEnsure:  safeMasters,
		step.VMBoot:    safeMasters,
		"prepare":      safeMasters,
		"api_balancer": safeMasters,
		"masters":      safeMasters,
		"restore":      safeRestoring,
		step.KubeReady: safeRestored,
		step.NodeReady: safeRestored,
		"verify":       safeRestored,
	},
	plan.ClusterDrill: {"": safeDrill},
	plan.NodeCordon:   onNodes,
	plan.NodeUncordon: onNodes,
	plan.NodeDrain:    onNodes,
	plan.NodeDelete:   onNodes,
	plan.NodeRejoin:   onNodes,
	plan.NodeReplace:  onNodes,
	plan.ClusterDelete: {
		"":                 safeDeleting,
		step.NetworkDelete: safeDeleted,
		step.ClusterForget: safeDeleted,

		step.ConsulDeregister: safeDeleted,
		step.ConsulToken:      safeDeleted,
		step.ConsulAgents:     safeDeleted,
	},
	plan.DirectorCreate: {"": safeNoDirector, step.DirectorReady: safeStarted, step.DirectorRecord: safeStarted},
	plan.DirectorUpgrade: {
		"": safeStopped, step.ImageEnsure: safeAsIs, step.DirectorCheck: safeAsIs, step.DirectorRecord: safeNewVM,
		step.CopyDelete: safeNewVM,
	},
	plan.DirectorDelete: {"": safeDirector},
}

// onNodes is the part of the table for work on nodes of a cluster that runs.
var onNodes = map[string]string{
	"":             safeUntouched,
	step.VMEnsure:  safeNotYetNode,
	step.VMBoot:    safeNotYetNode,
	step.VMAdopt:   safeNotYetNode,
	"join":         safeNotYetNode,
	step.NodeReady: safeNotYetNode,
	"drain":        safeDrain,
	"delete":       safeOut,
	step.NodeLeft:  safeOut,
	step.VMDelete:  safeOut,
	step.VMRemove:  safeOut,
	step.VMMove:    safeOut,
	"upgrade":      safeUpgrading,

	step.ConsulToken:     safeConsul,
	"consul_sync":        safeConsul,
	"consul_sync_remove": safeConsul,

	step.ConsulAgents:      safeConsul,
	"consul_agents":        safeConsul,
	"consul_agents_remove": safeConsul,

	"cluster_dns": safeConsul,

	"registry_trust": safeRegistries,

	step.SnapshotTake:   safeUpgrading,
	step.SnapshotDelete: safeSnapshot,

	"uncordon":        safeUpgrading,
	"addons":          safeShared,
	"pod_network":     safeShared,
	step.KubeTraffic:  safeShared,
	"api_balancer":    safeShared,
	"verify":          safeRuns,
	step.ClusterReady: safeRuns,
}

// ofEnded is the table for a cluster whose certificates have ended. When the masters have others, it runs, and what is
// left is to take away the authorities that have ended.
var ofEnded = map[string]string{
	"": safeEnded,
	step.AuthorityChange + "/" + string(step.AuthorityDrop): safeAuthority,
	"authorities_published_trust":                           safeAuthority,
	"rotate_ca_refuse":                                      safeAuthority,
	"authorities_published_refuse":                          safeAuthority,
}

// safetyOf returns the sentence for the step of a plan for a cluster that runs, or has ended. An operation that the
// table does not know has none.
func safetyOf(op plan.Operation, ended bool, s plan.Step) string {
	if s.Back() && op == plan.DirectorUpgrade {
		return safeComesBack
	}
	if s.Back() && op != plan.ClusterDrill {
		return safeBack
	}
	if s.Kind == step.HookAsk {
		return safeAsked
	}
	table := safety[op]
	key := s.Kind
	switch {
	case key == step.Play:
		key, _, _ = strings.Cut(s.ID, "/")
		key, _, _ = strings.Cut(key, "-") // a playbook that runs again
	case key == step.AuthorityChange && ended:
		key, _, _ = strings.Cut(s.ID, "-") // the authority, where there are several
	}
	if ended {
		table = ofEnded
	}
	if text, ok := table[key]; ok {
		return text
	}
	return table[""]
}
