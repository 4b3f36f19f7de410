package discovery

import (
	"cmp"
	"net"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/director-kaas/kaas/director"
	"github.com/director-kaas/kaas/director/model"
)

// The keys of the meta that says whose a node and an entry are. What runs in a cluster writes on the cluster's node,
// too: it leaves entries alone that have no MetaCluster, and the director leaves alone what has no MetaWriter.
const (
	MetaOwner   = director.ConsulMetaOwner   // of nodes and entries
	MetaCluster = director.ConsulMetaCluster // of the cluster's node
	MetaNode    = director.ConsulMetaNode
	MetaWriter  = "kaas-writer" // of the director's entries
	MetaName    = "kaas-name"   // of the director's entries: name of the cluster
	MetaKey     = "kaas-key"    // what the entry is for

	writer = "director"
)

// NodeAddress is that of all nodes that carry entries. No host is behind them, and every entry has its own address.
const NodeAddress = "127.0.0.1"

// The names of services.
const (
	ServiceDirector = "kaas-director"
	nodePrefix      = director.ConsulPrefix // and the uid of the cluster, or the id of the director
)

// The tags of an API server's entries.
const (
	TagVIP    = director.ConsulTagVIP
	TagMaster = director.ConsulTagMaster
)

// World is what decides which entries are wanted.
type World struct {
	Director string // id
	URL      string // of the director
	Now      time.Time
	Clusters []Cluster
	// Directors are those with an agent next to them, as a cluster whose uid is Director; nil for none.
	Directors *Cluster
	Watched   bool // such an agent has the director's entry
}

// Cluster is a cluster with its living machines.
type Cluster struct {
	UID, Name string
	Consul    string // that it names; empty for none
	VIP       string // empty for none
	Machines  []director.Machine
	Syncs     bool                  // its document asks for a sync of Services
	Sync      *director.ConsulToken // of the sync that a plan has installed; nil for none
	// WantsAgents says that its document asks for agents on its nodes; Agents are those that a plan has installed, nil
	// for none.
	WantsAgents bool
	Agents      *director.ConsulAgents
	// Watched are the ids of the director's entries that agents of masters have instead: those of API servers, and that
	// of the virtual address.
	Watched map[string]bool

	directors bool // no cluster, but the directors
}

// Kept is what stays of a cluster in a Consul, besides what the director wants there.
type Kept struct {
	Synced bool // also what the cluster's sync writes
	// Watched are the ids of entries that agents have instead of the director.
	Watched map[string]bool
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
func Node(id string) string { return director.ConsulNode(id) }

// nodeOf tells whether the node carries entries of the cluster with that uid: the first one, which has what the
// director registers, or one of those that its sync has made.
func nodeOf(uid, node string) bool {
	return node == Node(uid) || strings.HasPrefix(node, director.ConsulMoreNodes(uid))
}

// Service returns the name of the service of a cluster's API server.
func service(cluster string) string { return director.ConsulAPI(cluster) }

// Wanted returns the entries that are wanted in the Consul, sorted by node and id, and the clusters whose nodes stay
// there, by uid; what agents have of the director itself is under "". The state of checks is left open. It is pure.
func Wanted(w World, consul string) (entries []Entry, keep map[string]Kept) {
	keep = map[string]Kept{}
	if e, ok := w.self(); ok && w.Watched {
		keep[""] = Kept{Watched: map[string]bool{e.ID: true}}
	} else if ok {
		entries = append(entries, e)
	}
	for _, c := range w.Clusters {
		if c.Consul != consul || len(c.Machines) == 0 {
			continue
		}
		keep[c.UID] = Kept{Synced: c.Syncs || (c.Sync != nil && c.Sync.Consul == consul), Watched: c.Watched}
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
		Tags: []string{"https"}, Passing: true, Output: written(w.Now),
		Meta: map[string]string{MetaOwner: w.Director, MetaWriter: writer, MetaKey: "director"},
	}, err == nil
}

// The director's own entry has no one who watches it when the director is down, so its check says when it was written,
// and is written again and again.
const (
	writtenAt   = "the director wrote this at "
	writtenThen = "; it does so every 5 minutes, and an older time means that it is down"
	freshFor    = 5 * time.Minute
)

func written(now time.Time) string {
	return writtenAt + now.UTC().Format(time.RFC3339) + writtenThen
}

// stale tells whether the director's own entry has to be written again, so that its check says a time that is not old.
func stale(wanted, have Entry) bool {
	if wanted.Cluster != "" {
		return false
	}
	at := func(output string) time.Time {
		text, _ := strings.CutPrefix(output, writtenAt)
		text, _, _ = strings.Cut(text, ";")
		t, _ := time.Parse(time.RFC3339, text) // the zero time for anything else
		return t
	}
	age := at(wanted.Output).Sub(at(have.Output))
	return age >= freshFor || age < 0
}

// entryVIP is the id of the director's entry of a virtual address.
const entryVIP = director.ConsulPrefix + "api-vip"

// cluster returns the entries of a cluster's API server, but for those that agents have: each master that is a member,
// and the virtual address as soon as there is one.
func (w World) cluster(c Cluster) []Entry {
	var out []Entry
	add := func(id, address, tag string) {
		if c.Watched[id] {
			return
		}
		out = append(out, Entry{
			Node: Node(c.UID), Cluster: c.UID, ID: id, Service: service(c.Name), Address: address,
			Port: model.APIPort, Tags: []string{tag}, name: c.Name,
			Meta: map[string]string{
				MetaOwner: w.Director, MetaWriter: writer, MetaName: c.Name,
				MetaKey: strings.TrimPrefix(id, director.ConsulPrefix),
			},
		})
	}
	masters := 0
	for _, m := range c.Machines {
		if m.Role != director.RoleMaster || m.Kubernetes == "" || m.Address == "" {
			continue
		}
		masters++
		add(director.ConsulAPIEntry(m.Name), m.Address, TagMaster)
	}
	if c.VIP != "" && masters > 0 {
		add(entryVIP, c.VIP, TagVIP)
	}
	return out
}
