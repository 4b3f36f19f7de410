package director

import "time"

// ConsulState is how the last comparison of a Consul with what is wanted there went.
type ConsulState struct {
	Consul  string    `json:"-"`
	At      time.Time `json:"at"`                // when it ended
	Success time.Time `json:"success,omitzero"`  // when one ended well the last time
	Problem string    `json:"problem,omitempty"` // why this one did not end well
	Hint    string    `json:"hint,omitempty"`
	Wanted  int       `json:"wanted"`  // entries
	Written int       `json:"written"` // by this comparison
	Removed int       `json:"removed"` // by this comparison
	Failing int       `json:"failing"` // wanted entries whose check does not pass
	Held    *Removals `json:"held,omitempty"`
}

// Removals are removals that are so many at once that a person has to agree to them.
type Removals struct {
	ID     string   `json:"id"` // of exactly this set
	Count  int      `json:"count"`
	Total  int      `json:"total"`  // entries of the director that are there
	Sample []string `json:"sample"` // the first of them
}

// ConsulPrefix begins the names of the nodes, of the director's services and of the policies in Consul.
const ConsulPrefix = "kaas-"

// ConsulNode returns the name of the node in Consul that carries the entries of a cluster, by its uid, or of a
// director, by its id.
func ConsulNode(id string) string { return ConsulPrefix + id }

// ConsulMoreNodes begins the names of the further nodes of a cluster, which carry what its sync has registered beyond
// what the first one has room for. Names of clusters and machines have no dot, so no other node begins so.
func ConsulMoreNodes(uid string) string { return ConsulNode(uid) + "." }

// ConsulAPI returns the name of the service in Consul that the API servers of a cluster are, by the cluster's name.
func ConsulAPI(cluster string) string { return ConsulPrefix + "api-" + cluster }

// ConsulAPIEntry returns the id of the entry of a master's API server, by the name of the machine.
func ConsulAPIEntry(machine string) string { return ConsulPrefix + "api-" + machine }

// ConsulVIPEntry returns the id of the entry that the agent of a master has of the cluster's virtual address, by the
// cluster's uid and the name of the machine. Each master's agent has one.
func ConsulVIPEntry(uid, machine string) string {
	return ConsulPrefix + "api-vip-" + uid + "-" + machine
}

// The tags of API servers in Consul: those of masters, and that behind the virtual address.
const (
	ConsulTagMaster = "master"
	ConsulTagVIP    = "vip"
)

// The keys of the meta of nodes and entries in Consul that say whose they are.
const (
	ConsulMetaOwner   = "kaas-owner"   // id of the director
	ConsulMetaCluster = "kaas-cluster" // uid of the cluster
	ConsulMetaNode    = "kaas-node"    // name of the machine; of nodes with an agent, which registers them itself
)

// ConsulToken is what the sync of a cluster with a Consul is known by there. It says that a plan has installed the
// sync, also for a Consul without ACLs.
type ConsulToken struct {
	Consul   string // name of the document
	Accessor string // id of the token, which is no secret; empty for a Consul without ACLs
	Secret   Secret
	Rules    string // of its policy
	Plan     string // that made it
	Former   bool   // the former token stays: the sync is being given another
}

// ConsulAgents is what the agents on the nodes of a cluster are known by in a Consul. It says that a plan has installed
// them, also for a Consul without ACLs.
type ConsulAgents struct {
	Consul string                // name of the document
	Gossip Secret                // key of the datacenter; empty for gossip in clear
	Former bool                  // the former tokens stay: nodes are being given others
	Tokens map[string]AgentToken // by the name of the node; empty for a Consul without ACLs
}

// AgentToken is what the agent on a node is known by in Consul.
type AgentToken struct {
	Machine  string // id of the machine that it was made for; another one of the same name gets another token
	Accessor string // id of the token, which is no secret
	Secret   Secret
	Plan     string // that made it
	// Services are the names of what the agent registers besides its node, sorted. It may write no others.
	Services []string
}

// TokenState is what became of a token in Consul.
type TokenState string

// The states.
const (
	TokenThere   TokenState = "there"
	TokenRevoked TokenState = "revoked" // Consul has had it, and a person has ended it
	TokenNone    TokenState = "none"    // this Consul asks for none
)
