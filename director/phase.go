package director

import (
	"maps"
	"slices"
	"strings"
	"time"
)

// PhaseName is a phase of an outer plan: an outer program upgrades the hypervisor hosts one by one, and tells the
// director before and after each.
type PhaseName string

// The phases.
const (
	PhaseCluster PhaseName = "cluster" // before everything: may the hosts of the cluster be worked on
	// before a host is worked on: its nodes leave their clusters, and their VMs stay.
	PhasePreNodeLock    PhaseName = "pre_node_lock"
	PhasePostNodeUnlock PhaseName = "post_node_unlock" // after a host was worked on: its nodes come back
	PhasePostCluster    PhaseName = "post_cluster"     // after everything: is the cluster as it should be
	PhaseDirector       PhaseName = "director"         // upgrade the appliance that a director runs on
)

// OnNodes reports whether the phase is for the nodes of a host, and not for a cluster as a whole.
func (p PhaseName) OnNodes() bool { return p == PhasePreNodeLock || p == PhasePostNodeUnlock }

// PhaseRequest is what a task of an outer plan asks for. Two requests are the same if they are equal.
type PhaseRequest struct {
	Phase          PhaseName     `json:"phase"`
	Cluster        string        `json:"cluster,omitempty"`  // of the phases of a cluster
	Host           string        `json:"host,omitempty"`     // of the phases of nodes: all nodes on it
	Node           string        `json:"node,omitempty"`     // of the phases of nodes: this one alone
	Provider       string        `json:"provider,omitempty"` // where several have a host, or a node, of the name
	Undrained      bool          `json:"undrained,omitempty"`
	DrainTimeout   time.Duration `json:"drain_timeout,omitempty"`
	Unmanaged      bool          `json:"unmanaged,omitempty"`
	DeleteEmptyDir bool          `json:"delete_emptydir,omitempty"`
	// of the phase cluster: create the cluster if it is not installed
	Install bool `json:"install,omitempty"`
	// HostKeys are the public SSH host keys of VMs that the outer plan created again, for post_node_unlock: a line of
	// node and key for each, sorted.
	HostKeys string `json:"host_keys,omitempty"`
	// Director is the name of the host of the director to upgrade, for the phase director; empty for the only one.
	// DrainTimeout is how long its running steps have to end.
	Director string `json:"director,omitempty"`
	// Upload is the SHA-256 of the archive of the upgrade, which is the id of its upload, for the phase director.
	Upload string        `json:"upload,omitempty"`
	Within time.Duration `json:"within,omitempty"` // that the upgraded director has to become healthy
}

// SetHostKeys writes the keys by node into the request.
func (r *PhaseRequest) SetHostKeys(keys map[string]string) {
	var lines []string
	for _, node := range slices.Sorted(maps.Keys(keys)) {
		lines = append(lines, node+" "+strings.Join(strings.Fields(keys[node]), " "))
	}
	r.HostKeys = strings.Join(lines, "\n")
}

// KeysOfHosts returns the keys of the request by node.
func (r *PhaseRequest) KeysOfHosts() map[string]string {
	keys := map[string]string{}
	for line := range strings.Lines(r.HostKeys) {
		node, key, _ := strings.Cut(strings.TrimSpace(line), " ")
		keys[node] = key
	}
	return keys
}

// PhaseState is how far a task of an outer plan, or its part in one cluster, is.
type PhaseState string

// The states. Waiting and running continue when the task is requested, failed and parked when a person has mended the
// plan.
const (
	PhaseWaiting PhaseState = "waiting" // not begun: something is in the way
	PhaseRunning PhaseState = "running" // a plan is at work
	PhaseParked  PhaseState = "parked"  // a plan needs a person
	PhaseFailed  PhaseState = "failed"  // a plan failed; final if the task has an end
	PhaseDone    PhaseState = "done"    // final
)

// PhaseTask is a task of an outer plan under the id that its caller gave it.
type PhaseTask struct {
	ID       string
	Request  PhaseRequest
	By       string
	State    PhaseState
	Message  string
	Hint     string
	Parts    []PhasePart
	Started  time.Time
	Finished time.Time // zero until the outcome is final
	Revision int64     // counts what was stored of it, so that of two that move it one does
}

// PhasePart is what a task does in one cluster, or to one director.
type PhasePart struct {
	Cluster string     `json:"cluster"`
	Nodes   []string   `json:"nodes,omitempty"` // in the order in which they are worked on
	Plans   []string   `json:"plans,omitempty"` // ids, the newest last
	State   PhaseState `json:"state"`
	Message string     `json:"message,omitempty"`
	Hint    string     `json:"hint,omitempty"`
	Ended   bool       `json:"ended,omitempty"` // the state is final

	Upgrade PhaseUpgrade `json:"upgrade,omitzero"` // of the phase director, the only part
}

// Name is what the part is called: its cluster, or the host of its director.
func (p PhasePart) Name() string {
	if p.Upgrade.Host != "" {
		return p.Upgrade.Host
	}
	return p.Cluster
}

// PhaseUpgrade is the upgrade of a director, which that director alone continues.
type PhaseUpgrade struct {
	Instance string    `json:"instance"`       // of the director
	Host     string    `json:"host"`           // that it runs on
	From     string    `json:"from"`           // the version that ran when the upgrade was asked for
	To       string    `json:"to"`             // the version in the archive
	Stage    string    `json:"stage"`          // of the change of its root
	Done     int64     `json:"done"`           // bytes of Total that are written
	Total    int64     `json:"total"`          // bytes of the new root
	Asked    time.Time `json:"asked,omitzero"` // when root was asked for it; zero before
}
