// Package plan is what the director does, before and while it does it: a frozen graph of steps, the events of its run
// and the one table that says how a status may change. It is pure: no I/O, no clock.
package plan

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"time"
)

// Operation is what a plan is for, such as "cluster.create".
type Operation string

// The operations.
const (
	ClusterCreate  Operation = "cluster.create"
	ClusterDelete  Operation = "cluster.delete"
	ClusterScale   Operation = "cluster.scale"   // nodes to the numbers of the document
	ClusterUpgrade Operation = "cluster.upgrade" // nodes to the release and the image of the document
	// ClusterRotatePull gives the nodes another password for the director's registry.
	ClusterRotatePull Operation = "cluster.rotate_pull_password"
	// ClusterTokenKeys gives the masters the director's token keys, and its roles their rights.
	ClusterTokenKeys Operation = "cluster.token_keys"
	// ClusterEncryptionKey gives the cluster another key that encrypts Secrets at rest, and encrypts them again.
	ClusterEncryptionKey Operation = "cluster.encryption_key"
	// ClusterSigningKey gives the cluster another key that signs service account tokens.
	ClusterSigningKey Operation = "cluster.service_account_key"
	// ClusterCA, ClusterEtcdCA and ClusterFrontProxyCA give the cluster another certificate authority for the purpose.
	ClusterCA           Operation = "cluster.ca"
	ClusterEtcdCA       Operation = "cluster.etcd_ca"
	ClusterFrontProxyCA Operation = "cluster.front_proxy_ca"
	// ClusterSSHAuthority gives the cluster another authority for those who log in to its nodes.
	ClusterSSHAuthority Operation = "cluster.ssh_authority"
	// ClusterConsul brings what the cluster and a Consul learn of each other to the documents; asked for by name, with
	// another token.
	ClusterConsul Operation = "cluster.consul"
	// ClusterRegistries tells the nodes of the outer registries of the documents.
	ClusterRegistries Operation = "cluster.registries"
	// ClusterRotateCerts renews the certificates of nodes that end before a time.
	ClusterRotateCerts Operation = "cluster.rotate_certs"
	ClusterBackup      Operation = "cluster.backup"  // a snapshot of etcd into its targets
	ClusterRestore     Operation = "cluster.restore" // a snapshot instead of the data of etcd
	ClusterDrill       Operation = "cluster.drill"   // a backup is restored into a VM that is deleted again
	NodeCordon         Operation = "node.cordon"     // nothing new is scheduled there
	NodeUncordon       Operation = "node.uncordon"
	NodeDrain          Operation = "node.drain"   // cordoned, and its pods moved away
	NodeDelete         Operation = "node.delete"  // drained and taken out of the cluster, with its VM or without
	NodeRejoin         Operation = "node.rejoin"  // brought into the cluster again, whatever has become of its VM
	NodeReplace        Operation = "node.replace" // deleted, its VM created again, and rejoined
	// DirectorCreate makes the VM of another director, DirectorUpgrade makes it again in front of the same data disk,
	// and DirectorDelete takes it away.
	DirectorCreate  Operation = "director.create"
	DirectorUpgrade Operation = "director.upgrade"
	DirectorDelete  Operation = "director.delete"
)

// Operations returns every operation.
func Operations() []Operation {
	return []Operation{
		ClusterCreate, ClusterDelete, ClusterScale, ClusterUpgrade, ClusterRotatePull, ClusterTokenKeys,
		ClusterEncryptionKey, ClusterSigningKey, ClusterCA, ClusterEtcdCA, ClusterFrontProxyCA, ClusterSSHAuthority,
		ClusterConsul, ClusterRegistries, ClusterRotateCerts, ClusterBackup, ClusterRestore, ClusterDrill,
		NodeCordon, NodeUncordon, NodeDrain, NodeDelete, NodeRejoin, NodeReplace, DirectorCreate, DirectorUpgrade,
		DirectorDelete,
	}
}

// OnDirector reports whether o is for the VM of another director, and not for a cluster.
func (o Operation) OnDirector() bool { return strings.HasPrefix(string(o), "director.") }

// OnNodes reports whether o is for nodes that a request names.
func (o Operation) OnNodes() bool { return strings.HasPrefix(string(o), "node.") }

// Request is what a plan was asked for. The same request in the same world gives the same plan.
type Request struct {
	Operation Operation `json:"operation,omitempty"` // empty for what brings the cluster to its document
	Nodes     []string  `json:"nodes,omitempty"`     // of a node operation; of a scale, which go before others
	KeepVM    bool      `json:"keep_vm,omitempty"`   // of a deletion or a scale: the VMs stay, outside of the cluster
	// DeleteData is a person's word that the data disks of VMs that go are destroyed too. The plan names each of them
	// for approval.
	DeleteData bool `json:"delete_data,omitempty"`
	// AdoptDisks are the ids of kept disks that new nodes take over, by node.
	AdoptDisks map[string]string `json:"adopt_disks,omitempty"`
	// Undrained is a person's word that nodes are taken out without a drain.
	Undrained bool  `json:"undrained,omitempty"`
	Drain     Drain `json:"drain,omitzero"`
	// Unready is a person's word that a director is upgraded without being asked before whether it is ready.
	Unready bool `json:"unready,omitempty"`
	// Host is where replaced nodes are made; empty for where they are, or for the planner's choice if that is lost.
	Host string `json:"host,omitempty"`
	// LostHost is a person's word that this host of the nodes is off, or cut off for good: what runs on it never runs
	// again.
	LostHost string `json:"lost_host,omitempty"`
	// Change is a merge patch (RFC 7396) of the spec of the cluster's document: the plan is made for the document that
	// it gives, and the start stores that document. Nil leaves the document as it is.
	Change json.RawMessage `json:"change,omitempty"`
	// HostKeys are the public SSH host keys of VMs made by others for nodes that rejoin, by node. It is a person's word
	// that they are what they say.
	HostKeys map[string]string `json:"host_keys,omitempty"`
	// Certificates says which certificates are rotated.
	Certificates Certificates `json:"certificates,omitzero"`
	// Restore says which backup a cluster is restored from, or a drill tries.
	Restore Restore `json:"restore,omitzero"`
}

// Restore says which backup a cluster is restored from, or a drill tries.
type Restore struct {
	Backup string `json:"backup"` // its id
	// NewMasters is a person's word that the VMs of all masters are destroyed and created again before.
	NewMasters bool `json:"new_masters,omitempty"`
}

// Certificates says which certificates of nodes are renewed. The moment is absolute, so that a plan that was cut off
// renews nothing twice.
type Certificates struct {
	EndBefore  time.Time `json:"end_before,omitzero"`  // those that end before then
	MadeBefore time.Time `json:"made_before,omitzero"` // all that were made before then, instead
	// Cold is for a cluster whose certificates have ended: nothing is asked of its API before all masters are renewed.
	Cold bool `json:"cold,omitempty"`
}

// Drain says how far a drain may go. The zero Drain evicts what a controller recreates elsewhere, within the cluster's
// own time.
type Drain struct {
	Timeout        time.Duration `json:"timeout,omitempty"`
	Unmanaged      bool          `json:"unmanaged,omitempty"`       // also pods that nothing recreates
	DeleteEmptyDir bool          `json:"delete_emptydir,omitempty"` // also pods whose local data goes with them
}

// Plan is frozen when it is made: nothing in it changes afterwards, and Hash covers all that a run depends on. The
// state of its run is a State, folded from events.
type Plan struct {
	ID        string
	CreatedAt time.Time
	CreatedBy string
	Hash      string // of Content
	Content
}

// Content is the hashed part of a plan.
type Content struct {
	Format    int             `json:"format,omitempty"` // see Format; 0 in plans of format 1
	Operation Operation       `json:"operation"`
	Request   Request         `json:"request,omitzero"` // from which the same plan is made again at the start
	Cluster   string          `json:"cluster"`          // its name; of an operation on a director the name of that
	Summary   string          `json:"summary"`          // one sentence for people
	Playbooks string          `json:"playbooks"`        // hash of the tree of playbooks and templates that the run uses
	Models    []ModelRef      `json:"models"`           // the documents it was made from
	Machines  []Machine       `json:"machines"`         // reserved with their addresses when the plan starts
	Facts     json.RawMessage `json:"facts,omitempty"`  // what inventories are rendered from
	Steps     []Step          `json:"steps"`            // in an order in which they could run one by one
	Windows   []Window        `json:"windows,omitempty"`
	Warnings  []string        `json:"warnings,omitempty"`
	// what a person has to agree to before a start, one sentence each
	Approvals []string      `json:"approvals,omitempty"`
	Estimate  time.Duration `json:"estimate"` // along the longest path; not hashed
	// Before is the document that was in force when the plan was made, of a plan that puts a document into force. It is
	// nil for the first one of a cluster, and not hashed: what it means for the run is in the steps.
	Before *Former `json:"before,omitempty"`
	// DirectorVersion is the release of the director that made the plan. It is not hashed.
	DirectorVersion string `json:"director_version,omitempty"`
}

// Former is the document of a cluster that was in force before a plan.
type Former struct {
	Generation int64             `json:"generation"`
	Labels     map[string]string `json:"labels,omitempty"`
	Spec       json.RawMessage   `json:"spec"`
}

// Window bounds how many groups of steps are open at once. A group is all steps of one node in the window; it is open
// from the start of its first step until all of them are done. A failure opens no further group, and those that are
// open go on to their end.
type Window struct {
	ID   string `json:"id"`
	Size int    `json:"size"` // at least 1
	// of groups whose nodes share a hypervisor host; 0 for no bound of its own
	PerHost int    `json:"per_host,omitempty"`
	Goal    string `json:"goal,omitempty"` // what nodes that are through it do, for people: "run v1.37.1"
}

// ModelRef pins a document by its generation, so that a start can tell whether it has moved since.
type ModelRef struct {
	Kind       string `json:"kind"`
	Name       string `json:"name"`
	Generation int64  `json:"generation"`
}

// Machine is a VM that the plan makes or takes away.
type Machine struct {
	ID      string `json:"id"`
	Name    string `json:"name"`
	Role    string `json:"role"`
	Pool    string `json:"pool"`
	Address string `json:"address"`
	MAC     string `json:"mac"`
	Host    string `json:"host,omitempty"`
}

// Step is one small act that can be repeated without harm. Params holds everything its kind needs, except secrets.
type Step struct {
	ID      string          `json:"id"`   // stable within the plan: kind/subject
	Kind    string          `json:"kind"` // dotted: vm.ensure
	Title   string          `json:"title"`
	Node    string          `json:"node,omitempty"`  // the node it concerns; empty for the cluster
	Needs   []string        `json:"needs,omitempty"` // ids of steps that must be done first
	Params  json.RawMessage `json:"params,omitempty"`
	Effects []Effect        `json:"effects,omitempty"`
	Window  string          `json:"window,omitempty"` // id of the window that its node is handled in
	// what it takes one of while it runs, over all plans: clones/provider/lab
	Budgets  []string      `json:"budgets,omitempty"`
	Attempts int           `json:"attempts"` // how often a plain error is tried in all
	Timeout  time.Duration `json:"timeout"`  // of one attempt
	Estimate time.Duration `json:"estimate"` // not hashed
	// UndoOnFailure undoes the step when it has failed, without a request.
	UndoOnFailure bool `json:"undo_on_failure,omitempty"`
	// Undoes makes it a rollback step: it only runs when one of these steps of its node has failed, and only if one of
	// them had begun. See back.go.
	Undoes []string `json:"undoes,omitempty"`
	// Keep says that what it did is not undone, though its kind could be: it was there before, or others rely on it by
	// now.
	Keep bool `json:"keep,omitempty"`
	// Safety is what holds meanwhile if the step fails or waits for a person: a sentence without a final stop.
	Safety string `json:"safety,omitempty"`
}

// Class is what steps of different plans have in common: the part of the id before the subject. Estimates are kept by
// it. A rollback step is of the class of those that do the same.
func (s Step) Class() string {
	class, _, _ := strings.Cut(s.ID, "/")
	return strings.TrimSuffix(class, undoMark)
}

// VerbEvict is the effect of a drain: pods of the node with that name move away.
const VerbEvict = "evict"

// Verbs returns what steps can do to the world.
func Verbs() []string {
	return []string{"create", "change", "delete", "keep", "restart", VerbEvict, "fence", "read"}
}

// Effect is one thing that a step changes in the world, for the reader of the plan.
type Effect struct {
	Verb   string `json:"verb"`   // one of Verbs
	Object string `json:"object"` // vm, network, volume, image, file, api, registry, address
	Name   string `json:"name"`
	Detail string `json:"detail,omitempty"`
}

// HashOf returns the SHA-256 of c in its canonical JSON form, in hex. The same content gives the same bytes. Estimates
// are left out: they follow what earlier runs took, and a plan does not go out of date because another one ended. The
// director's version and the document before are left out too.
func HashOf(c Content) string {
	c.Estimate, c.DirectorVersion, c.Before, c.Steps = 0, "", nil, slices.Clone(c.Steps)
	for i := range c.Steps {
		c.Steps[i].Estimate = 0
	}
	b, err := json.Marshal(c)
	if err != nil {
		panic(fmt.Sprintf("plan: content does not marshal: %v", err)) // only a RawMessage built by hand could do that
	}
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:])
}

// Step returns the step with the id.
func (p *Plan) Step(id string) (Step, bool) {
	for _, s := range p.Steps {
		if s.ID == id {
			return s, true
		}
	}
	return Step{}, false
}

// Command is what a person types to have the same planned for the world as it is then.
func (c Content) Command() string {
	switch c.Operation {
	case DirectorCreate:
		return "directorctl director create " + c.Cluster
	case DirectorUpgrade:
		return "directorctl director upgrade " + c.Cluster
	case DirectorDelete:
		return "directorctl director delete " + c.Cluster
	}
	return "directorctl plan " + c.Cluster
}

// Check returns an error if step ids repeat, a need or a window is unknown, a step comes before one that it needs, or a
// rollback step is out of place. A plan that passes has no cycle.
func (c Content) Check() error {
	seen := make(map[string]Step, len(c.Steps))
	windows := map[string]bool{"": true}
	for _, w := range c.Windows {
		if w.Size < 1 {
			return fmt.Errorf("plan: window %q has the size %d", w.ID, w.Size)
		}
		windows[w.ID] = true
	}
	for _, s := range c.Steps {
		if !windows[s.Window] {
			return fmt.Errorf("plan: step %q is in window %q, which the plan does not have", s.ID, s.Window)
		}
		if _, twice := seen[s.ID]; twice {
			return fmt.Errorf("plan: step %q is there twice", s.ID)
		}
		for _, n := range s.Needs {
			if _, there := seen[n]; !there {
				return fmt.Errorf("plan: step %q needs %q, which does not stand before it", s.ID, n)
			}
		}
		if err := checkBack(s, seen); err != nil {
			return err
		}
		seen[s.ID] = s
	}
	return nil
}

// CriticalPath returns the estimated time along the longest chain of needs, if nothing fails.
func CriticalPath(steps []Step) time.Duration {
	end := make(map[string]time.Duration, len(steps))
	var longest time.Duration
	for _, s := range steps {
		if s.Back() {
			continue
		}
		var start time.Duration
		for _, n := range s.Needs {
			start = max(start, end[n])
		}
		end[s.ID] = start + s.Estimate
		longest = max(longest, end[s.ID])
	}
	return longest
}
