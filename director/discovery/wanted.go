package discovery

import (
	"cmp"
	"net"
	"net/url"
	"slices"
	"strconv"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
)

// The keys of the meta that says whose a node and an entry are. What runs in a cluster writes on the cluster's node,
// too: it leaves entries alone that have no MetaCluster, and the director leaves alone what has no MetaWriter.
const (
	MetaOwner   = "kaas-owner"   // id of the director; of nodes and entries
	MetaCluster = "kaas-cluster" // uid of the cluster; of its node
	MetaWriter  = "kaas-writer"  // of the director's entries
	MetaName    = "kaas-name"    // of the director's entries: name of the cluster
	MetaKey     = "kaas-key"     // what the entry is for

	writer = "director"
)

// NodeAddress is that of all nodes that carry entries. No host is behind them, and every entry has its own address.
const NodeAddress = "127.0.0.1"

// The names of services.
const (
	ServiceDirector = "kaas-director"
	servicePrefix   = "kaas-api-" // and the name of the cluster
	nodePrefix      = "kaas-"     // and the uid of the cluster, or the id of the director
)

// The tags of an API server's entries.
const (
	TagVIP    = "vip"
	TagMaster = "master"
)

// World is what decides which entries are wanted.
type World struct {
	Director string // id
	URL      string // of the director
	Clusters []Cluster
}

// Cluster is a cluster with its living machines.
type Cluster struct {
	UID, Name string
	Consul    string // that it names; empty for none
	VIP       string // empty for none
	Machines  []director.Machine
}

// Entry is an instance of a service in Consul, with its one check.
type Entry struct {
	Node    string
	Cluster string // uid; empty for the director's own
	ID      string
	Service string
	Address string
	Port    int
	Tags    []string
	Meta    map[string]string
	Passing bool
	Output  string // of the check; no difference by itself

	name string // of the cluster
}

// endpoint is where the entry's API server answers; empty for the director's own entry.
func (e Entry) endpoint() string {
	if e.Cluster == "" {
		return ""
	}
	return net.JoinHostPort(e.Address, strconv.Itoa(e.Port))
}

// Node returns the name of the node that carries the entries of a cluster, by its uid, or of a director, by its id.
func Node(id string) string { return nodePrefix + id }

// Service returns the name of the service of a cluster's API server.
func service(cluster string) string { return servicePrefix + cluster }

// Wanted returns the entries that are wanted in the Consul, sorted by node and id, and the uids of the clusters whose
// nodes stay there. The state of checks is left open. It is pure.
func Wanted(w World, consul string) (entries []Entry, keep map[string]bool) {
	keep = map[string]bool{}
	if e, ok := w.self(); ok {
		entries = append(entries, e)
	}
	for _, c := range w.Clusters {
		if c.Consul != consul || len(c.Machines) == 0 {
			continue
		}
		keep[c.UID] = true
		entries = append(entries, w.cluster(c)...)
	}
	slices.SortFunc(entries, func(a, b Entry) int {
		return cmp.Or(cmp.Compare(a.Node, b.Node), cmp.Compare(a.ID, b.ID))
	})
	return entries, keep
}

// self is the entry of the director, where people and programs reach it.
func (w World) self() (Entry, bool) {
	u, err := url.Parse(w.URL)
	if err != nil || u.Hostname() == "" {
		return Entry{}, false
	}
	port, err := strconv.Atoi(cmp.Or(u.Port(), "443"))
	return Entry{
		Node: Node(w.Director), ID: ServiceDirector, Service: ServiceDirector, Address: u.Hostname(), Port: port,
		Tags: []string{"https"}, Passing: true, Output: "the director has written this",
		Meta: map[string]string{MetaOwner: w.Director, MetaWriter: writer, MetaKey: "director"},
	}, err == nil
}

// cluster returns the entries of a cluster's API server: each master that is a member, and the virtual address as soon
// as there is one.
func (w World) cluster(c Cluster) []Entry {
	var out []Entry
	add := func(id, address, tag string) {
		out = append(out, Entry{
			Node: Node(c.UID), Cluster: c.UID, ID: "kaas-" + id, Service: service(c.Name), Address: address,
			Port: model.APIPort, Tags: []string{tag}, name: c.Name,
			Meta: map[string]string{
				MetaOwner: w.Director, MetaWriter: writer, MetaName: c.Name, MetaKey: id,
			},
		})
	}
	for _, m := range c.Machines {
		if m.Role == director.RoleMaster && m.Kubernetes != "" && m.Address != "" {
			add("api-"+m.Name, m.Address, TagMaster)
		}
	}
	if c.VIP != "" && len(out) > 0 {
		add("api-vip", c.VIP, TagVIP)
	}
	return out
}
