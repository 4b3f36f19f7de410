package wire

import "time"

// Consuls are all datacenters of Consul, by name.
type Consuls struct {
	Items []Consul `json:"items"`
}

// Consul is a datacenter of Consul, with how its last comparison with what is wanted there went.
type Consul struct {
	Name       string      `json:"name"`
	Datacenter string      `json:"datacenter"`
	Domain     string      `json:"domain"`
	Addresses  []string    `json:"addresses"`
	State      ConsulState `json:"state"`
}

// ConsulState is how the last comparison went.
type ConsulState struct {
	At        *time.Time      `json:"at,omitempty" doc:"When it ended; absent before the first one."`
	SuccessAt *time.Time      `json:"success_at,omitempty" doc:"When one ended well the last time."`
	Problem   string          `json:"problem,omitempty" doc:"Why it did not end well."`
	Hint      string          `json:"hint,omitempty" doc:"What to do about it."`
	Wanted    int             `json:"wanted" doc:"Entries that are wanted."`
	Written   int             `json:"written" doc:"Entries that it wrote."`
	Removed   int             `json:"removed" doc:"Entries that it removed."`
	Failing   int             `json:"failing" doc:"Wanted entries whose check does not pass."`
	Held      *ConsulRemovals `json:"held,omitempty" doc:"Removals that wait for a person."`
}

// ConsulRemovals are removals that are too many at once to be done without a person's word.
type ConsulRemovals struct {
	ID     string   `json:"id" doc:"Of exactly this set: what confirms it."`
	Count  int      `json:"count"`
	Total  int      `json:"total" doc:"Entries on the director's nodes."`
	Sample []string `json:"sample" doc:"The first of them, as node/id."`
}

// ConsulServices are the entries on the director's nodes, and those that are missing there.
type ConsulServices struct {
	Items []ConsulService `json:"items"`
}

// ConsulService is an instance of a service in Consul.
type ConsulService struct {
	Cluster string   `json:"cluster,omitempty" doc:"Name of the cluster; absent for the director, and for a cluster that is gone."`
	Node    string   `json:"node"`
	ID      string   `json:"id"`
	Service string   `json:"service"`
	Address string   `json:"address"`
	Port    int      `json:"port"`
	Tags    []string `json:"tags"`
	Passing bool     `json:"passing" doc:"Whether its check passes."`
	Output  string   `json:"output,omitempty" doc:"What the check says."`
	Writer  string   `json:"writer" doc:"Who writes it: the director, the agent of a node, or a program in the cluster." enum:"director,agent,cluster"`
	Drift   string   `json:"drift,omitempty" doc:"How it differs from what is wanted; absent if it does not." enum:"missing,changed,surplus"`
}

// ConsulGaps are the nodes that have no route to services of a Consul.
type ConsulGaps struct {
	Items []ConsulGap `json:"items"`
	More  int         `json:"more,omitempty" doc:"How many further ones there are."`
}

// ConsulGap says that nodes of a cluster have no route to a network on which services are, or hosts outside none to
// services of the cluster.
type ConsulGap struct {
	Cluster  string   `json:"cluster"`
	From     string   `json:"from,omitempty" doc:"Name of the Network of hosts outside that do not reach services of the cluster; absent for nodes of the cluster."`
	Nodes    []string `json:"nodes" doc:"Those that have no route: nodes of the cluster, or with from, hosts."`
	Network  string   `json:"network,omitempty" doc:"Name of the Network; absent for an address that none describes."`
	CIDR     string   `json:"cidr" doc:"Of the network, or the address."`
	Services []string `json:"services" doc:"Names of the services there."`
	Problem  string   `json:"problem"`
	Hint     string   `json:"hint"`
}

// ConsulSync asks for a comparison.
type ConsulSync struct {
	Confirm string `json:"confirm,omitempty" doc:"Id of the removals that are held, if they should go." maxLength:"64"`
}
