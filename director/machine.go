package director

import (
	"strings"
	"time"
)

// Role is what a VM is for.
type Role string

// The roles.
const (
	RoleMaster Role = "master" // control plane and etcd member
	RoleWorker Role = "worker" // workload alone
	// RoleDirector is of the VM of another director, which is a node of no cluster.
	RoleDirector Role = "director"
)

// Roles returns every role in a fixed order.
func Roles() []Role { return []Role{RoleMaster, RoleWorker, RoleDirector} }

// drillMark ends the uid of a restore drill.
const drillMark = "-drill"

// DrillUID returns the uid that owns the machine and the secrets of a restore drill of the cluster with that uid: they
// are no part of the cluster, and nothing that looks at its nodes sees them.
func DrillUID(cluster string) string { return cluster + drillMark }

// DrillOf returns the uid of the cluster that a restore drill with that uid is of, and whether it is one.
func DrillOf(uid string) (cluster string, drill bool) { return strings.CutSuffix(uid, drillMark) }

// Stamp says who owns a VM. It is written into what the hypervisor keeps of the VM (libvirt metadata, vSphere
// extraConfig), and it, together with the VM's UUID, is the VM's identity; its name never is.
type Stamp struct {
	Director string // id of the director's installation
	Machine  string // id of the ledger's row
}

// MachineState is the state of a row of the ledger.
type MachineState string

// The states of a machine. The ledger writes Intended before the hypervisor is asked for anything, so a crash leaves a
// row that a later run or the sweep can act on.
const (
	MachineIntended MachineState = "intended" // reserved with its addresses; nothing may exist yet
	MachinePresent  MachineState = "present"  // the hypervisor has it
	MachineDeleting MachineState = "deleting" // a plan takes it away; something may still exist
	// taken out of its cluster on purpose; its VM may be another's to recreate.
	MachineDetached MachineState = "detached"
	// MachineLost is the state of a tombstone: its VM was given up with its host, and may exist. It never runs again
	// with this identity, and its addresses are given to no other machine until it was seen to be off.
	MachineLost MachineState = "lost"
)

// MachineStates returns every state in the order of a usual life.
func MachineStates() []MachineState {
	return []MachineState{MachineIntended, MachinePresent, MachineDeleting, MachineDetached, MachineLost}
}

// NIC is a further network adapter of a machine, with its own address.
type NIC struct {
	Role    string `json:"role"` // what it is for, such as storage; a machine has one of each role
	Network string `json:"network"`
	Address string `json:"address"` // without prefix length
	MAC     string `json:"mac"`
}

// On returns the address that the machine has on the network, or "".
func (m Machine) On(network string) string {
	if m.Network == network {
		return m.Address
	}
	for _, n := range m.NICs {
		if n.Network == network {
			return n.Address
		}
	}
	return ""
}

// Member is a machine that is a node of its cluster, as far as who watches for new ones looks at it.
type Member struct{ ClusterUID, Cluster, Name, Address string }

// Machine is a row of the ledger: a VM that the director made or is about to make.
type Machine struct {
	ID         string // also the stamp's machine id; never used twice
	ClusterUID string
	Cluster    string
	Name       string // host name and node name
	Role       Role
	Pool       string // node pool of the cluster; "master" for masters
	Provider   string
	Network    string
	Image      string
	Address    string // the node's address, without prefix length
	MAC        string
	// NICs are the further adapters, in the order in which the guest has them. A machine with one adapter looks in
	// plans as it always did.
	NICs       []NIC `json:",omitempty"`
	CPUs       int
	Memory     int64  // bytes
	Host       string // hypervisor host it was placed on; empty before
	VMID       string // the hypervisor's id; empty before it exists
	State      MachineState
	Kubernetes string // version that it runs as a member of its cluster; empty while it is none
	// KeptBy is who keeps its VM on purpose while it is no member: no plan takes that VM for surplus. Empty if no one
	// does.
	KeptBy  string `json:",omitempty"`
	Created time.Time
	Deleted time.Time // zero while it lives; a row stays behind so that its id is never used twice
}
